"""Makes the report page: how this machine's runs ended, the headlines, and every table and figure."""

import sys

from gpupc_impl.core.files import read_csv, write_text
from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.claims import CLAIMS, headlines
from gpupc_impl.reporting.page import outcome, report_page

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

captions = snakemake.params.captions
shown = [entry for name, entry in entries().items() if name in captions]
claims = {
    paper: read_csv(entry.outputs()["csv"]) for entry in shown for paper in CLAIMS if entry.name == f"{paper}_claims"
}
table = headlines(claims, read_csv(snakemake.input.reported))
files = {entry.name: entry.outputs() for entry in shown}
state = outcome(read_csv(snakemake.input.records), read_csv(snakemake.input.verification))
write_text(snakemake.output[0], report_page(state, snakemake.params.introduction, table, shown, captions, files))
print(f"{state[1]} Open {snakemake.output[0]}")
