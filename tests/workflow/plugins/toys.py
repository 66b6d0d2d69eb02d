"""A table of another paper, which only tests register, through GPUPC_PLUGINS."""

from pathlib import Path

from gpupc_impl.reporting.catalogue import table
from gpupc_impl.reporting.tables import Table


@table("toy_table", "Table 1: toys", paper="Toys", family="gaussian", reported=str(Path(__file__).with_suffix(".csv")))
def toy_table(problems, reported):
    """Variables of the data sets at alpha = {{ config["alpha"] }}, beside what the paper has."""
    rows = [[facts["name"], str(facts.get("n_variables", "–"))] for facts in problems]
    rows += [[row["dataset"], row["variables"]] for row in reported]
    return Table("Toys", ["data set", "n"], rows, [], [dict(zip(("dataset", "n"), row, strict=True)) for row in rows])
