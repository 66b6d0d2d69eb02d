"""The way from records to a table: runs become cells, cells of a setting, a method or a paper a line, lines a table.

A cell has a text, and the row of the CSV with the same number. Notes below a table name the machines of runs, explain
marks, and say why numbers are missing.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from gpupc_impl.reporting.runs import STALE, Runs, VerifiedRecord, grouped, kernels_of
from gpupc_impl.reporting.style import LABELS
from gpupc_impl.reporting.tables import Table

INFINITY = "∞"

QUALIFIERS = {
    "paper": "counting samples",
    "paper-in-kernel": "tables in the kernel",
    "paper-wide": "32-bit codes",
    "pseudo": "Algorithm 7",
}
"""Words for parts of a setting's name that follow the name of its method; parts that are not here stay as they are."""

VERIFICATION_MARKS = {
    **{"alone": " °", "random": " ~", "near-threshold": " ≈", "convention": " ≈"},
    **{"explained": " ≠", "not-verified": " ?", "unexplained": " ✗"},
}
"""The marks of the verification's statuses other than ``equal``, from best to worst."""

MARK_NOTES = {
    " °": "No other setting finished on the data set, so there is no skeleton to compare with.",
    " ≈": "The skeleton differs from the reference's in explained edges; see verification.csv.",
    " ~": "The method draws its own random numbers, and its skeleton differs from the reference's.",
    " ?": "The run's verification is not recorded, so no mean includes it.",
    " ✗": "The skeleton differs from the reference's without an explanation; see verification.csv.",
}

STALE_NOTE = f"{STALE} Stale: the code that made it has changed since."
_MARKS = ["", *VERIFICATION_MARKS.values()]


def label(method: str, backend: str = "cpu") -> str:
    """Return the name of a method or setting in tables and figures, followed by the backend if kernels ran.

    A setting has the name of its method and what its own name adds: ``cupc-e-first-come`` is "cuPC-E, first-come", and
    ``cupc-e-2-32`` is "cuPC-E-2-32", as in the paper. Other names stay as they are.
    """
    where = f" ({backend})" if backend != "cpu" else ""
    known = max((name for name in LABELS if f"{method}-".startswith(f"{name}-")), key=len, default=None)
    if known is None or method == known:
        return LABELS.get(method, method) + where
    added = method.removeprefix(f"{known}-")
    numbers = added.replace("-", "").isdigit()
    return LABELS[known] + (f"-{added}" if numbers else f", {QUALIFIERS.get(added, added)}") + where


