"""gpuPC's Table 3: execution times, and how far the skeletons are from the true ones."""

import sys
from pathlib import Path

from gpupc_impl.core.result import Skeleton
from gpupc_impl.reporting import experiments, gpupc
from gpupc_impl.reporting.measured import read_csv, read_json

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

runs = experiments.load(snakemake.input.records, snakemake.input.verification)
skeletons = {
    (run.measured.dataset, run.measured.setting): Skeleton.load(Path(path).with_suffix(".npz"))
    for run, path in zip(runs, snakemake.input.records, strict=True)
    if run.measured.status == "ok"
}
truths = {facts["name"]: facts.get("true_edges") for facts in read_json(snakemake.input.problems)}
table = gpupc.gpupc_table3(runs, read_csv(snakemake.input.reported), truths, skeletons)
table.write(snakemake.output.csv, snakemake.output.md, snakemake.output.html)
