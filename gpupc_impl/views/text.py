"""Results as text: the summary of a run, and the rows of its tables, with edge strengths where they take seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pag import ARROW, CIRCLE, PAG, TAIL
from gpupc_impl.core.result import Skeleton
from gpupc_impl.views.result import LOOKS, Result, degrees_of, edges_with_kind, n_edges, numbered_edges, skeleton_of
from gpupc_impl.views.strengths import count_edge_tests, strengths

if TYPE_CHECKING:
    import pandas

Cell = str | tuple[str, float]  # the text of a cell, perhaps with the number by which a reader can sort it
TESTS_REPEATED, SECONDS_REPEATED = 200_000, 10.0  # the most tests, and seconds of search, that are repeated for a table
VARIABLES_REPEATED = 20_000  # of a graph whose tests are counted for that
GIVEN_SHOWN = 6  # upper bound on the names of a conditioning set in a cell


class Text(str):
    """Text that Python's prompt shows without quotes and with line breaks."""

    def __repr__(self) -> str:
        return str(self)


def summary(result: Result) -> Text:
    return Text("\n".join(summary_lines(result)))


def summary_lines(result: Result, names: str = "", seconds: float | None = None) -> list[str]:
    """Return the lines of `summary`, with a remark about names, and the seconds of the whole call if known."""
    skeleton = skeleton_of(result)
    lines = [f"{name}: {value}" for name, value in facts(result)]
    lines[0] += names
    whole = "" if seconds is None else f", {seconds:.2f} in all"
    return [
        *lines,
        text_table(level_rows(result), str.rjust),
        f"stopped: {skeleton.stopped_because}",
        f"undefined tests: {skeleton.undefined_tests:,}",
        f"pseudo-inverses: {skeleton.pseudo_inverses:,}",
        f"seconds: {sum(skeleton.seconds_per_level):.2f} in levels{whole}",
    ]


def facts(result: Result) -> list[tuple[str, str]]:
    """Return names and values of the request and the result; the number of variables comes first."""
    skeleton = skeleton_of(result)
    problem = skeleton.facts.get("problem", {})
    rows = [("variables", f"{len(skeleton.names):,}")]
    if "n_samples" in problem:
        remark = f" ({problem['remark']})" if "remark" in problem else ""
        rows.append(("samples", f"{problem['n_samples']:,}{remark}"))
    if "method" in skeleton.facts:
        method = f"{skeleton.facts['method']} on {skeleton.facts.get('backend', '?')}"
        rows.append(("method", method + (f", alpha {problem['alpha']:g}" if "alpha" in problem else "")))
    rows.append(("edges", f"{n_edges(result):,}"))
    if skeleton.problem is not None and (fixed := skeleton.problem.fixed) is not None:
        rows.append(("known", f"{len(fixed.required):,} edge(s) required, {len(fixed.forbidden):,} forbidden"))
    if "tiers_in_search" in problem:
        rows.append(("tiers", f"{problem['tiers_in_search']:,}, no set has a member later than both ends of its pair"))
    if isinstance(result, CPDAG):
        kind = "bidirected" if result.conflict_kind == "bidirected" else "in conflict"
        conflicts = f"{len(result.conflicts):,} of them {kind}"
        rows.append(("directions", f"{result.n_directed:,} directed, {result.n_undirected:,} undirected ({conflicts})"))
    if isinstance(result, PAG):
        later = f"{len(result.removed):,} edges of the skeleton removed"
        rows.append(("algorithm", f"{result.algorithm.upper()}, {later}"))
        marks = f"{result.count(ARROW):,} arrows, {result.count(TAIL):,} tails, {result.count(CIRCLE):,} circles"
        rows.append(("marks", f"{marks} ({len(result.conflicts):,} of them in conflict)"))
    if n_edges(result):
        degrees = degrees_of(result)
        hub, isolated = int(np.argmax(degrees)), int(np.count_nonzero(degrees == 0))
        largest = f"at most {degrees[hub]} ({skeleton.names[hub]!r})"
        rows.append(("neighbours", f"{degrees.mean():.2f} on average, {largest}; {isolated:,} without any"))
    return rows


def level_rows(result: Result) -> list[tuple[str, ...]]:
    """Return the rows of a table of levels, the header first."""
    skeleton = skeleton_of(result)
    levels = enumerate(zip(skeleton.edges_per_level, skeleton.tests_per_level, skeleton.seconds_per_level, strict=True))
    return [
        ("level", "edges left", "tests", "seconds"),
        *((str(level), f"{edges:,}", f"{tests:,}", f"{seconds:.3f}") for level, (edges, tests, seconds) in levels),
    ]


def text_table(rows: Sequence[Sequence[str]], justify: Callable[[str, int], str] = str.ljust) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(justify, row, widths)) for row in rows)
    return "\n".join(map(str.rstrip, lines))


def edge_rows(result: Result, most: int, tests: pandas.DataFrame | None = None) -> list[tuple[Cell, ...]]:
    """The rows of a table of at most `most` edges, the header first; `tests` are strengths as of `repeated`."""
    edges = edges_with_kind(result).head(most)
    largest = skeleton_of(result).pmax
    columns: dict[str, Sequence[Cell]] = {
        "source": edges["source"].tolist(),
        "": [LOOKS[kind]["sign"] for kind in edges["kind"]],
        "target": edges["target"].tolist(),
    }
    if tests is not None:
        tests = tests.head(most)
        effect = tests.columns[-1]
        columns["p-value"] = list(map(_number, tests["p_value"]))
        columns[effect.replace("_", " ")] = list(map(_number, tests[effect]))
        columns["given"] = list(map(_set, tests["given"]))
    elif largest is not None:
        columns["p-value"] = [_number(largest[i, j]) for i, j, _ in numbered_edges(result)[:most]]
    if not isinstance(result, Skeleton):
        columns["kind"] = edges["kind"].tolist()
    return [tuple(columns), *zip(*columns.values(), strict=True)]


def repeated(result: Result) -> pandas.DataFrame | None:
    """The strengths of the edges, if their tests can be repeated in a short time; else None."""
    skeleton = skeleton_of(result)
    is_small = 0 < n_edges(result) <= TESTS_REPEATED and len(skeleton.names) <= VARIABLES_REPEATED
    if skeleton.problem is None or not is_small:
        return None
    tests = count_edge_tests(result)
    seconds = sum(skeleton.seconds_per_level) * tests / max(1, sum(skeleton.tests_per_level))
    if tests > TESTS_REPEATED or seconds > SECONDS_REPEATED:
        return None
    backend = skeleton.facts.get("backend", "auto")
    return strengths(result, "edges", backend if backend in ("cuda", "host") else "auto", progress=False)


def _number(value: float) -> Cell:
    return ("", np.inf) if np.isnan(value) else (f"{value:.3g}", value)


def _set(names: Sequence[str]) -> str:
    more = f", … {len(names) - GIVEN_SHOWN} more" if len(names) > GIVEN_SHOWN else ""
    return ", ".join(names[:GIVEN_SHOWN]) + more if names else "∅"
