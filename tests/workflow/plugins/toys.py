"""A table of another paper, which only tests have, through GPUPC_PLUGINS."""

from gpupc_impl.reporting.tables import Table


def toy_table(problems, reported):
    rows = [[facts["name"], str(facts.get("n_variables", "–"))] for facts in problems]
    rows += [[row["dataset"], row["variables"]] for row in reported]
    return Table("Toys", ["data set", "n"], rows, [], [dict(zip(("dataset", "n"), row, strict=True)) for row in rows])
