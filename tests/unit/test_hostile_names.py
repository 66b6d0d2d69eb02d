"""Variables called anything: names survive every export, and no shell, spreadsheet or browser runs them."""

import csv
import re
import subprocess
from pathlib import Path

import numpy as np
import pandas
import pytest

from gpupc_impl import Skeleton, pc
from gpupc_impl.cli import main
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.reporting import tables
from gpupc_impl.reporting.runs import Heading
from gpupc_impl.reporting.tables import Table
from tests.pages import Page

ROOT = Path(__file__).parents[2]
NAMES = (
    *("=cmd|' /C calc'!A0", "=1+1", "+sum(A1)", "-2+3", "@name", "--output", 'quote "double"', "it's", "two\nlines"),
    *("<script>alert(1)</script>", "a&b &amp; c", "$(touch hacked)", "`touch hacked`; touch hacked", "a,b;c\td"),
    *("ünïcode ☃", "-3.5"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@pytest.fixture(scope="module")
def table():
    """Samples of a chain through all variables, so that each is in some edge."""
    noise = np.random.default_rng(0).normal(size=(300, len(NAMES)))
    return pandas.DataFrame(np.cumsum(noise, axis=1), columns=list(NAMES))


@pytest.fixture(scope="module")
def graph(table):
    return pc(table, method="stable-serial", max_level=1)


def test_names_survive_in_memory_and_in_archives(graph, tmp_path):
    assert graph.names == NAMES
    graph.save(tmp_path / "g.npz")
    assert CPDAG.load(tmp_path / "g.npz").names == Skeleton.load(tmp_path / "g.npz").names == NAMES
    assert set(graph.to_networkx()) == set(NAMES)
    frame = graph.to_frame()
    assert set(frame.source) | set(frame.target) == set(NAMES)


def test_the_command_line_runs_nothing(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "$(touch hacked) '; touch hacked; '.npz"
    np.savez(data, x=table.to_numpy(), names=list(NAMES))
    out = tmp_path / "-out & `touch hacked`.npz"
    assert main(["skeleton", str(data), "--method", "stable-serial", "--max-level", "1", "--output", str(out)]) == 0
    assert Skeleton.load(out).names == NAMES
    assert not (tmp_path / "hacked").exists()
    assert "edges:" in capsys.readouterr().out


def test_html_shows_names_as_text(tmp_path):
    table = Table(NAMES[9], ["name", "<b>"], [[name, "1"] for name in NAMES], list(NAMES), [{"name": n} for n in NAMES])
    paths = (tmp_path / f"t.{kind}" for kind in ("csv", "md", "html"))
    tables.write_tables([(Heading(NAMES[9], False, NAMES[9]), table)], *paths)
    page = Page((tmp_path / "t.html").read_text(encoding="utf-8"))
    assert set(NAMES) <= {*page.texts["td"], *page.texts["li"]}
    assert "b" not in page.tags
    assert page.texts["script"] == [tables.resource("page.js")]


@pytest.mark.parametrize("what", ["skeleton", "cpdag"])
def test_csv_has_every_name_and_no_formula(graph, tmp_path, what):
    result = graph if what == "cpdag" else graph.skeleton
    result.save(tmp_path / "g.csv")
    with open(tmp_path / "g.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    cells = [row[column] for row in rows for column in ("source", "target")]
    for cell in cells:
        assert not cell.startswith(FORMULA) or re.fullmatch(r"[-+]?[0-9.]+", cell), cell
    read = [cell.removeprefix("'") for cell in cells]
    frame = result.to_frame()
    assert read == [name for pair in zip(frame.source, frame.target, strict=True) for name in pair]
    assert set(read) == set(NAMES)


def test_no_code_starts_a_shell():
    command = ["git", "ls-files", "*.py", "*.smk", "Snakefile"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    shell = re.compile(r"shell\s*=\s*True|os\.(system|popen)\(|^\s*shell:", re.MULTILINE)
    ours = [ROOT / name for name in found.stdout.split() if not name.startswith("tests/")]
    assert len(ours) > 100
    assert not [path for path in ours if path.exists() and shell.search(path.read_text(encoding="utf-8"))]
