"""The catalogue of outputs: every entry is whole and documented, and another one takes one place."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from jinja2 import Environment, StrictUndefined

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import catalogue
from gpupc_impl.reporting.runs import Source
from gpupc_impl.reporting.tables import Table

ROOT = Path(__file__).parents[3]
REPORTED = ROOT / "results" / "reported"
ENTRIES = catalogue.entries()
PAPERS = ("cuPC", "Out-of-Core", "gpuPC", "GPU-CMIknn")
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_an_entry_is_whole(entry):
    assert entry.title
    assert entry.make.__annotations__["return"] == ("Drawing" if entry.figure else "Table")
    assert bool(entry.family) + bool(entry.tests) + bool(not entry.family and entry.experiments) == 1
    for backend in ("host", "cuda"):
        template = Environment(undefined=StrictUndefined).from_string(entry.caption)
        caption = template.render(config={"alpha": 0.05, "backend": backend})
        assert len(caption) > 80
        assert caption.rstrip().endswith(".")
    if "reported" in entry.reads:
        assert read_csv(REPORTED / entry.reported)
    for path in re.findall(r"results/tables/\w+\.csv", entry.caption):
        assert path in entry.outputs().values()


def test_the_documentation_lists_the_papers_outputs():
    """A table a paper, a row an entry; the single tests of GPU-CMIknn have one row together."""
    for paper in PAPERS:
        rows = re.search(rf"^\| {paper} \| target .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
        listed = {target: number for number, target in re.findall(r"^\| ([^|]+) \| `(\w+)`", rows, re.MULTILINE)}
        entries = {entry.name: entry.title.partition(":")[0] for entry in ENTRIES.values() if entry.paper == paper}
        if paper == "GPU-CMIknn":
            for number in range(2, 5):
                entries.pop(f"cmiknn_table{number}")
            entries["cmiknn_table1"] = "Tables 1 to 4, 6 to 9"
        assert {name: number.lower() for name, number in listed.items()} == {k: v.lower() for k, v in entries.items()}


def module(tmp_path, name, yaml, **functions):
    """A module with an entry of the catalogue beside it."""
    (tmp_path / f"{name}.yaml").write_text(yaml)
    made = ModuleType(name)
    made.__file__ = str(tmp_path / f"{name}.py")
    vars(made).update(functions)
    return made


TOY = "tables: {toy_table: {title: 'Table 1: toys', paper: Toys, family: gaussian, caption: What there is.}}"


def test_another_table_is_a_function_and_an_entry(tmp_path):
    def toy_table(problems, reported) -> Table:
        return Table("Toys", ["toy"], [[row["toy"]] for row in reported], [], reported, left=(0,))

    (tmp_path / "toy_table.csv").write_text("toy\nball\n")
    (entry,) = catalogue.entries_of(module(tmp_path, "toys", TOY, toy_table=toy_table))
    assert (entry.reads, entry.caption) == (("problems", "reported"), "What there is.")
    outputs = {kind: tmp_path / Path(path).name for kind, path in entry.outputs().items()}
    entry.write([Source(None, "host", {"problems": [], "reported": [entry.reported]})], outputs)
    assert "| ball |" in outputs["md"].read_text()
    assert outputs["csv"].read_text() == "device,toy\nthis machine,ball\n"


def test_mistakes_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="'toy_table' has the parameter 'record'; known: runs, problems"):
        catalogue.entries_of(module(tmp_path, "toys", TOY, toy_table=lambda record: None))
    twice = module(tmp_path, "twice", TOY.replace("toy_table", "cupc_table2"), cupc_table2=lambda runs: None)
    monkeypatch.setitem(sys.modules, "twice", twice)
    monkeypatch.setattr(catalogue, "plugins", lambda: ["twice"])
    with pytest.raises(ValueError, match="'cupc_table2' is made twice"):
        catalogue.entries.__wrapped__()
