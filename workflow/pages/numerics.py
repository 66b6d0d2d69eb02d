"""The study of docs/numerics.md: how near to their threshold real decisions are, and what identical columns do.

``python -m workflow.pages.numerics nci-60 mcc br-51 s-aureus --copies mcc`` prints its tables; the data must be here
(datasets/README.md).
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import sys
from collections.abc import Iterator, Sequence

import numpy as np

import datasets
from baselines._graph import neighbour_lists
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import solve
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.reporting.tables import markdown
from workflow.pages import decisions

BOUNDS = (1e-12, 1e-9, 1e-6)
"""|r^2 / critical - 1| below which decisions are counted; those below the last are listed."""

MOST_LISTED = 1000


@dataclasses.dataclass(frozen=True)
class Nearness:
    """How near to their threshold the decisions of one search are.

    Attributes:
        tests: decisions, all levels.
        within: how many lie within each of `BOUNDS`.
        below, above: the largest residual variance that counts as none, and the smallest that does not.
        nearest: (i, j, S) of those within the last bound.
    """

    tests: int
    within: tuple[int, ...]
    below: float
    above: float
    nearest: tuple[tuple[int, int, tuple[int, ...]], ...]


def nearness(problem: GaussianProblem, found: Skeleton) -> Nearness:
    """Make every decision of the search again that found the skeleton."""
    squares = problem.correlation[np.triu_indices(problem.n_variables, 1)] ** 2
    margin = np.abs(squares / problem.critical_r_squared(0) - 1)
    within = np.array([np.count_nonzero(margin < bound) for bound in BOUNDS])
    pairs = np.stack(np.triu_indices(problem.n_variables, 1), axis=1)[margin < BOUNDS[-1]]
    nearest = [(*pair, ()) for pair in pairs.tolist()]
    tests, below, above = len(squares), -np.inf, np.inf
    for level in range(1, found.levels_run):
        graph = neighbour_lists(np.ascontiguousarray(found.adjacency_at(level)))
        listed = np.empty((MOST_LISTED, 2 + level), np.int64)
        limits = decisions.limits_of(problem, level)
        counts, made, kept, none, some = decisions.margins(
            problem.correlation, *graph, level, limits, np.array(BOUNDS), listed
        )
        within, tests = within + counts, tests + made
        below, above = max(below, none), min(above, some)
        nearest += [(i, j, tuple(members)) for i, j, *members in listed[:kept].tolist()]
    return Nearness(tests, tuple(within.tolist()), below, above, tuple(nearest))


def nearness_tables(names: Sequence[str], alpha: float) -> Iterator[str]:
    """Counts of the decisions of each data set, and what every program says of the nearest."""
    counts, verdicts = [], []
    for name in names:
        data = datasets.load(name, offline=True)
        problem = GaussianProblem.from_data(data.values, names=data.names, alpha=alpha)
        found = _search(problem)
        near = nearness(problem, found)
        assert near.tests == sum(found.tests_per_level), "the study made other tests than the search"
        shape = f"{problem.n_variables:,} x {problem.n_samples}"
        counts.append([name, shape, f"{near.tests:,}", *(f"{count:,}" for count in near.within[::-1])])
        counts[-1] += ["none" if near.below == -np.inf else f"{near.below:.1e}", f"{near.above:.1e}"]
        for i, j, members in near.nearest:
            said = ["separates" if says(problem, i, j, members) else "does not" for says in decisions.PROGRAMS.values()]
            given = ", ".join(problem.names[k] for k in members)
            verdicts.append([name, f"{problem.names[i]} - {problem.names[j]} given {{{given}}}", *said])
    header = ["data set", "variables x samples", "decisions", *(f"within {bound:g}" for bound in BOUNDS[::-1])]
    header += ["largest variance taken for none", "smallest taken for one"]
    yield markdown(header, counts, range(2, 8))
    yield markdown(["data set", f"decision within {BOUNDS[-1]:g}", *decisions.PROGRAMS], verdicts)


def copies_table(name: str, alpha: float) -> str:
    """Edges of a data set with identical columns by every program's rule and arithmetic, and why they differ."""
    values = datasets.load(name, offline=True).values
    problem = GaussianProblem.from_data(values, alpha=alpha)
    of_r = GaussianProblem.from_correlation(
        decisions.correlations_of_r(values), n_samples=problem.n_samples, alpha=alpha
    )
    answers = {}
    for correlations, asked in (("ours", problem), ("R's", of_r)):
        answers["ours", correlations] = _answer(asked)
        answers["cuPC's: ours with `residual_tolerance=0`", correlations] = _answer(
            dataclasses.replace(asked, residual_tolerance=0.0)
        )
        answers["pcalg's", correlations] = decisions.pcalg_answer(asked.correlation, problem.n_samples, alpha)
    first = answers["ours", "ours"]
    copies = (np.abs(problem.correlation) > 1 - 1e-9) & ~np.eye(problem.n_variables, dtype=bool)
    rows = []
    for (test, correlations), answer in answers.items():
        gone = np.argwhere(np.triu(first.adjacency & ~answer.adjacency)).tolist()
        new = np.argwhere(np.triu(answer.adjacency & ~first.adjacency)).tolist()
        why = collections.Counter(decisions.why_they_differ(problem, answer, first, i, j) for i, j in gone)
        why += collections.Counter(decisions.why_they_differ(problem, first, answer, i, j) for i, j in new)
        kept = np.count_nonzero(answer.adjacency & copies) // 2
        numbers = [np.count_nonzero(answer.adjacency) // 2, kept, len(gone), len(new)]
        reasons = [why[reason] for reason in ("no variance", "follows", "unexplained")]
        rows.append([test, correlations, *map(str, numbers + reasons)])
    header = ["test", "correlations", "edges", f"of {np.count_nonzero(copies) // 2} between copies", "gone", "new"]
    header += ["an endpoint without variance", "follows from such", "unexplained"]
    return markdown(header, rows, range(2, 9))


def _answer(problem: GaussianProblem) -> decisions.Answer:
    found = _search(problem)
    return decisions.Answer(found.adjacency, {pair: members for pair, members in found.sepsets.items() if members})


def _search(problem: GaussianProblem) -> Skeleton:
    return solve(problem, get_method("stable-serial"), None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.numerics", description=__doc__)
    parser.add_argument("sets", nargs="*", help="data sets whose decisions are counted")
    parser.add_argument("--copies", nargs="*", default=[], help="data sets with identical columns")
    parser.add_argument("--alpha", type=float, default=0.05)
    asked = parser.parse_args(arguments)
    try:
        tables = [*nearness_tables(asked.sets, asked.alpha)] if asked.sets else []
        tables += [copies_table(name, asked.alpha) for name in asked.copies]
    except datasets.DatasetUnavailable as error:
        sys.exit(f"error: {error}")
    print("\n\n".join(tables))


if __name__ == "__main__":
    main()
