"""Compares the skeletons of each data set of a batch, and tests their removed edges again."""

import sys
from pathlib import Path

from gpupc_impl.core.files import write_csv
from gpupc_impl.verification.verify import verify_files
from gpupc_impl.verification.yardstick import read_samples
from workflow.lib.jobs import end_with_parent

end_with_parent()
sys.stdout = sys.stderr = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = []
for problem in snakemake.input.problems:
    paths = [path for path in snakemake.params.records if Path(path).parent.name == Path(problem).stem]
    samples = read_samples(Path("results/data", f"{Path(problem).stem}.npz"))
    rows += verify_files(problem, paths, samples=samples)
write_csv(snakemake.output[0], rows)
