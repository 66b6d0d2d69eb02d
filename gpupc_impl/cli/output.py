"""Prints the text of the command line."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pag import PAG
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.registry import method_packages
from gpupc_impl.core.result import Skeleton
from gpupc_impl.views.exports import WRITERS
from gpupc_impl.views.text import summary_lines

OUTPUT_SUFFIXES = (".npz", *WRITERS)


class UsageError(ValueError):
    """The command line or a file cannot be used; the user sees the message alone."""


_CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def visible(text: Any) -> str:
    """Return a text with escapes in place of control characters, which a terminal would obey."""
    return str(text).translate(_CONTROL_CHARACTERS)


def listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def show_progress(level: Progress) -> None:
    print(
        f"level {level.level}: {level.edges:,} edges left, {level.tests:,} tests, {level.seconds:.2f} s",
        file=sys.stderr,
        flush=True,
    )


def summary(result: Skeleton | CPDAG | PAG, seconds: float, named: bool) -> str:
    names = result.names
    unnamed = "" if named else f" (no names in the file: {names[0]} to {names[-1]})"
    return "\n".join(summary_lines(result, unnamed, seconds))


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: print(f"warning: {visible(message)}", file=sys.stderr)
        yield


@contextlib.contextmanager
def plain_forecasts(verbose: bool) -> Iterator[None]:
    """If `verbose`, show the plan and the memory use that methods log before they start."""
    loggers = [logging.getLogger(name) for name in method_packages()] if verbose else []
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
