"""The command for public tables: what it finds right, and what it finds wrong, with tables that are made here."""

import hashlib

import numpy as np
import pandas as pd
import pytest
import yaml

from datasets import registry
from tests.public import run


def test_each_table_is_a_data_set_with_an_address_and_a_check():
    tables = yaml.safe_load(run.TABLES.read_text(encoding="utf-8"))
    assert len(tables) == 10
    for name, table in tables.items():
        check = table.pop("check")
        assert registry.resolve(name, table)["url"].startswith("https://")
        assert set(check) == {"search", "pandas", "edges"}


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A function that declares one table, a -> b with decimal commas, and runs the command."""
    a, noise, c = np.random.default_rng(0).normal(size=(3, 100))
    frame = pd.DataFrame({"a": a, "b": a + noise, "c": c}).round(4)
    frame.to_csv(tmp_path / "table.csv", sep=";", decimal=",", index=False)
    monkeypatch.setenv("GPUPC_MIRRORS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(run, "BESIDE", {"gaussian": "stable-serial"})
    entry = {"kind": "file", "family": "gaussian", "file": "table.csv", "samples": 100, "variables": 3}
    entry |= {"sha256": hashlib.sha256((tmp_path / "table.csv").read_bytes()).hexdigest(), "licence": "made here"}
    entry |= {"reader": {"format": "csv", "header": True}, "citation": "made here"}

    def declared(edges=1, pandas=None, **changed):
        check = {"search": {"backend": "auto"}, "pandas": pandas or {"sep": ";", "decimal": ","}, "edges": edges}
        (tmp_path / "tables.yaml").write_text(yaml.safe_dump({"made": {**entry, **changed, "check": check}}))
        return run.main(["--offline"], tmp_path / "tables.yaml")

    return declared


def test_a_table_that_is_read_rightly(tables, capsys):
    assert tables() == 0
    read = "100 rows, 3 columns (3 of numbers, 0 of categories), numbers with decimal commas"
    expected = f"made: right: {read}; 1 edges\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"edges": 2}, "edges: 1, not 2"),
        ({"samples": 99}, "samples x variables: (100, 3), not (99, 3)"),
        ({"pandas": {"sep": ";", "decimal": ",", "names": ["a", "x", "c"], "header": 0}}, "variables: ('a', 'b', 'c')"),
    ],
)
def test_a_table_that_is_read_wrongly(tables, capsys, changed, fault):
    assert tables(**changed) == 1
    assert "WRONG: 100 rows, 3 columns (3 of numbers, 0 of categories)" in (out := capsys.readouterr().out)
    assert fault in out


def test_a_table_that_cannot_be_had(tables, capsys):
    assert tables(sha256="0" * 64) == 2
    assert "made" in capsys.readouterr().err
