"""The command line: ``python -m gpupc_impl methods``, ``skeleton DATA`` and ``pc DATA``.

The library stands alone, so a user's file is read here and not with the workflow's readers.
"""

from __future__ import annotations

import argparse
import bz2
import collections
import contextlib
import csv
import gzip
import itertools
import logging
import lzma
import os
import re
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpupc_impl
from gpupc_impl.api import pc, skeleton
from gpupc_impl.backends import BACKENDS, BackendUnavailable, DeviceMemoryError, KernelCompilationError
from gpupc_impl.core.family import families, get_family
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import SEPARATING_SETS, InvalidParameter, UnknownMethod, get_method, methods
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import choose_method, open_method_backend, unavailable

OUTPUT_SUFFIXES = (".npz", ".csv", ".graphml")
FORECASTING = ("out_of_core", "discrete")
"""Packages whose methods forecast the memory that they take."""

SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
DELIMITERS = "\t;, "
"""In order of preference: a cell may well hold a comma when a semicolon is there, too."""

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
NOT_A_NUMBER = "is not a number"
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


class UsageError(ValueError):
    """The command line or a file cannot be used; the message is all that the user sees."""


EXPECTED = (
    UsageError,
    InvalidProblem,
    InvalidParameter,
    UnknownMethod,
    BackendUnavailable,
    DeviceMemoryError,
    KernelCompilationError,
    OSError,
)
"""Errors whose message is enough; any other is a fault of ours."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 1 for a fault of ours, 2 for what the user can mend, 130 for Ctrl-C.

    With ``GPUPC_DEBUG=1`` in the environment errors keep their traceback.
    """
    debug = os.environ.get("GPUPC_DEBUG") == "1"
    try:
        args = _parser().parse_args(argv)
        with _plain_warnings(), _plain_forecasts(getattr(args, "quiet", True)):
            args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except EXPECTED as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if debug:
            raise
        print(f"error: {type(error).__name__}: {error} (GPUPC_DEBUG=1 shows where)", file=sys.stderr)
        return 1
    return 0


# --- arguments -------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> None:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m gpupc_impl", description=gpupc_impl.__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=gpupc_impl.__version__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    listing = commands.add_parser("methods", help="list the methods, and which can run here")
    listing.add_argument("--family", help="only methods of this family, such as gaussian")
    listing.set_defaults(run=_methods)

    for name, call, summary in (
        ("skeleton", skeleton, "find the skeleton, the undirected graph, and its separating sets"),
        ("pc", pc, "find the skeleton and orient its edges: the CPDAG"),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        command.set_defaults(run=_search, call=call)
        _add_data_arguments(command.add_argument_group("data"))
        _add_search_arguments(command.add_argument_group("search"))
        _add_output_arguments(command.add_argument_group("output"))
    return parser


def _add_data_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "data",
        metavar="DATA",
        type=Path,
        help="samples in rows, variables in columns: a text table (.csv, .tsv, ..., also .gz), .npy or .npz",
    )
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="the table's first line names the variables (default: it does when it holds no number)",
    )
    group.add_argument("--row-names", action="store_true", help="the table's first column names the rows: leave it out")
    group.add_argument("--correlation", action="store_true", help="DATA is a correlation matrix; needs --n-samples")
    group.add_argument("--n-samples", metavar="M", type=int, help="samples behind the correlation matrix")


def _add_search_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--family",
        choices=families(),
        help="numbers with Fisher's z (gaussian, the default), categories with chi-square (discrete) or numbers with "
        "CMIknn (nonlinear); where a method is named, it is that one's",
    )
    group.add_argument("--method", default="auto", help="a name that `methods` lists, or auto: the fastest (default)")
    group.add_argument("--alpha", type=float, default=0.05, help="significance level (default: %(default)s)")
    group.add_argument("--max-level", metavar="L", type=int, help="largest conditioning set (default: no limit)")
    group.add_argument(
        "--separating-sets",
        choices=SEPARATING_SETS,
        default=SEPARATING_SETS[0],
        help="the same sets on every run, or the papers' rule (default: %(default)s)",
    )
    group.add_argument("--pmax", action="store_true", help="record the largest p-value of every pair (.npz only)")
    group.add_argument(
        "--param",
        metavar="KEY=VALUE",
        type=_key_value,
        action="append",
        default=[],
        help="a parameter of the method (theta=64) or of the test (df_convention=cupc, df_rule=adjusted, k_cmi=20); "
        "repeatable",
    )
    group.add_argument(
        "--backend",
        choices=("auto", *BACKENDS),
        default="auto",
        help="a GPU, this machine's cores, or a GPU where one is visible (default: %(default)s)",
    )
    group.add_argument(
        "--device-memory-limit", metavar="SIZE", type=_size, help="device memory to use at most, such as 2GiB"
    )


