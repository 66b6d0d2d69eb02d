"""Progress bars: by tqdm (extra ``progress``), on terminals and in notebooks; nothing is shown elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.views.optional import require


def somebody_sees() -> bool:
    """Whether a bar would reach a person: standard error is a terminal, or this is a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return sys.stderr.isatty() or "IPKernelApp" in getattr(shell, "config", {})


@contextlib.contextmanager
def bar(wanted: bool | None, total: int | None, title: str, unit: str, done: int = 0) -> Iterator[Any]:
    """A bar with the time that is left, as tqdm's; it has ``update(n)`` and ``set_description(text)``.

    Args:
        wanted: None: where somebody sees it and tqdm is installed.
        total: None where that is not known.
        done: units that were done before.

    Raises:
        MissingPackage: it is wanted, and tqdm is not installed.
    """
    if wanted is None:
        wanted = somebody_sees() and importlib.util.find_spec("tqdm") is not None
    if not wanted:
        yield _NoBar()
        return
    tqdm = require("tqdm.auto", "progress bars", "progress")
    with tqdm.tqdm(total=total, initial=done, desc=title, unit=unit, leave=False) as shown:
        yield shown


class _NoBar:
    def update(self, n: int = 1) -> None:
        pass

    def set_description(self, text: str) -> None:
        pass


@contextlib.contextmanager
def level_progress(
    wanted: Callable[[Progress], None] | bool | None,
) -> Iterator[Callable[[Progress], None] | None]:
    """What a search is to call after each level: nothing, what is given, or, for True, a bar's update."""
    if not wanted or callable(wanted):
        yield wanted or None
        return
    with bar(True, None, "level 0", " levels") as shown:

        def tell(level: Progress) -> None:
            shown.set_description(f"level {level.level}: {level.edges:,} edges left, {level.tests:,} tests")
            shown.update(1)

        yield tell
