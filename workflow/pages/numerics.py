"""Makes the tables of docs/numerics.md: distances of decisions from their threshold, and identical columns.

``python -m workflow.pages.numerics nci-60 mcc br-51 s-aureus --copies mcc`` prints the tables; the data must be on this
machine (datasets/README.md).
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
"""The bounds on |r^2 / critical - 1| below which decisions are counted; decisions below the last bound are listed."""

MOST_LISTED = 1000
"""The upper bound on the listed decisions of a level."""


@dataclasses.dataclass(frozen=True)
class Nearness:
    """How near the decisions of one search are to their threshold.

    Attributes:
        tests: the number of decisions of all levels.
        within: the number of decisions within each of `BOUNDS`.
        below, above: the largest residual variance that counts as zero, and the smallest that does not.
        nearest: (i, j, S) of the decisions within the last bound.
    """

    tests: int
    within: tuple[int, ...]
    below: float
    above: float
    nearest: tuple[tuple[int, int, tuple[int, ...]], ...]


def nearness(problem: GaussianProblem, skeleton: Skeleton) -> Nearness:
    """Repeat every decision of the search that found the skeleton."""
    squares = problem.correlation[np.triu_indices(problem.n_variables, 1)] ** 2
    margin = np.abs(squares / problem.critical_r_squared(0) - 1)
    within = np.array([np.count_nonzero(margin < bound) for bound in BOUNDS])
    pairs = np.stack(np.triu_indices(problem.n_variables, 1), axis=1)[margin < BOUNDS[-1]]
    nearest = [(*pair, ()) for pair in pairs.tolist()]
    tests, below, above = len(squares), -np.inf, np.inf
    for level in range(1, skeleton.levels_run):
        graph = neighbour_lists(np.ascontiguousarray(skeleton.adjacency_at(level)))
        listed = np.empty((MOST_LISTED, 2 + level), np.int64)
        limits = decisions.limits_of(problem, level)
        counts, level_tests, n_listed, largest_none, smallest_some = decisions.margins(
            problem.correlation, *graph, level, limits, np.array(BOUNDS), listed
        )
        within, tests = within + counts, tests + level_tests
        below, above = max(below, largest_none), min(above, smallest_some)
        nearest += [(i, j, tuple(members)) for i, j, *members in listed[:n_listed].tolist()]
    return Nearness(tests, tuple(within.tolist()), below, above, tuple(nearest))


def nearness_tables(names: Sequence[str], alpha: float) -> Iterator[str]:
    """Yield a table of each data set's decisions, and a table of every program's answer to the nearest ones."""
    counts, verdicts = [], []
    for name in names:
        data = datasets.load(name, offline=True)
        problem = GaussianProblem.from_data(data.values, names=data.names, alpha=alpha)
        skeleton = _search(problem)
        near = nearness(problem, skeleton)
        assert near.tests == sum(skeleton.tests_per_level), "the study made other tests than the search"
        shape = f"{problem.n_variables:,} x {problem.n_samples}"
        counts.append([name, shape, f"{near.tests:,}", *(f"{count:,}" for count in near.within[::-1])])
        counts[-1] += ["none" if near.below == -np.inf else f"{near.below:.1e}", f"{near.above:.1e}"]
        for i, j, members in near.nearest:
            answers = [separates(problem, i, j, members) for separates in decisions.PROGRAMS.values()]
            members_by_name = ", ".join(problem.names[k] for k in members)
            decision = f"{problem.names[i]} - {problem.names[j]} given {{{members_by_name}}}"
            verdicts.append([name, decision, *("separates" if answer else "does not" for answer in answers)])
    header = ["data set", "variables x samples", "decisions", *(f"within {bound:g}" for bound in BOUNDS[::-1])]
    header += ["largest variance taken for none", "smallest taken for one"]
    yield markdown(header, counts, range(2, 8))
    yield markdown(["data set", f"decision within {BOUNDS[-1]:g}", *decisions.PROGRAMS], verdicts)


def copies_table(name: str, alpha: float) -> str:
    """Return a table of the edges of a data set with identical columns by every program's rule and arithmetic, and of
    the reasons for the differences."""
    values = datasets.load(name, offline=True).values
    problem = GaussianProblem.from_data(values, alpha=alpha)
    of_r = GaussianProblem.from_correlation(
        decisions.correlations_of_r(values), n_samples=problem.n_samples, alpha=alpha
    )
    answers = {}
    for correlations, variant in (("ours", problem), ("R's", of_r)):
        answers["ours", correlations] = _answer(variant)
        answers["cuPC's: ours with `residual_tolerance=0`", correlations] = _answer(
            dataclasses.replace(variant, residual_tolerance=0.0)
        )
        answers["pcalg's", correlations] = decisions.pcalg_answer(variant.correlation, problem.n_samples, alpha)
    first = answers["ours", "ours"]
    copies = (np.abs(problem.correlation) > 1 - 1e-9) & ~np.eye(problem.n_variables, dtype=bool)
    rows = []
    for (test, correlations), answer in answers.items():
        removed = np.argwhere(np.triu(first.adjacency & ~answer.adjacency)).tolist()
        added = np.argwhere(np.triu(answer.adjacency & ~first.adjacency)).tolist()
        reasons = collections.Counter(decisions.why_they_differ(problem, answer, first, i, j) for i, j in removed)
        reasons += collections.Counter(decisions.why_they_differ(problem, first, answer, i, j) for i, j in added)
        between_copies = np.count_nonzero(answer.adjacency & copies) // 2
        numbers = [np.count_nonzero(answer.adjacency) // 2, between_copies, len(removed), len(added)]
        explained = [reasons[reason] for reason in ("no variance", "follows", "unexplained")]
        rows.append([test, correlations, *map(str, numbers + explained)])
    header = ["test", "correlations", "edges", f"of {np.count_nonzero(copies) // 2} between copies", "gone", "new"]
    header += ["an endpoint without variance", "follows from such", "unexplained"]
    return markdown(header, rows, range(2, 9))


def _answer(problem: GaussianProblem) -> decisions.Answer:
    skeleton = _search(problem)
    return decisions.Answer(
        skeleton.adjacency, {pair: members for pair, members in skeleton.sepsets.items() if members}
    )


def _search(problem: GaussianProblem) -> Skeleton:
    return solve(problem, get_method("stable-serial"), None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.numerics", description=__doc__)
    parser.add_argument("sets", nargs="*", help="data sets whose decisions are counted")
    parser.add_argument("--copies", nargs="*", default=[], help="data sets with identical columns")
    parser.add_argument("--alpha", type=float, default=0.05)
    options = parser.parse_args(arguments)
    try:
        tables = [*nearness_tables(options.sets, options.alpha)] if options.sets else []
        tables += [copies_table(name, options.alpha) for name in options.copies]
    except datasets.DatasetUnavailable as error:
        sys.exit(f"error: {error}")
    print("\n\n".join(tables))


if __name__ == "__main__":
    main()