def _add_output_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--output",
        metavar="OUT",
        type=Path,
        help=f"where to write the graph: a file ending in {_listed(OUTPUT_SUFFIXES)}",
    )
    group.add_argument("--quiet", action="store_true", help="print errors and warnings only")


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE, such as theta=64")
    return key.strip(), value.strip()


def _plain(text: str) -> int | float | str:
    """A value as the number that it writes, else as text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _size(text: str) -> int:
    """Bytes from such as ``2GiB``, ``2GB``, ``2G`` (all binary) or ``2147483648``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if found is None or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 512MiB or 2GiB")
    return int(float(found[1]) * SIZE_UNITS[found[2]])


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


# --- methods ---------------------------------------------------------------------------------------------------


def _methods(args: argparse.Namespace) -> None:
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
        parameters = " ".join(f"{key}={parameter.default}" for key, parameter in method.params.items())
        rows.append(
            (
                name,
                method.family,
                ", ".join(method.backends),
                ", ".join(available) or "no",
                parameters or "-",
                method.source,
            )
        )
    print(_table(rows))
    if reasons:
        print("\nNot available here:")
        for reason, names in reasons.items():
            print(f"  {reason} ({', '.join(names)})")


def _table(rows: Sequence[Sequence[str]], justify: Callable[[str, int], str] = str.ljust) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(justify, row, widths)) for row in rows)
    return "\n".join(map(str.rstrip, lines))


# --- skeleton and pc -------------------------------------------------------------------------------------------


def _search(args: argparse.Namespace) -> None:
    # Everything that can be known to be wrong is looked at before the data are read and the search begins.
    if args.correlation != (args.n_samples is not None):
        raise UsageError("--correlation and --n-samples go together: a correlation matrix, and its number of samples")
    params = dict(args.param)
    if len(params) != len(args.param):
        raise UsageError("a --param is given twice")
    family = args.family or ("gaussian" if args.method == "auto" else get_method(args.method).family)
    known = get_family(family).problem.PARAMETERS
    test = {key: _plain(params.pop(key)) for key in known if key in params}
    method = choose_method(args.method, args.backend, family)
    method.parse_params(params)
    open_method_backend(method, args.backend, args.device_memory_limit)
    if args.output is not None:
        _check_output(args.output, args.data)

    values, names = read_table(args.data, args.header, args.row_names, labels=get_family(family).data == "labels")
    start = time.perf_counter()
    result = args.call(
        values,
        args.alpha,
        family=family,
        method=method.name,
        backend=args.backend,
        n_samples=args.n_samples,
        names=names,
        max_level=args.max_level,
        separating_sets=args.separating_sets,
        pmax=args.pmax,
        device_memory_limit=args.device_memory_limit,
        progress=_show_progress if sys.stderr.isatty() and not args.quiet else None,
        **test,
        **params,
    )
    seconds = time.perf_counter() - start
    if not args.quiet:
        samples = len(values) if args.n_samples is None else args.n_samples
        print(_summary(result, samples, args.alpha, seconds, named=names is not None))
    if isinstance(result, CPDAG) and result.has_directed_cycle:
        warnings.warn("the v-structures contradict each other: the arrows have a cycle", stacklevel=1)
    if args.output is not None:
        _save(result, args.output)
        if not args.quiet:
            print(f"written: {args.output}")


def _show_progress(level: Progress) -> None:
    print(
        f"level {level.level}: {level.edges:,} edges left, {level.tests:,} tests, {level.seconds:.2f} s",
        file=sys.stderr,
        flush=True,
    )