def number(value: float, digits: int = 3) -> str:
    """Format a number with this many significant digits, without exponents: 0.0123, 4.56, 1,297."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


NAMED = 3  # the most data sets that a text names for one reason; the CSV has all


def few(names: Sequence[str], most: int | None = NAMED) -> str:
    more = len(names) - len(names[:most])
    return f"{', '.join(names[:most])}{f' and {more} more' * bool(more)}"


class AtLeast(float):
    """A number of ours that is a lower bound, because the slower method hit its time limit; so are its ratios."""

    def __truediv__(self, other: float) -> "AtLeast":
        return AtLeast(float(self) / other)


def median(values: Sequence[float]) -> float:
    """Return the median, which is a lower bound if a value is one."""
    bounded = any(isinstance(value, AtLeast) for value in values)
    return (AtLeast if bounded else float)(statistics.median(values))


def count(value: Any) -> str:
    """Format an integer; None and the empty text of a CSV become a dash."""
    return "–" if value in (None, "") else f"{int(value):,}"


def status_word(status: str) -> str:
    return {"skipped": "not run"}.get(status, status)


def time_cell(run: VerifiedRecord, **words: str) -> str:
    """Format the median with its band, or why there is none; `words` are texts for statuses (``oom="∞"``)."""
    if (status := "oom" if run.out_of_memory else run.status) in words:
        return words[status]
    if run.status == "timeout":
        return f"> {number(run.limits.time_s)} †"
    if run.median is None:
        return status_word(run.status)
    band = f" ({number(run.low)}–{number(run.high)})" if run.repeats > 1 else ""
    return f"{number(run.median)}{band}{mark(run)}"


def mark(*runs: VerifiedRecord | None) -> str:
    """Return the marks of a cell: for the worst verification other than ``equal`` among its runs, and for a stale run.
    A cell has no number, and therefore no mark, if one of its runs is missing."""
    if None in runs:
        return ""
    shown = [run for run in runs if run and run.median is not None]
    worst = max(("", *(VERIFICATION_MARKS.get(run.verification, "") for run in shown)), key=_MARKS.index)
    return worst + (f" {STALE}" if any(run.stale for run in shown) else "")


@dataclasses.dataclass(frozen=True)
class Speedup:
    """A ratio of two times, which is a bound (``">"`` or ``"<"``) if a run hit its time limit. Without a ratio, `why`
    is the reason, and `value` None."""

    value: float | None
    bound: str = ""
    why: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return self.why
        return f"{self.bound + ' ' if self.bound else ''}{number(self.value)}×{' †' if self.bound else ''}"

    @property
    def facts(self) -> dict[str, Any]:
        """The columns of a CSV."""
        return {"speedup": "inf" if self.why == INFINITY else self.value, "bound": self.bound}


Pair = tuple[VerifiedRecord | None, VerifiedRecord | None]  # a slow and a fast run, either of which may be missing


def speedup(slow: VerifiedRecord | None, fast: VerifiedRecord | None) -> Speedup:
    """Return how many times faster ``fast`` is than ``slow``."""
    if slow is None or fast is None or slow.status == fast.status == "timeout":
        return Speedup(None, why="–")
    ends = [run.limits.time_s if run.status == "timeout" else run.median for run in (slow, fast)]
    if None in ends:
        return Speedup(None, why=status_word((fast if fast.median is None else slow).status))
    return Speedup(ends[0] / ends[1], {slow.status: ">", fast.status: "<"}.get("timeout", ""))


def levels_speedup(slow: VerifiedRecord | None, fast: VerifiedRecord | None) -> Speedup:
    both = [run.levels_median if run else None for run in (slow, fast)]
    return Speedup(both[0] / both[1] if both[0] and both[1] else None, why="–")


def geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


# --- lines -----------------------------------------------------------------------------------------------------------
class Cell(NamedTuple):
    """A cell: its text in Markdown and HTML, and its row in the CSV, if it has one."""

    text: str
    row: Mapping[str, Any] | None = None


class Line(NamedTuple):
    """A line of a table: the texts of its first columns, and cells by the key of their column."""

    head: Sequence[str]
    cells: Mapping[Any, Cell]


def csv_row(run: VerifiedRecord) -> dict[str, Any]:
    """Return the columns of a run, which are the same in every CSV."""
    result = run.result
    about = ("dataset", "setting", "method", "backend", "separating_sets", "machine")
    return {
        **{name: getattr(run, name) for name in about},
        **{"median_s": run.median, "low_s": run.low, "high_s": run.high, "levels_s": run.levels_median},
        **{"limit_s": run.limits.time_s, "status": run.status, "verification": run.verification, "edges": run.edges},
        "tests_per_level": " ".join(map(str, result.tests_per_level)) if result else "",
        "edges_per_level": " ".join(map(str, result.edges_per_level)) if result else "",
        **{"device_bytes": run.peak_bytes.device, "device_limit_bytes": run.limits.device_memory_bytes},
        "process_bytes": run.peak_bytes.process,
    }


def rows_of_sweeps(runs: Runs, sweeps: Mapping[str, Mapping[str, float]], value: str) -> list[dict[str, Any]]:
    """Return the rows of a figure with a panel for each sweep; the column `value` has the varied value."""
    return [
        {"panel": panel, value: graphs[run.dataset], **csv_row(run)}
        for panel, graphs in sweeps.items()
        for run in runs
        if run.dataset in graphs
    ]


def times(
    runs: Iterable[VerifiedRecord | None],
    text: Callable[[VerifiedRecord], str] = time_cell,
    at: Callable[[VerifiedRecord], Any] = lambda run: run.dataset,
    **facts: Any,
) -> dict[Any, Cell]:
    """Return the cells of runs' times, by data set or `at`; `facts` are more columns, or functions of a run."""
    return {at(run): Cell(text(run), {"source": "ours", **_of(run, facts), **csv_row(run)}) for run in runs if run}


