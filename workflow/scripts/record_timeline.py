"""When each block of one block-based run is at work, as CSV; a header alone when there is no such run."""

import sys

from gpupc_impl.core.files import read_json
from workflow.lib.orphans import end_with_parent
from workflow.lib.timelines import record_timeline

end_with_parent()

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, given = snakemake.params, snakemake.input
facts = read_json(given.facts)
why = record_timeline(given.problem, facts, params.setting, params.limits, params.backend, snakemake.output[0])
if why is not None:
    print(why)
