"""Chooses the kernels that make the tests of a level: the level's own kernel, or a general one for several levels. The
own kernel of a level has unrolled loops and keeps its numbers in registers, but it takes seconds to compile. A general
kernel takes the level as an argument. Both make the same tests and give the same bits (`Exactly` and `UpTo` in
kernels/fisher_z.cuh). A search therefore waits for the kernels of the first levels and for general kernels; the own
kernels of the next levels are compiled meanwhile, and replace the general ones once they are ready."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.integers import round_up

FIRST_LEVELS = 3  # the levels up to this one have only kernels of their own, which are compiled before a search begins
OWN_LEVELS = 8  # beyond this level there are only general kernels, and none keeps its numbers in registers
GENERAL_LEVELS = 8  # of a general kernel; the local memory of a thread grows with the square of the last level
LEVELS_AHEAD = 3  # the number of levels whose kernels are compiled while the level before them runs


@dataclasses.dataclass(frozen=True)
class LevelKernels:
    source: Callable[[str], KernelSource]  # by the number of members, ``Exactly<level>`` or ``UpTo<most>`` in C++
    lowest: int = 1  # the lowest level that has such a kernel
    own_levels: int = OWN_LEVELS  # the last level that has an own kernel

    def of_level(self, level: int) -> tuple[KernelSource, ...]:
        """Return the kernels that can run a level, the fastest first; a search waits only for the last of them."""
        own, general = f"Exactly<{level}>", f"UpTo<{round_up(level, GENERAL_LEVELS)}>"
        sizes = (own,) if level <= FIRST_LEVELS else (own, general) if level <= self.own_levels else (general,)
        return tuple(map(self.source, sizes))

    def choose(self, backend: Backend, level: int) -> KernelSource:
        """Return the fastest kernel for a level that is ready, or the one for which the search waits."""
        *faster, general = self.of_level(level)
        return next(filter(backend.is_ready, faster), general)

    def needed(self, last: int) -> tuple[KernelSource, ...]:
        return _distinct(self.of_level(level)[-1] for level in range(self.lowest, last + 1))

    def up_to(self, last: int) -> tuple[KernelSource, ...]:
        """Return all kernels for the levels up to this one, first those for which a search waits."""
        return _every(self, self.lowest, last)

    def ahead(self, level: int, max_level: int | None) -> tuple[KernelSource, ...]:
        """Return all kernels for a level and the next `LEVELS_AHEAD`, first those for which a search waits."""
        last = level + LEVELS_AHEAD
        return _every(self, level, last if max_level is None else min(last, max_level))


def levels_at_first(backend: Backend, max_level: int | None) -> int:
    """Return the level up to which a search requests kernels before it begins. On a GPU it requests the first general
    kernel as well. Cores compile that one only for a search that goes so far."""
    last = FIRST_LEVELS + (backend.warp_threads > 1)
    return last if max_level is None else min(max_level, last)


@functools.cache
def _every(kernels: LevelKernels, first: int, last: int) -> tuple[KernelSource, ...]:
    by_level = [kernels.of_level(level) for level in range(first, last + 1)]
    return _distinct((*(of_level[-1] for of_level in by_level), *itertools.chain(*by_level)))


def _distinct(kernels: Iterable[KernelSource]) -> tuple[KernelSource, ...]:
    return tuple({(kernel.source, kernel.expression): kernel for kernel in kernels}.values())