def _of(run: VerifiedRecord, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact(run) if callable(fact) else fact for name, fact in facts.items()}


def ratios(pairs: Mapping[Any, Pair], of: Callable[..., Speedup] = speedup, **facts: Any) -> dict[Any, Cell]:
    """Return the cells of how many times faster the second run of each pair is than the first, by `of`."""
    cells = {}
    for column, pair in pairs.items():
        ratio = of(*pair)
        text = str(ratio) + (mark(*pair) if ratio.value is not None else "")
        own = {**_of(pair[1], facts), **csv_row(pair[1])} if pair[1] else {}
        cells[column] = Cell(text, {"source": "ours", **own, **ratio.facts} if own else None)
    return cells


def without_rows(cells: Mapping[Any, Cell]) -> dict[Any, Cell]:
    """Return cells whose numbers stand in the rows of other cells."""
    return {column: cell._replace(row=None) for column, cell in cells.items()}


def printed(
    rows: Iterable[Mapping[str, str]],
    at: Callable[[Mapping[str, str]], Any] = lambda row: row["dataset"],
    text: Callable[[Mapping[str, str]], str] = lambda row: f"{Decimal(row['value']):,}",
) -> dict[Any, Cell]:
    """Return the cells of a paper's numbers, by data set or by what `at` says of a row of results/reported."""
    cells = {}
    for row in rows:
        named = {"machine" if name == "hardware" else name: row[name] for name in row if name != "citation"}
        cells[at(row)] = Cell(text(row), {"source": "paper", **named})
    return cells


def of_lines(
    title: str,
    head: Sequence[str],
    columns: Mapping[Any, str],
    lines: Sequence[Line],
    notes: Sequence[str],
    runs: Runs = (),
    left: Sequence[int] = (0, 1),
    missing: str = "–",
) -> Table:
    """Return the table of some lines, whose heads stand in the columns `head`; a line that shows nothing is left out,
    and `missing` stands where a line has no cell. Below the notes follow the `places` and `remarks` of the runs."""
    rows = [[*line.head, *(line.cells.get(key, Cell(missing)).text for key in columns)] for line in lines]
    rows = [row for row in rows if not set(row[len(head) :]) <= {"–", "not run", missing}]
    plain = [cell.row for line in lines for cell in line.cells.values() if cell.row]
    notes = [*notes, *places(runs), *remarks(runs)]
    return Table(title, [*head, *columns.values()], rows, notes, plain or [{"source": ""}], left)


# --- tables of data sets ----------------------------------------------------------------------------------------------
ABOUT = ("licence", "citation", "note", "sha256", "categories_declared", "categories_observed", "constant_variables")
"""Facts of a data set that only the CSV has."""


