"""Shows progress bars by tqdm (extra ``progress``), but only on terminals and in notebooks."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.views.optional import require

COMPILING_WIDTH = 45
"""The number of characters that the line about compilations occupies and that are blanked after it."""


def is_interactive() -> bool:
    """Return whether a person would see a bar: standard error is a terminal, or this is a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return sys.stderr.isatty() or "IPKernelApp" in getattr(shell, "config", {})


@contextlib.contextmanager
def bar(show: bool | None, total: int | None, title: str, unit: str, done: int = 0) -> Iterator[Any]:
    """Return a progress bar with ``update(n)`` and ``set_description(text)``, as tqdm's.

    Args:
        show: whether to show the bar; None shows it if a person would see it and tqdm is installed.
        total: the number of units in all; None if it is unknown.
        done: the number of units that were complete before.

    Raises:
        MissingPackage: `show` is True and tqdm is not installed.
    """
    if show is None:
        show = is_interactive() and importlib.util.find_spec("tqdm") is not None
    if not show:
        yield _NoBar()
        return
    tqdm = require("tqdm.auto", "progress bars", "progress")
    with tqdm.tqdm(total=total, initial=done, desc=title, unit=unit, leave=False) as progress_bar:
        yield progress_bar


def compile_report(show: bool) -> Callable[[int, int], None] | None:
    """Return a function that shows on one line how many of the kernels are compiled; None if no person would see the
    line.

    Two zeros remove the line.
    """

    def report(done: int, requested: int) -> None:
        line = f"compiling kernels, once ({done} of {requested})" if requested else ""
        print(f"\r{line:<{COMPILING_WIDTH}}", end="" if requested else "\r", file=sys.stderr, flush=True)

    return report if show and is_interactive() else None


class _NoBar:
    def update(self, n: int = 1) -> None:
        pass

    def set_description(self, text: str) -> None:
        pass


@contextlib.contextmanager
def level_progress(
    progress: Callable[[Progress], None] | bool | None,
) -> Iterator[Callable[[Progress], None] | None]:
    """Return the function that a search calls after each level: None, the function that was passed, or for True the
    update of a bar."""
    if not progress or callable(progress):
        yield progress or None
        return
    with bar(True, None, "level 0", " levels") as progress_bar:

        def report(level: Progress) -> None:
            progress_bar.set_description(f"level {level.level}: {level.edges:,} edges left, {level.tests:,} tests")
            progress_bar.update(1)

        yield report