def _summary(result: Skeleton | CPDAG, samples: int, alpha: float, seconds: float, named: bool) -> str:
    found = result.skeleton if isinstance(result, CPDAG) else result
    names = "" if named else f" (no names in the file: {found.names[0]} to {found.names[-1]})"
    lines = [
        f"variables: {len(found.names):,}{names}",
        f"samples: {samples:,}",
        f"method: {found.facts['method']} on {found.facts['backend']}, alpha {alpha:g}",
        f"edges: {found.n_edges:,}",
    ]
    if isinstance(result, CPDAG):
        lines.append(
            f"directions: {result.n_directed:,} directed, {result.n_undirected:,} undirected "
            f"({len(result.conflicts):,} of them in conflict)"
        )
    rows = [("level", "edges left", "tests", "seconds")]
    levels = zip(found.edges_per_level, found.tests_per_level, found.seconds_per_level, strict=True)
    rows += [
        (str(level), f"{edges:,}", f"{tests:,}", f"{took:.3f}") for level, (edges, tests, took) in enumerate(levels)
    ]
    lines += [
        _table(rows, str.rjust),
        f"stopped: {found.stopped_because}",
        f"undefined tests: {found.undefined_tests:,}",
        f"pseudo-inverses: {found.pseudo_inverses:,}",
        f"seconds: {sum(found.seconds_per_level):.2f} in levels, {seconds:.2f} in all",
    ]
    return "\n".join(lines)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as one line each, without the place in the code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: print(f"warning: {message}", file=sys.stderr)
        yield


@contextlib.contextmanager
def _plain_forecasts(quiet: bool) -> Iterator[None]:
    """What methods say before they start: their plan, and the memory that it takes."""
    loggers, handler = [logging.getLogger(f"gpupc_impl.{name}") for name in FORECASTING], logging.StreamHandler()
    levels = [logger.level for logger in loggers]
    if not quiet:
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


