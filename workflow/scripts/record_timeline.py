"""Writes as CSV when each step of each block of one block-based run begins and ends; only a header if it cannot run."""

import contextlib
import sys

from gpupc_impl.core.files import read_json
from workflow.lib.core_sets import Place, all_cores, own_cores
from workflow.lib.gpu_slots import own_gpu
from workflow.lib.orphans import end_with_parent
from workflow.lib.timelines import record_timeline

end_with_parent()

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, files = snakemake.params, snakemake.input
with own_gpu(snakemake.resources.slots), own_cores(Place.GPU, "timeline") if all_cores() else contextlib.nullcontext():
    facts = read_json(files.facts)
    obstacle = record_timeline(files.problem, facts, params.setting, params.limits, params.backend, snakemake.output[0])
if obstacle is not None:
    print(obstacle)
