"""Progress bars by tqdm (extra ``progress``), which are shown on terminals and in notebooks alone."""

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.views.optional import require

COMPILING_WIDTH = 45
"""Characters that the line about compilations takes, and that are blanked after it."""


def is_interactive() -> bool:
    """Whether a person would see a bar: standard error is a terminal, or this is a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return sys.stderr.isatty() or "IPKernelApp" in getattr(shell, "config", {})


@contextlib.contextmanager
def bar(show: bool | None, total: int | None, title: str, unit: str, done: int = 0) -> Iterator[Any]:
    """A progress bar with ``update(n)`` and ``set_description(text)``, as tqdm's.

    Args:
        show: whether to show the bar; None shows it where a person would see it and tqdm is installed.
        total: number of units in all; None where it is not known.
        done: number of units that were complete before.

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
    """What shows how many kernels are compiled, of how many, in one line; None where no person would see it.

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
    """The function that a search calls after each level: None, the one that is passed, or for True a bar's update."""
    if not progress or callable(progress):
        yield progress or None
        return
    with bar(True, None, "level 0", " levels") as progress_bar:

        def report(level: Progress) -> None:
            progress_bar.set_description(f"level {level.level}: {level.edges:,} edges left, {level.tests:,} tests")
            progress_bar.update(1)

        yield report