def _check_output(path: Path, data: Path) -> None:
    if path.suffix not in OUTPUT_SUFFIXES:
        raise UsageError(f"cannot write {path}: its name must end in {_listed(OUTPUT_SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"cannot write {path}: permission denied")
    if path.exists() and data.exists() and path.samefile(data):
        raise UsageError(f"cannot write {path}: it is the data")


def _save(result: Skeleton | CPDAG, path: Path) -> None:
    """Write under another name first, so that a file of that name is a whole one."""
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        result.save(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


# --- reading a user's file -------------------------------------------------------------------------------------


def read_table(
    path: Path, header: bool | None = None, row_names: bool = False, labels: bool = False
) -> tuple[np.ndarray, list[str] | None]:
    """A file of numbers, or of labels.

    Args:
        path: ``.npy``, ``.npz`` (its only two-dimensional array, and ``names`` when it has them) or a UTF-8 text table
            with tabs, semicolons, commas or spaces between cells, perhaps compressed (``.gz``, ``.bz2``, ``.xz``).
        header: whether a text table's first line holds names; None finds out: it does when it holds no number.
        row_names: whether a text table's first column names the rows; it is left out.
        labels: whether a text table's cells are categories, text or whole numbers, and not numbers.

    Returns:
        (samples, variables) float64, all finite, or object with a str or an int in each cell; and the variables'
        names, None where the file has none.

    Raises:
        UsageError: the file cannot be opened or used; the message names the line and the column (both counted from 1)
            of a bad cell.
    """
    try:
        if path.suffix in (".npy", ".npz"):
            return _read_numpy(path)
        with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8-sig") as file:
            return _read_text(path, file, header, row_names, labels)
    except OSError as error:  # without strerror it comes from a decompressor
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UsageError(f"{path} is not a readable text table: {error}") from error


def _read_numpy(path: Path) -> tuple[np.ndarray, list[str] | None]:
    try:
        stored: Any = np.load(path, allow_pickle=False)
        arrays = {path.stem: stored} if isinstance(stored, np.ndarray) else dict(stored)
    except OSError:
        raise
    except Exception as error:  # a damaged file raises nearly anything
        raise UsageError(f"{path} is not a readable {path.suffix} file: {error}") from error
    tables = [array for array in arrays.values() if array.ndim == 2]
    if len(tables) != 1:
        held = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise UsageError(f"{path} must hold exactly one two-dimensional array; it holds {held or 'nothing'}")
    if tables[0].dtype.kind not in "iuf":
        raise UsageError(f"{path} holds {tables[0].dtype}, not numbers")
    values = tables[0].astype(np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0] + 1
        raise UsageError(f"{path}, row {row}, column {column}: a missing or infinite value ({len(bad)} in all)")
    names = arrays.get("names")
    return values, None if names is None else [str(name) for name in names.ravel()]


def _read_text(
    path: Path, file: Iterable[str], header: bool | None, row_names: bool, labels: bool
) -> tuple[np.ndarray, list[str] | None]:
    parse, guessed = _labels if labels else _numbers, header is None
    lines = ((number, line.strip(" \r\n")) for number, line in enumerate(file, start=1))
    lines = ((number, line) for number, line in lines if line)
    first = next(lines, None)
    if first is None:
        raise UsageError(f"{path} is empty")
    delimiter = next((found for found in DELIMITERS if found in first[1]), ",")
    numbered = (
        (number, next(csv.reader([line], delimiter=delimiter, skipinitialspace=True)))
        for number, line in itertools.chain([first], lines)
    )
    names = None
    rows: list[np.ndarray] = []
    for number, cells in numbered:
        if header is None:
            header = _is_header(cells[row_names:], path)
        if header and names is None:
            names = [cell.strip() for cell in cells]
            continue
        if not rows:
            width = len(cells)
            names = _checked_names(path, names, width, row_names) if header else None
        if len(cells) != width:
            raise UsageError(f"{path}, line {number}: {len(cells)} cells where the lines before have {width}")
        rows.append(parse(cells, f"{path}, line {number}", names, row_names))
    if not rows:
        raise UsageError(f"{path} has a header and no data")
    if not labels:
        return np.array(rows), names
    columns = [list(column) for column in zip(*rows, strict=True)]
    if guessed and names and all(name in column for name, column in zip(names, columns, strict=True)):
        raise UsageError(f"{path}: the first line may hold names or labels; say --header or --no-header")
    values = np.empty((len(rows), len(columns)), object)
    for k, column in enumerate(columns):
        # Only where nothing is lost: 01 and 1 are two labels.
        whole = all(re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in set(column))
        values[:, k] = list(map(int, column)) if whole else column
    return values, names


def _is_header(cells: Sequence[str], path: Path) -> bool:
    cells = [cell.strip() for cell in cells]
    kinds = {_fault(cell): cell for cell in cells}
    if NOT_A_NUMBER in kinds and None in kinds:
        why = f"both text ({kinds[NOT_A_NUMBER]!r}) and a number ({kinds[None]!r})"
    elif len(cells) > 1 and cells in ([str(k + start) for k in range(len(cells))] for start in (0, 1)):
        why = f"the numbers {cells[0]} to {cells[-1]}"
    else:
        return NOT_A_NUMBER in kinds
    raise UsageError(f"{path}: the first line holds {why}; say --header or --no-header")


def _checked_names(path: Path, names: list[str], width: int, row_names: bool) -> list[str]:
    if len(names) == width - 1:  # as R's write.table has it
        names = ["", *names]
    if len(names) != width:
        raise UsageError(f"{path}: the header has {len(names)} cells, the first row has {width}")
    first = int(row_names)
    if "" in names[first:]:
        column = names.index("", first)
        way_out = "say --row-names if it names the rows" if column == 0 else "name it"
        raise UsageError(f"{path}: column {column + 1} has no name; {way_out}")
    repeated = [name for name, count in collections.Counter(names[first:]).items() if count > 1]
    if repeated:
        raise UsageError(f"{path}: variable names must differ; repeated: {', '.join(repeated[:5])}")
    return names[first:]


def _fault(cell: str) -> str | None:
    """What is wrong with a cell; None when it is a finite number."""
    if cell.strip().lower() in MISSING:
        return "is a missing value; drop such rows or impute them"
    try:
        number = float(cell)
    except ValueError:
        return NOT_A_NUMBER
    if "_" in cell:  # Python reads 1_0 as 10
        return NOT_A_NUMBER
    return None if np.isfinite(number) else "is infinite; drop such rows or impute them"


def _labels(cells: list[str], where: str, names: Sequence[str] | None, row_names: bool) -> list[str]:
    """One row as text; its first missing cell is an error."""
    row = [cell.strip() for cell in cells[int(row_names) :]]
    for k, cell in enumerate(row):
        if cell.lower() in MISSING:
            name = "" if names is None else f" ({names[k]!r})"
            raise UsageError(
                f"{where}, column {k + 1 + row_names}{name}: {cell!r} is a missing value; drop such rows, or give the "
                "missing ones a category of their own"
            )
    return row


def _numbers(cells: list[str], where: str, names: Sequence[str] | None, row_names: bool) -> np.ndarray:
    """One row as float64; its first bad cell is an error."""
    first = int(row_names)
    with contextlib.suppress(ValueError):
        row = np.fromiter(map(float, cells[first:]), np.float64)
        if np.isfinite(row).all() and "_" not in "".join(cells[first:]):
            return row
    column, fault = next((k, fault) for k, cell in enumerate(cells) if k >= first and (fault := _fault(cell)))
    name = "" if names is None else f" ({names[column - first]!r})"
    way_out = "; say --row-names if that column names the rows" if column == 0 and fault == NOT_A_NUMBER else ""
    raise UsageError(f"{where}, column {column + 1}{name}: {cells[column]!r} {fault}{way_out}")
