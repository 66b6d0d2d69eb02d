"""The catalogue of outputs. Every table and figure is an entry of a YAML file, and a function in the module beside it.

    tables:
      cupc_table2:
        title: "Table 2: runtimes and speedups"
        paper: cuPC
        family: gaussian
        caption: The table shows runtimes and speedups as cuPC's Table 2 ...

The names of the function's parameters select what the function reads (`READERS`), and the entry's keys of which runs.
Each entry is a target of the workflow.
"""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gpupc_impl.core.family import plugins
from gpupc_impl.core.files import parse_yaml, read_csv, read_text
from gpupc_impl.reporting import papers
from gpupc_impl.reporting.figures import Drawing, write_drawings
from gpupc_impl.reporting.runs import Source, absent_note, heading, load, load_facts, load_single_tests
from gpupc_impl.reporting.tables import Table, write_tables

EVERY = "every"  # the value of an entry's ``family`` that stands for all families

CsvRows = Sequence[Mapping[str, str]]
Facts = Sequence[Mapping[str, Any]]
Sweeps = Mapping[str, Mapping[str, float]]


def _rows(kind: str) -> Callable[[Source], CsvRows]:
    return lambda source: [row for path in source.files[kind] for row in read_csv(path)]


READERS: Mapping[str, Callable[[Source], Any]] = {
    "runs": load,
    "problems": load_facts,
    "tests": lambda source: load_single_tests(source.files["tests"][0], source.recorded),
    "every_test": lambda source: [load_single_tests(path, source.recorded) for path in source.files["every_test"]],
    **{kind: _rows(kind) for kind in ("sharing", "timeline", "factors", "reported")},
}
"""The parameters that a function may have in addition to `GIVEN`, each with the function that reads it from a source:

- runs: the records, each with its verification; problems: the facts of each data set's problem.
- tests: the times of an entry's table of single tests; every_test: the times of all tables.
- sharing: the lines of results/sharing.csv; timeline: when each step of each block of an out-of-core run was at work.
- factors: how many times longer other programs take on one core than our references (see `quantities.chained`).
- reported: the paper's own numbers.
"""

GIVEN = ("sweeps", "varies", "ran", "notes")
"""The parameters that come from the config: the value in every graph for each varied parameter of the experiment; the
varied dimension of a table of single tests; the data set and backend of a timeline; and the notes of the entry."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A table or figure.

    Attributes:
        name: the name of its target and files, and in docs/experiments.md.
        title: its title in the report.
        paper: the heading of its section in the report: the paper's name, or another word.
        caption: its caption in the report: a Jinja template of reStructuredText, whose variable ``config`` is the
            workflow's config.
        make: the function that returns it, by default that of its name.
        figure: whether it is a figure.
        reported: the CSV of the paper's numbers, in results/reported or beside the YAML file; by default NAME.csv.
        numbers: for a figure, whether it has a CSV of its numbers.
        family: the family whose data sets it shows with all their settings, or `EVERY`.
        experiments: the experiments that it shows; without a family, the config must have the first of them.
        tests: the table of single tests that it shows.
        notes: sentences below it.
        methods: the methods that it compares; a recorded device without a run of any of them is left out.
    """

    name: str
    title: str
    paper: str
    caption: str
    make: Callable[..., Table | Drawing]
    figure: bool
    reported: str
    numbers: bool = True
    family: str | None = None
    experiments: Sequence[str] = ()
    tests: str | None = None
    notes: Sequence[str] = ()
    methods: Sequence[str] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.make).parameters)

    def outputs(self) -> dict[str, str]:
        """Return the files to which the table or figure is written, by kind; the first of them is part of the report.
        The PDF of a figure is for papers: without headings and small print, with a page for each machine."""
        if not self.figure:
            return {kind: f"results/tables/{self.name}.{kind}" for kind in ("html", "csv", "md")}
        files = {kind: f"figures/{self.name}.{kind}" for kind in ("svg", "pdf")}
        return files | ({"csv": f"results/tables/{self.name}.csv"} if self.numbers else {})

    def write(self, sources: Sequence[Source], outputs: Mapping[str, str]) -> None:
        """Make the table or figure from each source separately, and write one block or panel for each, in order."""
        blocks = []
        for source in sources:
            read = {name: source.given[name] if name in GIVEN else READERS[name](source) for name in self.reads}
            made = self.make(**read)
            if isinstance(made, Table):
                made = dataclasses.replace(made, notes=[*made.notes, *absent_note(source)])
            blocks.append((heading(source, read), made))
        paths = {f"{kind}_path": outputs[kind] for kind in self.outputs()}
        (write_drawings if self.figure else write_tables)(blocks, **paths)


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Return all entries by name: those that belong to no paper, those of `papers`, and those of plug-ins."""
    of_papers = [f"{papers.__name__}.{found.name}" for found in pkgutil.iter_modules(papers.__path__)]
    found: dict[str, Entry] = {}
    for module in map(importlib.import_module, ["gpupc_impl.reporting.summary", *of_papers, *plugins()]):
        for entry in entries_of(module):
            if entry.name in found:
                first = found[entry.name].make.__module__
                raise ValueError(f"{entry.name!r} is made twice: in {first} and {module.__name__}")
            found[entry.name] = entry
    return found


def entries_of(module: ModuleType) -> list[Entry]:
    """Return the entries of the YAML file beside a module; none without such a file."""
    path, found = Path(str(module.__file__)).with_suffix(".yaml"), []
    content = parse_yaml(read_text(path)) if path.is_file() else {}
    for kind, its in content.items():
        for name, given in its.items():
            make, reported = getattr(module, given.pop("function", name)), given.pop("reported", f"{name}.csv")
            own = path.with_name(reported)
            facts = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
            facts |= {"make": make, "figure": kind == "figures", "reported": str(own) if own.is_file() else reported}
            entry = Entry(name, **facts)
            known = [*READERS, *GIVEN]
            if unknown := [parameter for parameter in entry.reads if parameter not in known]:
                raise ValueError(f"{name!r} has the parameter {unknown[0]!r}; known: {', '.join(known)}")
            found.append(entry)
    return found
