"""Kernels with the checks that both backends make before each launch, and the streams in which work is queued."""

import abc
import math
from collections.abc import Sequence
from typing import Any, Self

from gpupc_impl.backends.arguments import Address, KernelParameter, Struct, Unfit
from gpupc_impl.backends.errors import KernelLaunchError

# Limits that hold for every device since compute capability 3.0 (CUDA C++ Programming Guide, Technical Specifications).
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_GRID_Y = MAX_GRID[1]
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_REMEMBERED = 4096  # the number of checked launch configurations that a kernel remembers
Dimensions = tuple[int, int, int]


class Event(abc.ABC):
    """A position in the work of a stream."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until the stream has reached the event."""

    @abc.abstractmethod
    def seconds_since(self, earlier: Self) -> float:
        """Return the time between two events that have both passed."""


class Stream(abc.ABC):
    """Work that runs in order, beside other streams if the device can; the host runs work when queued. Arrays of queued
    work must stay alive until it is done; host arrays of copies come from `Backend.host_empty`."""

    @abc.abstractmethod
    def copy(self, target: Any, source: Any) -> None:
        """Queue a copy between a host array and a device array, both C-contiguous and of equal size in bytes."""

    @abc.abstractmethod
    def fill_bytes(self, array: Any, byte: int) -> None:
        """Queue a fill of a C-contiguous device array with a byte."""

    @abc.abstractmethod
    def record(self) -> Event:
        """Record an event after all the work queued so far."""

    @abc.abstractmethod
    def wait(self, event: Event) -> None:
        """Let work that is queued from now on start after an event of any stream."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait for all the work of this stream."""


def check_copy(target: Any, source: Any) -> None:
    """Raise ValueError unless one array can be copied to the other byte by byte."""
    if not (target.flags.c_contiguous and source.flags.c_contiguous and target.nbytes == source.nbytes):
        raise ValueError(
            f"cannot copy {source.nbytes} bytes to an array of {target.nbytes}: both arrays must be C-contiguous and "
            "of equal size"
        )


class Kernel(abc.ABC):
    """A kernel, called as ``kernel(grid, block, args, shared_bytes=0, stream=None, cooperative=False)``."""

    def __init__(
        self,
        name: str,
        parameters: Sequence[KernelParameter],
        max_threads: int,
        max_shared_bytes: int,
        address: Address,
        registers: int | None = None,
    ):
        self.name, self.parameters, self._address = name, tuple(parameters), address
        self._max_threads, self._max_shared_bytes, self._registers = max_threads, max_shared_bytes, registers
        self._checked: dict[tuple[Any, ...], tuple[Dimensions, Dimensions]] = {}

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_bytes: int = 0,
        stream: Stream | None = None,
        cooperative: bool = False,
    ) -> None:
        """Launch the kernel; KernelLaunchError for an invalid configuration or argument, or a deadlock at a barrier.

        Args:
            grid: the number of blocks in x, y, z (one to three numbers). A grid with a zero does nothing.
            block: the number of threads in x, y, z (one to three numbers), at most 1024 in all.
            args: for each parameter a device array of this backend, ``None`` for a null pointer, a NumPy scalar of
                exactly the type that the kernel declares (``np.int32(5)``, never a bare ``5``), or a filled struct.
            shared_bytes: the dynamic shared memory of a block.
            stream: the stream of the launch; None for the backend's own stream.
            cooperative: whether the launch is cooperative: all blocks are resident at once, so that they may wait for
                each other (engine/kernels/grid_barrier.cuh); the grid then has at most `resident_blocks` blocks.
        """
        # A launch takes microseconds, so each configuration is checked only once.
        configuration = (*grid, None, *block, shared_bytes)
        dimensions = self._checked.get(configuration)
        if dimensions is None:
            dimensions = self._dimensions("grid", grid, MAX_GRID), self._dimensions("block", block, MAX_BLOCK)
            self._check_block(dimensions[1], shared_bytes)
            if len(self._checked) == MAX_REMEMBERED:
                self._checked.clear()
            self._checked[configuration] = dimensions
        if cooperative:
            self._check_residence(math.prod(dimensions[0]), math.prod(dimensions[1]), shared_bytes)
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
        if 0 not in dimensions[0]:
            self._launch(*dimensions, encoded, int(shared_bytes), stream, cooperative)

    @abc.abstractmethod
    def resident_blocks(self, threads: int, shared_bytes: int) -> int:
        """Return how many blocks can be resident on the device at once; 0 without cooperative launches."""

    @abc.abstractmethod
    def _launch(
        self,
        grid: Dimensions,
        block: Dimensions,
        encoded: Sequence[bytes],
        shared_bytes: int,
        stream: Any,
        cooperative: bool,
    ) -> None:
        """Run a launch that has been checked; `encoded` contains the bytes of the arguments."""

    def _check_residence(self, blocks: int, threads: int, shared_bytes: int) -> None:
        limit = self.resident_blocks(threads, shared_bytes)
        if blocks > limit:
            raise self._error(
                f"{blocks} blocks asked for in a cooperative launch; {limit} of this size are resident at once"
            )

    def _check_block(self, block: Dimensions, shared_bytes: int) -> None:
        threads = math.prod(block)
        if not 1 <= threads <= self._max_threads:
            bounded = self._registers and self._max_threads < MAX_THREADS
            why = f" (it uses {self._registers} registers a thread)" if bounded else ""
            raise self._error(
                f"block {block} has {threads} threads; this kernel's may have 1 to {self._max_threads}{why}"
            )
        if not 0 <= shared_bytes <= self._max_shared_bytes:
            limit = self._max_shared_bytes
            raise self._error(f"{shared_bytes} bytes of dynamic shared memory asked for; a block may have 0 to {limit}")

    def _dimensions(self, what: str, sizes: Sequence[int], limits: Dimensions) -> Dimensions:
        if not 1 <= len(sizes) <= 3:
            raise self._error(f"{what} {tuple(sizes)} must have one to three numbers")
        x, y, z = (*map(int, sizes), 1, 1)[:3]
        for axis, size, limit in zip("xyz", (x, y, z), limits, strict=True):
            if not 0 <= size <= limit:
                raise self._error(f"{what} {tuple(sizes)}: {axis} is {size}; it may be 0 to {limit}")
        return x, y, z

    def _error(self, text: str) -> KernelLaunchError:
        return KernelLaunchError(f"kernel {self.name}: {text}")
