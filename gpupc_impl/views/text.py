"""Results as text: the summary of a run, and the rows of its tables."""

from collections.abc import Callable, Sequence

import numpy as np

from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pag import ARROW, CIRCLE, PAG, TAIL
from gpupc_impl.views.result import Result, adjacency_of, n_edges, skeleton_of


class Text(str):
    """Text that Python's prompt shows without quotes and with line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summary(result: Result) -> Text:
    return Text("\n".join(summary_lines(result)))


def summary_lines(result: Result, names: str = "", seconds: float | None = None) -> list[str]:
    """Return the lines of `summary`.

    Args:
        names: a remark about the variables' names.
        seconds: the duration of the whole call; None if it was not measured.
    """
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
        degrees = adjacency_of(result).sum(axis=1)
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
