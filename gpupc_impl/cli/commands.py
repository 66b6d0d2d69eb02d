"""The commands: each command takes parsed arguments, and prints and writes results."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from gpupc_impl.cli import records
from gpupc_impl.cli.compiling import fill_cache
from gpupc_impl.cli.output import OUTPUT_SUFFIXES, UsageError, listed, show_progress, summary, visible
from gpupc_impl.core.colliders import AUTO, default_rule
from gpupc_impl.core.knowledge import BackgroundKnowledge
from gpupc_impl.core.orientation import CPDAG, orient
from gpupc_impl.core.registry import methods
from gpupc_impl.core.solve import unavailable
from gpupc_impl.latent.inference import Limits, check_algorithm, find_pag
from gpupc_impl.search import SearchRequest
from gpupc_impl.tables import TableFormat
from gpupc_impl.time_series.parameters import SUFFIXES as SERIES_SUFFIXES
from gpupc_impl.views.text import text_table


def list_methods(args: argparse.Namespace) -> None:
    listed_methods = methods(args.family)
    if not listed_methods:
        families = sorted({method.family for method in methods().values()})
        raise UsageError(f"no method is of family {args.family!r}; families: {', '.join(families)}")
    rows = [("method", "family", "backends", "available here", "parameters", "source")]
    reasons: dict[str, list[str]] = {}
    for name, method in sorted(listed_methods.items(), key=lambda item: (item[1].family, item[1].reference, item[0])):
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
    """Run the command ``skeleton``, ``pc`` or ``fci``."""
    request = _request(args)
    if args.command == "fci":
        limits = Limits(args.max_possible_d_sep, args.max_path_length)
        check_algorithm(args.algorithm, limits)
    # Whether the output can be written is checked before the data are read, since reading may take long.
    if args.output is not None:
        _check_output(args.output, args.data, OUTPUT_SUFFIXES)
    if args.report is not None:
        from gpupc_impl.views import plots  # imports matplotlib

        plots.require()
        _check_output(args.report, args.data, REPORT_SUFFIXES)
    try:
        ready = request.open(args.data if args.missing == "imputed" else args.data[0])
    except OSError as error:
        raise UsageError(f"{error.filename or args.data[0]} cannot be read: {error.strerror or error}") from error
    start = time.perf_counter()
    with ready:
        result = ready.solve(ready.problem())
    if args.command == "pc":
        result = orient(
            result,
            problem=result.problem,
            knowledge=request.knowledge,
            conflicts=args.conflicts,
            v_structures=default_rule(result.problem) if args.v_structures == AUTO else args.v_structures,
        )
    if args.command == "fci":
        options = {"limits": limits, "knowledge": request.knowledge, "backend": args.backend}
        result = find_pag(result, result.problem, args.algorithm, **options)
    seconds = time.perf_counter() - start - ready.compile_seconds
    if isinstance(result, CPDAG) and result.has_directed_cycle:
        warnings.warn("the v-structures contradict each other: the arrows have a cycle", stacklevel=1)
    if args.output is not None:
        result.save(args.output)
    if args.report is not None:
        result.report(args.report)
    if not args.quiet:
        print(visible(f"read: {ready.reading['table']}; {ready.reading['test']}"))
        if ready.compile_seconds >= COMPILING_NAMED:
            print(f"compiling kernels, once: {ready.compile_seconds:.2f} s, beside the time below")
        print(visible(summary(result, seconds, named=ready.source.names is not None)))
        for path in filter(None, (args.output, args.report)):
            print(f"written: {path}")


def time_series(args: argparse.Namespace) -> None:
    """Run the command ``pcmci``."""
    from gpupc_impl.time_series.search import pcmci  # imported here, since other commands do not need it

    if args.output is not None:
        _check_output(args.output, args.data, SERIES_SUFFIXES)
    levels = args.pc_alpha or ["auto"]
    try:
        graph = pcmci(
            args.data if len(args.data) > 1 else args.data[0],
            pc_alpha=levels if len(levels) > 1 else levels[0],
            **{name: getattr(args, name) for name in _PCMCI_ARGUMENTS},
        )
    except OSError as error:
        raise UsageError(f"{error.filename or args.data[0]} cannot be read: {error.strerror or error}") from error
    if args.output is not None:
        graph.save(args.output)
    if not args.quiet:
        facts = graph.facts
        print(
            f"{facts['method']}, {facts['test']}: {facts['tests']:,} tests of {facts['n_samples']:,} samples in "
            f"{facts['seconds']:.2f} s on backend {facts['backend']}"
        )
        frame = graph.to_frame()
        rows = [(*row[:4], f"{row[4]:.3f}", f"{row[5]:.2g}") for row in frame.itertuples(index=False)]
        print(visible(text_table([tuple(frame.columns), *(tuple(map(str, row)) for row in rows)])))
        if args.output is not None:
            print(f"written: {args.output}")


_PCMCI_ARGUMENTS = ("tau_max", "tau_min", "alpha", "contemporaneous", "test", "collider_rule", "correction", "backend")


def _request(args: argparse.Namespace) -> SearchRequest:
    """Return the request that the command line's arguments describe; arguments and attributes of the same name
    correspond."""
    if args.correlation != (args.n_samples is not None):
        raise UsageError("--correlation and --n-samples go together: a correlation matrix, and its number of samples")
    if len(args.data) > 1 and args.missing != "imputed":
        raise UsageError(f"{len(args.data)} tables are given; several are for --missing imputed alone")
    options = dict(args.param)
    if len(options) != len(args.param):
        raise UsageError("a --param is given twice")
    attributes = {field.name for field in dataclasses.fields(SearchRequest)}
    plain = {name: value for name, value in vars(args).items() if name in attributes}
    return SearchRequest(
        **plain | {"knowledge": None if args.knowledge is None else _knowledge(args.knowledge)},
        options=options,
        form=TableFormat(**{field.name: getattr(args, field.name) for field in dataclasses.fields(TableFormat)}),
        progress=show_progress if sys.stderr.isatty() and not args.quiet else False,
    )


REPORT_SUFFIXES = (".html", ".htm")
COMPILING_NAMED = 0.05  # seconds of compiling from which they are reported; reading the cache takes less
COMMANDS = {
    "compile": fill_cache,
    "methods": list_methods,
    "skeleton": search,
    "pc": search,
    "fci": search,
    "pcmci": time_series,
    "records": records.run,
}


def _knowledge(path: Path) -> BackgroundKnowledge:
    try:
        return BackgroundKnowledge.from_file(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _check_output(path: Path, data: Sequence[Path], suffixes: Sequence[str]) -> None:
    if path.suffix not in suffixes:
        raise UsageError(f"cannot write {path}: its name must end in {listed(suffixes)}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"cannot write {path}: permission denied")
    if path.exists() and any(table.exists() and path.samefile(table) for table in data):
        raise UsageError(f"cannot write {path}: it is the data")
