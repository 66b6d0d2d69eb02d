"""The catalogue of outputs. Every table and figure is one function with a decorator, and no other list of them exists.

    @table("cupc_table2", "Table 2: runtimes and speedups", paper="cuPC", family="gaussian")
    def cupc_table2(runs, reported):
        '''Runtimes and speedups as in cuPC's Table 2 ...'''

The names of the function's parameters select what the function reads (`READERS`), the decorator's arguments select of
which runs, and the docstring is the caption in the report. Each entry is a target of the workflow.
"""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpupc_impl.core.family import plugins
from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import papers
from gpupc_impl.reporting.figures import Drawing, write_drawings
from gpupc_impl.reporting.runs import Heading, Source, absent_note, heading, load, load_facts, load_single_tests
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

GIVEN = ("sweeps", "varies", "ran")
"""The parameters that come from the config: the value in every graph for each varied parameter of the experiment; the
varied dimension of a table of single tests; the data set and backend of a timeline."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A table or figure.

    Attributes:
        name: the name of its target and files, and in docs/experiments.md.
        title: its title in the report.
        paper: the heading of its section in the report: the paper's name, or another word.
        make: the function that returns it.
        figure: whether it is a figure.
        reported: the CSV of the paper's numbers, in results/reported unless the path is absolute; by default NAME.csv.
        numbers: for a figure, whether it has a CSV of its numbers.
        family: the family whose data sets it shows with all their settings, or `EVERY`.
        experiments: the experiments that it shows; without a family, the config must have the first of them.
        tests: the table of single tests that it shows.
        methods: the methods that it compares; a recorded device without a run of any of them is left out.
    """

    name: str
    title: str
    paper: str
    make: Callable[..., Table | Drawing]
    figure: bool
    reported: str
    numbers: bool = True
    family: str | None = None
    experiments: Sequence[str] = ()
    tests: str | None = None
    methods: Sequence[str] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.make).parameters)

    @property
    def caption(self) -> str:
        """The caption as a Jinja template of reStructuredText, whose variable ``config`` is the workflow's config."""
        return inspect.getdoc(self.make) or ""

    def outputs(self) -> dict[str, str]:
        """Return the files to which the table or figure is written, by kind; the first of them is part of the report.

        The PDF of a figure is for papers: without headings and small print, with a page for each machine.
        """
        if not self.figure:
            return {kind: f"results/tables/{self.name}.{kind}" for kind in ("html", "csv", "md")}
        files = {kind: f"figures/{self.name}.{kind}" for kind in ("svg", "pdf")}
        return files | ({"csv": f"results/tables/{self.name}.csv"} if self.numbers else {})

    def write(self, sources: Sequence[Source], outputs: Mapping[str, str]) -> None:
        """Make the table or figure from each source separately, and write one block or panel for each, in order."""
        paths = {f"{kind}_path": outputs[kind] for kind in self.outputs()}
        (write_drawings if self.figure else write_tables)([self._made(source) for source in sources], **paths)

    def _made(self, source: Source) -> tuple[Heading, Any]:
        read = {name: source.given[name] if name in GIVEN else READERS[name](source) for name in self.reads}
        made = self.make(**read)
        if isinstance(made, Table):
            made = dataclasses.replace(made, notes=[*made.notes, *absent_note(source)])
        return heading(source, read), made


_ENTRIES: dict[str, Entry] = {}

Make = Callable[..., Table | Drawing]


def _register(name: str, title: str, *, paper: str, figure: bool, **given: Any) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        known = _ENTRIES.get(name)
        if known is not None and known.make.__module__ != make.__module__:
            raise ValueError(f"{name!r} is made twice: in {known.make.__module__} and in {make.__module__}")
        entry = Entry(name, title, paper, make, figure, **{"reported": f"{name}.csv", **given})
        for parameter in entry.reads:
            if parameter not in READERS and parameter not in GIVEN:
                raise ValueError(f"{name!r} has the parameter {parameter!r}; known: {', '.join([*READERS, *GIVEN])}")
        _ENTRIES[name] = entry
        return make

    return register


table = functools.partial(_register, figure=False)
"""Register a function that returns a `Table`; see `Entry` for the arguments."""

figure = functools.partial(_register, figure=True)
"""Register a function that returns a `Drawing`; see `Entry` for the arguments."""


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Return all entries by name: those that belong to no paper, those of `papers`, and those of plug-ins."""
    importlib.import_module("gpupc_impl.reporting.summary")
    for found in pkgutil.iter_modules(papers.__path__):
        importlib.import_module(f"{papers.__name__}.{found.name}")
    for plugin in plugins():
        importlib.import_module(plugin)
    return _ENTRIES
