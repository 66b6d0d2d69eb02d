"""GPU-CMIknn's Fig. 1: how the distance to the true graph changes with k."""

import sys
from pathlib import Path

from gpupc_impl.core.result import Skeleton
from gpupc_impl.reporting import cmiknn, experiments
from gpupc_impl.reporting.measured import read_csv, read_json

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

runs = experiments.load(snakemake.input.records, snakemake.input.verification)
skeletons = {
    run.measured.dataset: Skeleton.load(Path(path).with_suffix(".npz"))
    for run, path in zip(runs, snakemake.input.records, strict=True)
    if run.measured.status == "ok"
}
truths = {facts["name"]: facts.get("true_edges", []) for facts in read_json(snakemake.input.problems)}
drawing = cmiknn.cmiknn_fig1(runs, truths, skeletons, read_csv(snakemake.input.reported))
drawing.write(snakemake.output.svg, snakemake.output.png, snakemake.output.csv)
