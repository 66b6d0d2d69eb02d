"""Prints what commands found, as text or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.registry import method_packages
from gpupc_impl.views.exports import WRITERS
from gpupc_impl.views.text import text_table

if TYPE_CHECKING:
    import pandas

OUTPUT_SUFFIXES = (".npz", *WRITERS)
EXAMPLE = "example:"  # before the name of example data, in place of a path
ROWS_SHOWN = 20  # upper bound on the edges that a command prints


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a command found or did: a text for people, the data that ``--json`` prints with the command's name and the
    files (numbers of NumPy, DataFrames and paths are converted), the files, and the exit code: 0, or 2 if what was
    tried has failed."""

    text: str
    data: Mapping[str, Any]
    written: Sequence[Path] = ()
    status: int = 0


def show(outcome: Outcome, args: argparse.Namespace) -> None:
    """Print what a command found: as JSON with ``--json``, nothing with ``--quiet``, and else its text."""
    if getattr(args, "json", False):
        print(json.dumps({"command": args.command, **outcome.data, "written": outcome.written}, default=_plain))
    elif not getattr(args, "quiet", False):
        print(visible("\n".join([outcome.text, *(f"written: {path}" for path in outcome.written)])))


def _plain(value: Any) -> Any:
    """Return what JSON has in place of an object of another library."""
    if hasattr(value, "to_dict"):  # a DataFrame, whose own JSON would round p-values to ten digits
        return value.astype(object).where(value.notna(), None).to_dict("records")
    return value.tolist() if hasattr(value, "tolist") else str(value)


def first_rows(rows: Sequence[Sequence[Any]], total: int) -> str:
    """The rows of a table, the header first, and how many of `total` are left out."""
    cells = [[cell[0] if isinstance(cell, tuple) else str(cell) for cell in row] for row in rows]
    left = total - len(rows) + 1
    return text_table(cells) + (f"\n... and {left:,} more, which --output FILE.csv or --json has" if left > 0 else "")


def frame_rows(frame: pandas.DataFrame) -> str:
    """The first rows of a DataFrame as text."""
    shown = frame.head(ROWS_SHOWN).itertuples(index=False, name=None)
    rows = [[f"{cell:.3g}" if isinstance(cell, float) else cell for cell in row] for row in shown]
    return first_rows([list(frame.columns), *rows], len(frame))


class UsageError(ValueError):
    """The command line or a file cannot be used; the user sees the message alone."""


_CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def visible(text: Any) -> str:
    """Return a text with escapes in place of control characters, which a terminal would obey."""
    return str(text).translate(_CONTROL_CHARACTERS)


def listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def show_progress(level: Progress) -> None:
    found = f"{level.edges:,} edges left, {level.tests:,} tests, {level.seconds:.2f} s"
    print(f"level {level.level}: {found}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def plain_messages(verbose: bool) -> Iterator[None]:
    """Show warnings on a line each and, if `verbose`, the plan and the memory use that methods log before the start."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: print(f"warning: {visible(message)}", file=sys.stderr)
        loggers = [logging.getLogger(name) for name in method_packages()] if verbose else []
        handler = logging.StreamHandler()
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeHandler(handler)
                logger.setLevel(logging.NOTSET)
