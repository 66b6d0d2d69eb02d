"""Every row of the papers' own numbers is read: without it a table, a figure or a claim would look different."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.text import Text

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import catalogue
from gpupc_impl.reporting.tables import Table

REPORTED = Path(__file__).parents[3] / "results" / "reported"
READERS = [entry for entry in catalogue.entries().values() if "reported" in entry.reads]
BY_FILE = {entry.reported: entry for entry in READERS if entry.reported == f"{entry.name}.csv"}
"""The table or figure that each file is made for; others may read it, too."""


def run(dataset, method, params=None, family="gaussian"):
    return {
        **{"setting": method, "method": method, "family": family, "reference": False, "backend": "cuda"},
        **{"params": params or {}, "dataset": {"name": dataset}, "status": "ok"},
        "time_s": {"cold": 1.0, "compile": None, "warm": [1.0], "levels": [[0.4, 0.5]]},
        "result": {"tests_per_level": [10, 30], "edges_per_level": [10, 10], "edges": 10, "levels_run": 2},
    }


SECTION_56 = {
    "dataset": {"name": "toys", "source": "generated: cuPC section 5.6, p=1000, m=10000, density=0.1, seed=0"},
    "problem": {"residual_tolerance": 0},
}

RUNS = {
    "cupc_table2": lambda rows: [run(name, "cupc-s") for name in dict.fromkeys(row["dataset"] for row in rows)],
    "cupc_fig7": lambda rows: [run("toys", "cupc-e", {"beta": 2, "gamma": 32})],
    "cupc_fig8": lambda rows: [run("toys", "cupc-s", {"theta": 64, "delta": 2})],
    "cupc_fig10": lambda rows: [run("toys", "cupc-e") | SECTION_56],
    "ooc_fig2": lambda rows: [run("toys", method) for method in ("out-of-core-um", "out-of-core-block")],
}
"""Made-up records for those that show nothing of the paper without any."""

SWEEPS = {
    "gpupc_table2": {parameter: {} for parameter in ("p", "categories", "n", "tests_per_edge", "decay")},
    "ooc_fig2": {"p": {"toys": 5}},
    "cupc_fig10": {"n": {"toys": 1000}},
}
SHARED = {"dataset": "toys", "kind": "file", "setting": "cupc-s", "rows": "2", "sets": "7"}


@pytest.fixture
def look(load):
    """``look(entry, rows)``: all that a reader of a table or figure sees, when the paper has these numbers."""

    def seen(entry, rows):
        others = {
            "runs": lambda: load(RUNS.get(entry.name, lambda rows: [])(read_csv(REPORTED / entry.reported))),
            "problems": lambda: [
                {"name": row["dataset"], "available": False, "why": None, "alpha": 0.1}
                for row in rows
                if "dataset" in row
            ],
            "sharing": lambda: [SHARED],
            "factors": list,
            "tests": lambda: {"cells": [], "environments": {}},
            "every_test": list,
            "rates": lambda: None,
            "sweeps": lambda: SWEEPS[entry.name],
            "varies": lambda: ["k_cmi", "permutations", "set_size", "samples"][(int(entry.name[-1]) - 1) % 5],
        }
        made = entry.make(reported=rows, **{name: others[name]() for name in entry.reads if name != "reported"})
        if isinstance(made, Table):
            return made.rows, made.notes, made.plain
        plt.close(made.figure)
        return [text.get_text() for text in made.figure.findobj(Text)], made.rows

    return seen


def unread(look, entry, rows):
    """The rows without which a table or figure is the same."""
    whole, found = look(entry, rows), []
    for number, row in enumerate(rows):
        try:
            same = look(entry, rows[:number] + rows[number + 1 :]) == whole
        except (LookupError, ValueError):  # it needs this row
            continue
        if same:
            found.append(row)
    return found


def test_every_file_is_read():
    assert {path.name for path in REPORTED.glob("*.csv")} == {*BY_FILE, "headlines.csv"}


@pytest.mark.parametrize("name", sorted(BY_FILE))
def test_every_row_is_read(look, name):
    assert unread(look, BY_FILE[name], read_csv(REPORTED / name)) == []


def test_a_row_that_nothing_reads_is_found(look):
    def levels(reported) -> Table:
        shown = [[row["value"]] for row in reported if row["level"] == "1"]
        return Table("Levels", ["value"], shown, [f"paper: {reported[0]['value']}"], [])

    entry = catalogue.Entry("toys", "Toys", "Toys", levels, figure=False, reported="toys.csv")
    rows = [{"level": level, "value": value} for level, value in (("0", "5"), ("1", "6"), ("2", "7"))]
    assert unread(look, entry, rows) == [rows[2]]
    assert unread(look, entry, rows[:2]) == []
