"""The edges of a result as rows of a table, with their strengths if the tests can be repeated in a short time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.core.result import Skeleton
from gpupc_impl.views.html import Cell
from gpupc_impl.views.result import Result, edges_with_kind, n_edges, numbered_edges, skeleton_of
from gpupc_impl.views.strengths import edge_tests, strengths

if TYPE_CHECKING:
    import pandas

SIGNS = {
    "directed": "→",
    "undirected": "—",
    "conflict": "⤫",
    "bidirected": "↔",
    "circle-arrow": "o→",
    "circle-circle": "o—o",
    "circle-tail": "o—",
    "tail-circle": "—o",
}

TESTS_REPEATED, SECONDS_REPEATED = 200_000, 10.0
"""Upper bounds on the tests that are repeated for a table, and on the seconds that the search took for so many
tests."""

GIVEN_SHOWN = 6
"""Upper bound on the names of a conditioning set in a cell."""


def edge_rows(result: Result, most: int, tests: pandas.DataFrame | None = None) -> list[tuple[Cell, ...]]:
    """The rows of a table of the first edges, at most `most`, the header first.

    Args:
        tests: the strengths of all edges, as `repeated` returns them.
    """
    edges = edges_with_kind(result).head(most)
    largest = skeleton_of(result).pmax
    columns: dict[str, Sequence[Cell]] = {
        "source": edges["source"].tolist(),
        "": [SIGNS[kind] for kind in edges["kind"]],
        "target": edges["target"].tolist(),
    }
    if tests is not None:
        tests = tests.head(most)
        effect = tests.columns[-1]
        columns["p-value"] = [_number(value) for value in tests["p_value"]]
        columns[effect.replace("_", " ")] = [_number(value) for value in tests[effect]]
        columns["given"] = [_set(names) for names in tests["given"]]
    elif largest is not None:
        columns["p-value"] = [_number(largest[i, j]) for i, j, _ in numbered_edges(result)[:most]]
    if not isinstance(result, Skeleton):
        columns["kind"] = edges["kind"].tolist()
    return [tuple(columns), *zip(*columns.values(), strict=True)]


def repeated(result: Result) -> pandas.DataFrame | None:
    """The strengths of the edges, if their tests can be repeated in a short time; else None."""
    skeleton = skeleton_of(result)
    if skeleton.problem is None or not n_edges(result):
        return None
    tests = edge_tests(result)
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
