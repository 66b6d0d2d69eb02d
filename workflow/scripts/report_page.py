"""Makes the report page: how this machine's runs ended, the headlines, and every table and figure."""

import sys

from gpupc_impl.core.files import read_csv, write_text
from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.claims import CLAIMS, headlines
from gpupc_impl.reporting.page import outcome, report_page

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

captions = snakemake.params.captions
shown = [entry for name, entry in entries().items() if name in captions]
files = {entry.name: entry.outputs() for entry in shown}
claims = {paper: read_csv(files[f"{paper}_claims"]["csv"]) for paper in sorted(CLAIMS) if f"{paper}_claims" in files}
table = headlines(claims, read_csv(snakemake.input.reported))
state = outcome(read_csv(snakemake.input.records), read_csv(snakemake.input.verification))
write_text(snakemake.output[0], report_page(state, snakemake.params.introduction, table, shown, captions, files))
print(f"{state[1]} Open {snakemake.output[0]}")
