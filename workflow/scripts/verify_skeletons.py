"""Compares the skeletons of each data set, and tests their removed edges again."""

import sys
from pathlib import Path

from gpupc_impl.core.files import write_csv
from gpupc_impl.verification.verify import verify_files
from workflow.lib.deadline import TimeLeft
from workflow.lib.orphans import end_with_parent

end_with_parent()

sys.stdout = sys.stderr = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows, time_left = [], TimeLeft.of_workflow()
for problem in snakemake.input.problems:
    dataset = Path(problem).stem
    if time_left.verifies(dataset):
        rows += verify_files(problem, [path for path in snakemake.input.records if Path(path).parent.name == dataset])
time_left.end_job(snakemake.log[0])
write_csv(snakemake.output[0], rows)
