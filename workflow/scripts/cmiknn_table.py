"""One of GPU-CMIknn's Tables 1 to 4 and 6 to 9: single tests, from their times and the paper's own numbers."""

import json
import sys
from pathlib import Path

from gpupc_impl.reporting import cmiknn
from gpupc_impl.reporting.measured import read_csv

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

timed = json.loads(Path(snakemake.input.timed).read_text(encoding="utf-8"))
number = snakemake.rule.removeprefix("cmiknn_table")
varies = snakemake.params.varies
title = f"Single tests over {cmiknn.DIMENSIONS[varies]} (GPU-CMIknn, Table {number})"
percentiles = cmiknn.PERCENTILES if snakemake.params.percentiles else cmiknn.MEDIAN
table = cmiknn.single_tests(title, timed, varies, read_csv(snakemake.input.reported), percentiles)
table.write(snakemake.output.csv, snakemake.output.md, snakemake.output.html)
