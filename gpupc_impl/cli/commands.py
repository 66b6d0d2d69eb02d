"""What the commands do: parsed arguments in, printed and written results out."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from gpupc_impl.api import prepare
from gpupc_impl.cli import records
from gpupc_impl.cli.output import OUTPUT_SUFFIXES, listed, show_progress, summary
from gpupc_impl.core.files import write_whole
from gpupc_impl.core.knowledge import BackgroundKnowledge, with_knowledge
from gpupc_impl.core.orientation import CPDAG, orient
from gpupc_impl.core.registry import methods
from gpupc_impl.core.solve import unavailable
from gpupc_impl.intake import fitting_family, take
from gpupc_impl.views import plots
from gpupc_impl.views.text import text_table


class UsageError(ValueError):
    """The command line or a file cannot be used; the message is all that the user sees."""


def list_methods(args: argparse.Namespace) -> None:
    found = methods(args.family)
    if not found:
        families = sorted({method.family for method in methods().values()})
        raise UsageError(f"no method is of family {args.family!r}; families: {', '.join(families)}")
    rows = [("method", "family", "backends", "available here", "parameters", "source")]
    reasons: dict[str, list[str]] = {}
    for name, method in sorted(found.items(), key=lambda item: (item[1].family, item[1].reference, item[0])):
        available = []
        for backend in method.backends:
            reason = unavailable(method, "auto" if backend == "cpu" else backend)
            if reason is None:
                available.append(backend)
            else:
                reasons.setdefault(f"{backend}: {reason}", []).append(name)
        parameters = " ".join(f"{key}={parameter.default}" for key, parameter in method.params.items()) or "-"
        here = ", ".join(available) or "no"
        rows.append((name, method.family, ", ".join(method.backends), here, parameters, method.source))
    print(text_table(rows))
    if reasons:
        print("\nNot available here:")
        for reason, names in reasons.items():
            print(f"  {reason} ({', '.join(names)})")


def search(args: argparse.Namespace) -> None:
    """The commands ``skeleton`` and ``pc``."""
    # Everything that can be checked without the data is checked before they are read.
    if args.correlation != (args.n_samples is not None):
        raise UsageError("--correlation and --n-samples go together: a correlation matrix, and its number of samples")
    options = dict(args.param)
    if len(options) != len(args.param):
        raise UsageError("a --param is given twice")
    knowledge = None if args.knowledge is None else _knowledge(args.knowledge)
    how = (args.method, args.backend, args.device_memory_limit, options, args.missing)
    prepared = prepare(args.family, *how)
    open_family = args.family == args.method == "auto"
    if args.output is not None:
        _check_output(args.output, args.data, OUTPUT_SUFFIXES)
    if args.report is not None:
        plots.require()
        _check_output(args.report, args.data, REPORT_SUFFIXES)

    try:
        table = take(
            args.data,
            kind=None if open_family else prepared.family.data,
            missing=args.missing,
            transpose=args.transpose,
            header=args.header,
            row_names=args.row_names,
            correlation=args.correlation,
        )
    except OSError as error:
        raise UsageError(f"{args.data} cannot be read: {error.strerror or error}") from error
    found = fitting_family(table, None if open_family else prepared.family.name)
    if found != prepared.family.name:
        prepared = prepare(found, *how)
    start = time.perf_counter()
    problem = prepared.problem(table, alpha=args.alpha, max_level=args.max_level, n_samples=args.n_samples)
    if knowledge is not None:
        problem = with_knowledge(problem, knowledge)
    result = prepared.solve(
        problem,
        separating_sets=args.separating_sets,
        pmax=args.pmax,
        progress=show_progress if sys.stderr.isatty() and not args.quiet else None,
    )
    result = dataclasses.replace(result, problem=problem)
    if args.command == "pc":
        result = orient(
            result, problem=problem, knowledge=knowledge, conflicts=args.conflicts, v_structures=args.v_structures
        )
    seconds = time.perf_counter() - start
    if not args.quiet:
        print(summary(result, seconds, named=table.names is not None))
    if isinstance(result, CPDAG) and result.has_directed_cycle:
        warnings.warn("the v-structures contradict each other: the arrows have a cycle", stacklevel=1)
    if args.output is not None:
        with write_whole(args.output) as part:
            result.save(part)
    if args.report is not None:
        with write_whole(args.report) as part:
            result.report(part)
    if not args.quiet:
        for path in filter(None, (args.output, args.report)):
            print(f"written: {path}")


REPORT_SUFFIXES = (".html", ".htm")


COMMANDS = {"methods": list_methods, "skeleton": search, "pc": search, "records": records.run}


def _knowledge(path: Path) -> BackgroundKnowledge:
    try:
        return BackgroundKnowledge.from_file(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _check_output(path: Path, data: Path, suffixes: Sequence[str]) -> None:
    if path.suffix not in suffixes:
        raise UsageError(f"cannot write {path}: its name must end in {listed(suffixes)}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"cannot write {path}: permission denied")
    if path.exists() and data.exists() and path.samefile(data):
        raise UsageError(f"cannot write {path}: it is the data")
