"""What the commands do: parsed arguments in, printed and written results out."""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

from gpupc_impl.api import prepare
from gpupc_impl.cli.output import OUTPUT_SUFFIXES, listed, show_progress, summary, text_table
from gpupc_impl.core.files import write_whole
from gpupc_impl.core.orientation import CPDAG, orient
from gpupc_impl.core.registry import methods
from gpupc_impl.core.solve import unavailable
from gpupc_impl.tables import numbers_by_column, read_table


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
    prepared = prepare(args.family, args.method, args.backend, args.device_memory_limit, options)
    if args.output is not None:
        _check_output(args.output, args.data)

    try:
        values, names = read_table(args.data, args.header, args.row_names, labels=prepared.family.data != "numbers")
    except OSError as error:
        raise UsageError(f"{args.data} cannot be read: {error.strerror or error}") from error
    if prepared.family.data == "both":
        values = numbers_by_column(values)
    start = time.perf_counter()
    problem = prepared.problem(
        values, alpha=args.alpha, max_level=args.max_level, names=names, n_samples=args.n_samples
    )
    result = prepared.solve(
        problem,
        separating_sets=args.separating_sets,
        pmax=args.pmax,
        progress=show_progress if sys.stderr.isatty() and not args.quiet else None,
    )
    if args.command == "pc":
        result = orient(result)
    seconds = time.perf_counter() - start
    if not args.quiet:
        print(summary(result, problem, seconds, named=names is not None))
    if isinstance(result, CPDAG) and result.has_directed_cycle:
        warnings.warn("the v-structures contradict each other: the arrows have a cycle", stacklevel=1)
    if args.output is not None:
        with write_whole(args.output) as part:
            result.save(part)
        if not args.quiet:
            print(f"written: {args.output}")


COMMANDS = {"methods": list_methods, "skeleton": search, "pc": search}


def _check_output(path: Path, data: Path) -> None:
    if path.suffix not in OUTPUT_SUFFIXES:
        raise UsageError(f"cannot write {path}: its name must end in {listed(OUTPUT_SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"cannot write {path}: permission denied")
    if path.exists() and data.exists() and path.samefile(data):
        raise UsageError(f"cannot write {path}: it is the data")
