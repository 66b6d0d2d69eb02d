"""What the command line prints."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence

from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import method_packages
from gpupc_impl.core.result import Skeleton

OUTPUT_SUFFIXES = (".npz", ".csv", ".graphml")


def listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def text_table(rows: Sequence[Sequence[str]], justify: Callable[[str, int], str] = str.ljust) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(justify, row, widths)) for row in rows)
    return "\n".join(map(str.rstrip, lines))


def show_progress(level: Progress) -> None:
    print(
        f"level {level.level}: {level.edges:,} edges left, {level.tests:,} tests, {level.seconds:.2f} s",
        file=sys.stderr,
        flush=True,
    )


def summary(result: Skeleton | CPDAG, problem: Problem, seconds: float, named: bool) -> str:
    found = result.skeleton if isinstance(result, CPDAG) else result
    names = "" if named else f" (no names in the file: {found.names[0]} to {found.names[-1]})"
    lines = [
        f"variables: {len(found.names):,}{names}",
        f"samples: {problem.n_samples:,}",
        f"method: {found.facts['method']} on {found.facts['backend']}, alpha {problem.alpha:g}",
        f"edges: {found.n_edges:,}",
    ]
    if problem.fixed is not None:
        required, forbidden = len(problem.fixed.required), len(problem.fixed.forbidden)
        lines.append(f"known: {required:,} edge(s) required, {forbidden:,} forbidden")
    if isinstance(result, CPDAG):
        what = "bidirected" if result.conflict_kind == "bidirected" else "in conflict"
        lines.append(
            f"directions: {result.n_directed:,} directed, {result.n_undirected:,} undirected "
            f"({len(result.conflicts):,} of them {what})"
        )
    rows = [("level", "edges left", "tests", "seconds")]
    levels = zip(found.edges_per_level, found.tests_per_level, found.seconds_per_level, strict=True)
    rows += [
        (str(level), f"{edges:,}", f"{tests:,}", f"{took:.3f}") for level, (edges, tests, took) in enumerate(levels)
    ]
    lines += [
        text_table(rows, str.rjust),
        f"stopped: {found.stopped_because}",
        f"undefined tests: {found.undefined_tests:,}",
        f"pseudo-inverses: {found.pseudo_inverses:,}",
        f"seconds: {sum(found.seconds_per_level):.2f} in levels, {seconds:.2f} in all",
    ]
    return "\n".join(lines)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings as one line each, without the place in the code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: print(f"warning: {message}", file=sys.stderr)
        yield


@contextlib.contextmanager
def plain_forecasts(quiet: bool) -> Iterator[None]:
    """What methods say before they start: their plan, and the memory that it takes."""
    loggers = [] if quiet else [logging.getLogger(name) for name in method_packages()]
    levels, handler = [logger.level for logger in loggers], logging.StreamHandler()
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
