"""Shows progress on terminals and in notebooks: bars by tqdm (extra ``progress``), and a line about a long level."""

import contextlib
import importlib.util
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from gpupc_impl.core import progress_watcher
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.views import require

LINE_WIDTH = 70  # width in characters of the line about compilations or about a level, which is blanked at the end
SECONDS = 1.0  # seconds between two lines about a level, and before the first line


def is_interactive() -> bool:
    """Return whether a person would see a bar: standard error is a terminal, or this is a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return sys.stderr.isatty() or "IPKernelApp" in getattr(shell, "config", {})


class LevelDisplay:
    """Shows levels that take over a second, once a second, by `show` on another thread; the empty text removes one."""

    def __init__(self, show: Callable[[str], None]):
        self._show = show
        self._lock = threading.Lock()
        self._level: tuple[int, float] | None = None
        self._work = ""
        self._is_shown = False
        self._closed = threading.Event()

    def begin(self, level: int) -> None:
        with self._lock:
            self._level, self._work = (level, time.monotonic()), ""

    def advance(self, done: int, total: int | None, unit: str) -> None:
        self._work = f"{done:,} {unit}, " if total is None else f"{done:,} of {total:,} {unit}, "

    def end(self) -> None:
        with self._lock:
            self._level = None
            if self._is_shown:
                self._show("")
            self._is_shown = False

    def _repeat(self) -> None:
        while not self._closed.wait(SECONDS):
            with self._lock:
                if self._level is not None and (seconds := time.monotonic() - self._level[1]) >= SECONDS:
                    self._show(f"level {self._level[0]}: {self._work}{seconds:.0f} s")
                    self._is_shown = True

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Show the levels of searches inside this context."""
        thread = threading.Thread(target=self._repeat, name="level display", daemon=True)
        thread.start()
        try:
            with progress_watcher.watched_by(self):
                yield
        finally:
            self._closed.set()
            thread.join()


def _print_line(text: str) -> None:
    """Write a text over the last line of standard error, or blank it, and leave the cursor at its beginning."""
    print(f"\r{text:<{LINE_WIDTH}}\r", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def bar(show: bool | None, total: int | None, title: str, unit: str, done: int = 0) -> Iterator[Any]:
    """Return a progress bar with ``update(n)`` and ``set_description(text)``, as tqdm's, for `total` units (None if
    unknown) of which `done` were complete before. With `show` None there is a bar if a person would see it and tqdm is
    installed; with True its absence raises MissingPackage."""
    if show is None:
        show = is_interactive() and importlib.util.find_spec("tqdm") is not None
    if not show:
        yield types.SimpleNamespace(update=lambda n=1: None, set_description=lambda text: None)
        return
    tqdm = require("tqdm.auto", "progress bars", "progress")
    if (watcher := progress_watcher.current()) is not None:
        watcher.end()  # the bar replaces the line
    with (
        tqdm.tqdm(total=total, initial=done, desc=title, unit=unit, leave=False) as progress_bar,
        LevelDisplay(progress_bar.set_postfix_str).running(),
    ):
        yield progress_bar


def compile_report(show: bool) -> Callable[[int, int], None] | None:
    """Return a function that shows on one line how many of the kernels are compiled, and removes the line if none is
    requested; None if no person would see the line."""

    def report(done: int, requested: int) -> None:
        _print_line(f"compiling kernels, once ({done} of {requested})" if requested else "")

    return report if show and is_interactive() else None


@contextlib.contextmanager
def level_progress(progress: Callable[[Progress], None] | bool | None) -> Iterator[Callable[[Progress], None] | None]:
    """The function that a search calls after each level: the one that is passed, the update of a bar for True, or None.
    The progress within a long level is shown as well: at the bar, or in a line if a person would see it. False shows
    nothing."""
    if not progress or callable(progress):
        is_shown = progress is not False and is_interactive() and progress_watcher.current() is None
        with LevelDisplay(_print_line).running() if is_shown else contextlib.nullcontext():
            yield progress or None
        return
    with bar(True, None, "level 0", " levels") as progress_bar:

        def report(level: Progress) -> None:
            progress_bar.set_description(f"level {level.level}: {level.edges:,} edges left, {level.tests:,} tests")
            progress_bar.update(1)

        yield report
