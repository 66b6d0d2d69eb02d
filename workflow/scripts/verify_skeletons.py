"""Compares the skeletons of each data set, and tests their removed edges again."""

import math
import sys
from pathlib import Path

from gpupc_impl.core.files import write_csv
from gpupc_impl.measurement.record import load_records
from gpupc_impl.verification.verify import verify_files
from workflow.lib.deadline import TimeLeft
from workflow.lib.orphans import end_with_parent

end_with_parent()

sys.stdout = sys.stderr = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows, time_left = [], TimeLeft.of_workflow()
for problem in snakemake.input.problems:
    dataset = Path(problem).stem
    paths = [path for path in snakemake.input.records if Path(path).parent.name == dataset]
    finished = [record for record in load_records(paths) if record.ok]
    removed = max((math.comb(each.problem["n_variables"], 2) - each.result.edges for each in finished), default=0)
    rows += verify_files(problem, paths, certify=time_left.certifies(dataset, removed))
write_csv(snakemake.output[0], rows)
time_left.end_job(snakemake.log[0])
