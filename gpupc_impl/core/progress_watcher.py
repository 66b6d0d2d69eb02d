"""Tells a person who waits for a level how far it is. A search reports to a watcher, which changes nothing in it."""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

import numpy as np


class Watcher(Protocol):
    """Shows the progress within the level that a search is in."""

    def begin(self, level: int) -> None:
        """A level begins."""

    def advance(self, done: int, total: int | None, unit: str) -> None:
        """`done` of the level's `total` units of work are done; `total` is None if it is not known."""

    def end(self) -> None:
        """The level has ended, or another object shows it from now on."""


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Inside this context, searches tell the watcher how far they are."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)
        watcher.end()


def current() -> Watcher | None:
    return _watcher.get()


def advance(done: int, total: int | None = None, unit: str = "tests") -> None:
    if (watcher := _watcher.get()) is not None:
        watcher.advance(done, total, unit)


def possible_tests(adjacency: np.ndarray, level: int) -> int | None:
    """An upper bound on the tests of a level whose graph, (p, p) bool, is given; None if nobody watches."""
    if _watcher.get() is None:
        return None
    degrees: list[int] = adjacency.sum(axis=1).tolist()
    if level == 0:
        return sum(degrees) // 2
    return sum(degree * math.comb(degree - 1, level) for degree in degrees if degree)
