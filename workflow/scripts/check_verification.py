"""Fails if a difference between skeletons is unexplained, and names the edges."""

import sys
from pathlib import Path

from gpupc_impl.core.files import read_csv
from gpupc_impl.verification.verify import complaints

differences = [sentence for path in snakemake.input for sentence in complaints(read_csv(path))]
files = " and ".join(snakemake.input)
message = "\n".join([f"unexplained differences between skeletons; see {files}", *differences])
Path(snakemake.log[0]).write_text(f"{message if differences else 'every skeleton is verified'}\n", encoding="utf-8")
if differences:
    sys.exit(message)
