"""The papers' own numbers in results/reported: they keep what the papers say of them, and name registered data."""

from pathlib import Path

import pytest

import datasets
from gpupc_impl.core.files import read_csv

REPORTED = Path(__file__).parents[3] / "results" / "reported"


def table(name):
    return read_csv(REPORTED / f"{name}.csv")


@pytest.mark.parametrize(
    "path", sorted({*REPORTED.glob("*.csv")} - {REPORTED / "headlines.csv"}), ids=lambda path: path.stem
)
def test_tables_are_whole_and_cited(path):
    rows = table(path.stem)
    assert rows
    for row in rows:
        assert None not in row
        assert None not in row.values()
        assert row["citation"]


@pytest.mark.parametrize("path", sorted(REPORTED.glob("*.csv")), ids=lambda path: path.stem)
def test_data_sets_are_registered(path):
    for row in table(path.stem):
        if row.get("dataset") and row["dataset"] != "geometric mean":
            assert row["dataset"] in datasets.names()


def test_gpupc_table_1_is_what_is_drawn():
    for row in table("gpupc_table1"):
        data = datasets.load(row["dataset"])
        assert data.values.shape == (int(row["samples"]), int(row["variables"]))
        assert max(map(len, data.labels)) == int(row["max_categories"])


def test_gpupc_table_2_settings_are_registered():
    base = {"p": 1000, "categories": 4, "n": 10_000}
    rows = table("gpupc_table2")
    for row in rows:
        assert float(row["value"] or 0) >= 0
        if row["parameter"] in base:
            wanted = base | {row["parameter"]: int(row["setting"]), "seed": 0}
            name = f"uniform-p{wanted['p']}-c{wanted['categories']}-n{wanted['n']}"
            assert datasets.entry(name)["parameters"] == wanted
    assert len({(row["parameter"], row["setting"]) for row in rows}) == len(rows) == 22


def test_cmiknn_table_10_says_what_did_not_finish():
    rows = {(row["method"], row["dataset"]): row for row in table("cmiknn_table10")}
    assert len(rows) == 24
    unfinished = [key for key, row in rows.items() if row["status"] == "DNF"]
    assert unfinished == [("CPU-8", "mcc-nonlinear"), ("CPU-8", "br-51-nonlinear")]
    for row in rows.values():
        assert (row["value"] == "") == (row["status"] == "DNF")
        assert float(row["value"] or 0) < float(row["limit_s"]) == 86_400
