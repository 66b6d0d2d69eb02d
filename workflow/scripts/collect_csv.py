"""Concatenates CSV files that have the same header."""

import shutil
import sys

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

with open(snakemake.output[0], "w", encoding="utf-8") as out:
    for number, path in enumerate(snakemake.input):
        with open(path, encoding="utf-8") as part:
            header = next(part)
            if number == 0:
                out.write(header)
            shutil.copyfileobj(part, out)
