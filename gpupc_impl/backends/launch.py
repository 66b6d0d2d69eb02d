"""What both backends ask of a launch before it reaches a device."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

from gpupc_impl.backends.arguments import Address, Parameter, Struct, Unfit
from gpupc_impl.backends.base import KernelLaunchError, Stream

# Limits of every device since compute capability 3.0 (CUDA C++ Programming Guide, Technical Specifications).
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_GRID_Y = MAX_GRID[1]
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024

MOST_KNOWN = 4096
"""Configurations of a kernel that are remembered."""

Dimensions = tuple[int, int, int]


class Kernel(abc.ABC):
    """A compiled kernel. Call it as ``kernel(grid, block, args, shared_bytes=0, stream=None, cooperative=False)``.

    Args:
        name: what messages call it.
        parameters: what it takes.
        max_threads: threads that one of its blocks may have.
        max_shared_bytes: dynamic shared memory that one of its blocks may ask for.
        address: gives the address of a C-contiguous device array of the backend; raises `Unfit` for anything else.
        registers: of a thread, where that is what limits the threads.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[Parameter],
        max_threads: int,
        max_shared_bytes: int,
        address: Address,
        registers: int | None = None,
    ):
        self.name, self.parameters, self._address = name, tuple(parameters), address
        self._max_threads, self._max_shared_bytes, self._registers = max_threads, max_shared_bytes, registers
        self._in_order: dict[tuple[Any, ...], tuple[Dimensions, Dimensions]] = {}

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_bytes: int = 0,
        stream: Stream | None = None,
        cooperative: bool = False,
    ) -> None:
        """Launch the kernel.

        Args:
            grid: blocks in x, y, z (one to three numbers). A grid with a zero runs nothing.
            block: threads in x, y, z (one to three numbers), at most 1024 in all.
            args: for each parameter a device array of this backend, ``None`` for a null pointer, a NumPy scalar of
                exactly the type the kernel declares (``np.int32(5)``, never a bare ``5``), or a struct with its values.
            shared_bytes: dynamic shared memory a block.
            stream: where it is queued; None for the backend's own stream.
            cooperative: a cooperative launch: all blocks are resident at once, so that they may wait for each other
                (engine/kernels/grid_barrier.cuh); at most `resident_blocks` of them.

        Raises:
            KernelLaunchError: a bad configuration or argument, or a kernel that deadlocks at a barrier.
        """
        # A launch takes the device a few microseconds: what was found in order is not looked at again.
        asked = (*grid, None, *block, shared_bytes)
        known = self._in_order.get(asked)
        if known is None:
            known = self._dimensions("grid", grid, MAX_GRID), self._dimensions("block", block, MAX_BLOCK)
            self._check(known[1], shared_bytes)
            if len(self._in_order) == MOST_KNOWN:
                self._in_order.clear()
            self._in_order[asked] = known
        if cooperative and math.prod(known[0]) > (most := self.resident_blocks(math.prod(known[1]), shared_bytes)):
            raise self._error(
                f"{math.prod(known[0])} blocks asked for in a cooperative launch; "
                f"{most} of this size are resident at once"
            )
        if len(args) != len(self.parameters):
            raise self._error(f"takes {len(self.parameters)} arguments; {len(args)} given")
        encoded: list[bytes] = []
        try:
            for parameter, value in zip(self.parameters, args, strict=True):
                encoded.append(parameter.encode(value, self._address))
        except Unfit as unfit:
            parameter = self.parameters[len(encoded)]
            in_struct = isinstance(parameter, Struct) and unfit.field
            name = f"{parameter.cpp}{unfit.field}" if in_struct else f"argument {len(encoded)}"
            raise self._error(f"{name} {unfit}") from None
        if 0 not in known[0]:
            self._launch(*known, args, encoded, int(shared_bytes), stream, cooperative)

    @abc.abstractmethod
    def resident_blocks(self, threads: int, shared_bytes: int) -> int:
        """How many blocks of this kernel the device has room for at once; 0: it cannot launch it cooperatively.

        Args:
            threads: of a block.
            shared_bytes: dynamic shared memory of a block.
        """

    @abc.abstractmethod
    def _launch(
        self,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[Any],
        encoded: Sequence[bytes],
        shared_bytes: int,
        stream: Any,
        cooperative: bool,
    ) -> None:
        """Run a launch that is in order; `encoded` are the bytes of the arguments."""

    def _check(self, block: Dimensions, shared_bytes: int) -> None:
        """The threads and the shared memory of a block."""
        threads = math.prod(block)
        if not 1 <= threads <= self._max_threads:
            few = self._registers and self._max_threads < MAX_THREADS
            why = f" (it uses {self._registers} registers a thread)" if few else ""
            raise self._error(
                f"block {block} has {threads} threads; this kernel's may have 1 to {self._max_threads}{why}"
            )
        if not 0 <= shared_bytes <= self._max_shared_bytes:
            limit = self._max_shared_bytes
            raise self._error(f"{shared_bytes} bytes of dynamic shared memory asked for; a block may have 0 to {limit}")

    def _dimensions(self, what: str, given: Sequence[int], limits: Dimensions) -> Dimensions:
        if not 1 <= len(given) <= 3:
            raise self._error(f"{what} {tuple(given)} must have one to three numbers")
        x, y, z = (*map(int, given), 1, 1)[:3]
        if 0 <= x <= limits[0] and 0 <= y <= limits[1] and 0 <= z <= limits[2]:
            return x, y, z
        wrong = ((axis, size, limit) for axis, size, limit in zip("xyz", (x, y, z), limits, strict=True))
        axis, size, limit = next(each for each in wrong if not 0 <= each[1] <= each[2])
        raise self._error(f"{what} {tuple(given)}: {axis} is {size}; it may be 0 to {limit}")

    def _error(self, text: str) -> KernelLaunchError:
        return KernelLaunchError(f"kernel {self.name}: {text}")
