"""Results in words: the summary of a run, and what a notebook shows."""

from __future__ import annotations

import html as markup
from collections.abc import Callable, Sequence

import numpy as np

from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.views.result import Result, edges_with_kind, skeleton_of

EDGES_SHOWN = 10
"""Edges in a notebook's table."""

SIGNS = {"directed": "→", "undirected": "—", "conflict": "⤫", "bidirected": "↔"}


class Text(str):
    """Text that Python's prompt shows as it is, lines as lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summary(result: Result) -> Text:
    return Text("\n".join(summary_lines(result)))


def summary_lines(result: Result, names: str = "", seconds: float | None = None) -> list[str]:
    """The lines of `summary`.

    Args:
        names: what is to be said of the variables' names.
        seconds: what the whole call took, where that was measured.
    """
    found = skeleton_of(result)
    lines = [f"{what}: {said}" for what, said in facts(result)]
    lines[0] += names
    whole = "" if seconds is None else f", {seconds:.2f} in all"
    return [
        *lines,
        text_table(level_rows(result), str.rjust),
        f"stopped: {found.stopped_because}",
        f"undefined tests: {found.undefined_tests:,}",
        f"pseudo-inverses: {found.pseudo_inverses:,}",
        f"seconds: {sum(found.seconds_per_level):.2f} in levels{whole}",
    ]


def facts(result: Result) -> list[tuple[str, str]]:
    """What was searched and found, by name; the number of variables is the first."""
    found = skeleton_of(result)
    problem = found.facts.get("problem", {})
    degrees = found.adjacency.sum(axis=1)
    said = [("variables", f"{len(found.names):,}")]
    if "n_samples" in problem:
        said.append(("samples", f"{problem['n_samples']:,}"))
    if "method" in found.facts:
        how = f"{found.facts['method']} on {found.facts.get('backend', '?')}"
        said.append(("method", how + (f", alpha {problem['alpha']:g}" if "alpha" in problem else "")))
    said.append(("edges", f"{found.n_edges:,}"))
    if found.problem is not None and (fixed := found.problem.fixed) is not None:
        said.append(("known", f"{len(fixed.required):,} edge(s) required, {len(fixed.forbidden):,} forbidden"))
    if isinstance(result, CPDAG):
        what = "bidirected" if result.conflict_kind == "bidirected" else "in conflict"
        conflicts = f"{len(result.conflicts):,} of them {what}"
        said.append(("directions", f"{result.n_directed:,} directed, {result.n_undirected:,} undirected ({conflicts})"))
    most = int(np.argmax(degrees)) if len(degrees) else 0
    if found.n_edges:
        alone = int(np.count_nonzero(degrees == 0))
        said.append(
            (
                "neighbours",
                f"{degrees.mean():.2f} on average, at most {degrees[most]} ({found.names[most]!r}); "
                f"{alone:,} without any",
            )
        )
    return said


def level_rows(result: Result) -> list[tuple[str, ...]]:
    """A table of levels, its header first."""
    found = skeleton_of(result)
    levels = zip(found.edges_per_level, found.tests_per_level, found.seconds_per_level, strict=True)
    return [
        ("level", "edges left", "tests", "seconds"),
        *((str(level), f"{edges:,}", f"{tests:,}", f"{took:.3f}") for level, (edges, tests, took) in enumerate(levels)),
    ]


def text_table(rows: Sequence[Sequence[str]], justify: Callable[[str, int], str] = str.ljust) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(justify, row, widths)) for row in rows)
    return "\n".join(map(str.rstrip, lines))


# --- HTML ------------------------------------------------------------------------------------------------------------


def html(result: Result) -> str:
    """What was found, the levels, and the first edges."""
    kind = "CPDAG" if isinstance(result, CPDAG) else "Skeleton"
    rows = edge_rows(result, EDGES_SHOWN)
    left = skeleton_of(result).n_edges - len(rows) + 1
    more = f"<p>… and {left:,} more: <code>.to_frame()</code>, <code>.plot()</code></p>" if left else ""
    return (
        f"<div><b>{kind}</b>{html_facts(facts(result))}{html_table(level_rows(result))}{html_table(rows)}{more}</div>"
    )


def edge_rows(result: Result, most: int) -> list[tuple[str, ...]]:
    """A table of the first edges, its header first."""
    edges = edges_with_kind(result).head(most).itertuples(index=False, name=None)
    return [("source", "", "target", "kind"), *((one, SIGNS[kind], other, kind) for one, other, kind in edges)]


def html_facts(said: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><th>{markup.escape(what)}</th><td>{markup.escape(value)}</td></tr>" for what, value in said)
    return f"<table><tbody>{rows}</tbody></table>"


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is the header."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{markup.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows[1:])
    return f"<table><thead>{line(rows[0], 'th')}</thead><tbody>{body}</tbody></table>"