def datasets_table(
    title: str,
    problems: Sequence[Mapping[str, Any]],
    reported: Iterable[Mapping[str, str]],
    shape: Mapping[str, tuple[str, str]],
    own: Mapping[str, Callable[[Mapping[str, Any]], str]],
    notes: Sequence[str],
) -> Table:
    """Return a table of the data sets of a family: the numbers that a paper states (`shape`, by the key of our facts
    the heading and the column in results/reported), columns with a function of a data set's facts, and the source."""
    paper = {row["dataset"]: row for row in reported}
    own = {**own, "source": lambda facts: facts.get("source") or facts.get("url") or "–"}
    rows, plain = [], []
    for facts in problems:
        theirs, ours = paper.get(facts["name"], {}), facts if facts["available"] else {}
        numbers = [count(found) for key, (_, name) in shape.items() for found in (ours.get(key), theirs.get(name))]
        status = "available" if facts["available"] else "not available"
        more = [of(facts if facts["available"] else {**facts, **dict.fromkeys(ABOUT[4:])}) for of in own.values()]
        rows.append([theirs.get("label") or facts["name"], status, *numbers, *more])
        plain.append(
            {"dataset": facts["name"], "available": facts["available"], "alpha": facts["alpha"]}
            | {name: ours.get(key) for key, (_, name) in shape.items()}
            | {f"{name}_reported": theirs.get(name) for _, name in shape.values()}
            | {"true_edges": None if facts.get("true_edges") is None else len(facts["true_edges"])}
            | {"source": facts.get("source") or facts.get("url")}
            | {key: facts.get(key) for key in ABOUT}
            | {"why_not": facts["why"]}
        )
    symbols = [text for symbol, _ in shape.values() for text in (symbol, f"{symbol} (paper)")]
    header = ["data set", "status", *symbols, *own]
    text = [place for place, name in enumerate(header) if name in ("data set", "status", "licence", "source")]
    reasons = [facts["why"] for facts in problems if facts["why"]]
    return Table(title, header, rows, [*notes, *reasons], plain, left=text)


# --- notes -----------------------------------------------------------------------------------------------------------
RATIOS = "The paper's hardware is not ours: compare ratios, not times."


def places(runs: Runs) -> list[str]:
    """Return a note on the machines of kernels and one on those of references, with the settings that ran there."""
    notes = []
    for backend in dict.fromkeys([kernels_of(runs), "cpu"]):
        timed = [run for run in runs if run.backend == backend and run.median is not None]
        if settings := grouped((run.machine, label(run.setting)) for run in timed):
            where = "; ".join(f"{place} ({' / '.join(names)})" for place, names in settings.items())
            notes.append(f"{'CPU references' if backend == 'cpu' else f'Backend {backend}'}: {where}.")
    return notes


def remarks(runs: Iterable[VerifiedRecord]) -> list[str]:
    """Return notes that explain the marks of these runs, and why runs have no time."""
    runs = list(runs)
    used = {VERIFICATION_MARKS.get(run.verification) for run in runs if run.median is not None}
    notes = []
    if any(run.status == "timeout" for run in runs):
        notes.append("† A time limit was reached: the number is a bound, which no mean includes.")
    notes += [f"{mark.strip()} {note}" for mark, note in MARK_NOTES.items() if mark in used]
    explained = [run for run in runs if run.median is not None and run.verification == "explained"]
    differing = grouped((run.known_difference, f"{run.dataset}: {label(run.setting)}") for run in explained)
    text = "the skeleton differs from the reference's, and no mean includes it"
    notes += [f"≠ {'; '.join(where)}: {text}: {why}." for why, where in differing.items()]
    if any(run.stale for run in runs if run.median is not None):
        notes.append(STALE_NOTE)
    failed = [run for run in runs if run.median is None and run.why]
    by_run = grouped(((run.dataset, status_word(run.status), run.why), label(run.setting)) for run in failed)
    reasons = grouped(((end, why, tuple(settings)), dataset) for (dataset, end, why), settings in by_run.items())
    return notes + [f"{few(sets)} {end}: {' / '.join(its)}: {why}" for (end, why, its), sets in reasons.items()]


def hardware(reported: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the paper's hardware, one line per machine with its methods."""
    methods = grouped((row["hardware"], row["method"]) for row in reported)
    return [f"{', '.join(names)}: {where}" for where, names in methods.items()]


def stated(values: Iterable[tuple[str, Iterable[Any]]]) -> str:
    """Format the symbols that have values, for example "n = 100 or 1,000, perm = 50"."""
    named = ((symbol, " or ".join(f"{value:,}" for value in found)) for symbol, found in values)
    return ", ".join(f"{symbol} = {words}" for symbol, words in named if words)
