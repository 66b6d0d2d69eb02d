"""Fails, and names the edges, when a difference between skeletons is unexplained."""

import sys
from pathlib import Path

from gpupc_impl.core.files import read_csv
from gpupc_impl.verification.verify import complaints

found = [sentence for path in snakemake.input for sentence in complaints(read_csv(path))]
where = " and ".join(snakemake.input)
message = "\n".join([f"unexplained differences between skeletons; see {where}", *found])
Path(snakemake.log[0]).write_text(f"{message if found else 'every skeleton is verified'}\n", encoding="utf-8")
if found:
    sys.exit(message)
