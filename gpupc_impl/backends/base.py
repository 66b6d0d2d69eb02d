"""What a backend offers: memory on a device, compiled kernels, a clock.

Two backends run the same ``.cu`` files: ``cuda`` (a GPU, through CuPy and NVRTC) and ``host`` (this machine's
cores, through any C++ compiler and the vocabulary in ``simt/``). A method sees only the interface below, so it
runs on both unchanged.
"""

from __future__ import annotations

import abc
import contextlib
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends.arguments import Struct

if TYPE_CHECKING:
    from gpupc_impl.backends.launch import Kernel

Empty = Callable[[tuple[int, ...], DTypeLike], np.ndarray]
"""Gives a C-contiguous host array of a shape and type, contents undefined."""

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
"""Kernel sources are named relative to this folder; it is also the include root of every kernel."""


class BackendUnavailable(RuntimeError):
    """The backend cannot run on this machine; the message says why and what to do."""


class KernelCompilationError(RuntimeError):
    """A kernel did not compile; the message holds the compiler, its command and its output."""


class KernelLaunchError(RuntimeError):
    """A kernel could not be launched or did not finish; the message names the kernel and the reason."""


class DeviceMemoryError(MemoryError):
    """Device memory is exhausted: the device's own, or the budget given as ``device_memory_limit``.

    Attributes:
        requested: bytes asked for.
        used: bytes already taken on the device by this backend.
        limit: bytes that may be taken.
    """

    def __init__(self, requested: int, used: int, limit: int, message: str | None = None):
        self.requested, self.used, self.limit = requested, used, limit
        super().__init__(
            message
            or f"device memory exhausted: {requested:,} bytes asked for with {used:,} of {limit:,} bytes in use; "
            "give the method more device memory (device_memory_limit) or a smaller problem, "
            "or use an out-of-core method"
        )

    def __reduce__(self) -> tuple[type[DeviceMemoryError], tuple[int, int, int, str]]:
        return type(self), (self.requested, self.used, self.limit, str(self))


NO_CONSTANTS: Mapping[str, int] = types.MappingProxyType({})


class KernelSource(NamedTuple):
    """Where a kernel comes from: what `Backend.kernel` takes, argument by argument."""

    source: str
    expression: str
    structs: tuple[Struct, ...] = ()
    constants: Mapping[str, int] = NO_CONSTANTS


class Event(abc.ABC):
    """A moment in the work of a stream."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until the stream has come to it."""

    @abc.abstractmethod
    def seconds_since(self, earlier: Self) -> float:
        """Time between two moments that have both passed."""


class Stream(abc.ABC):
    """Work in order, beside that of other streams where the device can (the host backend works at once).

    Arrays that queued work uses must live until it is done; host arrays of copies come from `Backend.host_empty`.
    """

    @abc.abstractmethod
    def copy(self, target: Any, source: Any) -> None:
        """Queue a copy between a host array and a device array, either way: C-contiguous, of equal size in bytes."""

    @abc.abstractmethod
    def fill_bytes(self, array: Any, byte: int) -> None:
        """Queue the filling of a C-contiguous device array with a byte."""

    @abc.abstractmethod
    def record(self) -> Event:
        """The moment when all the work queued so far is done."""

    @abc.abstractmethod
    def wait(self, event: Event) -> None:
        """Queue nothing more before an event of any stream."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait for all the work of this stream."""


class Backend(abc.ABC):
    """A place where kernels run, with memory of its own and a budget for it.

    Args:
        device_memory_limit: bytes of device memory that may be in use at once; None means what the device has.
    """

    name: ClassVar[str]

    warp_threads: ClassVar[int]
    """Threads that play a warp in kernels written with engine/kernels/warp.cuh."""

    device_memory_limit: int | None
    """The budget asked for."""

    multiprocessors: int
    """Of a GPU; 0 where CPU cores take their place."""

    blocks_at_once: int
    """Blocks of a launch whose warps share out the work among themselves."""

    array_threads: int = 1
    """Threads that may compute with the library of `array_library` at once."""

    compile_seconds: float
    """Time spent compiling (or fetching from the compilation cache) since this object was made."""

    max_shared_bytes: int
    """Dynamic shared memory that one block may ask for."""

    @abc.abstractmethod
    def __init__(self, device_memory_limit: int | None = None): ...

    @classmethod
    @abc.abstractmethod
    def unavailable(cls) -> str | None:
        """Why this backend cannot be used on this machine, as a sentence; None when it can."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Facts for a record: at least ``device`` (its name); no host names, user names or paths."""

    def device_key(self) -> str | None:
        """What tells a GPU from all others, of whatever machine; None on CPU cores. It goes into no record."""
        return None

    # --- memory ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
        """A device array of that shape, contents undefined. Freed when the last reference goes.

        Raises:
            DeviceMemoryError: the array does not fit in what is left of the device or of the budget.
        """

    def empty_all(self, **arrays: tuple[int | tuple[int, ...], DTypeLike]) -> dict[str, Any]:
        """Several arrays at once, by name ``(shape, type)``: see `empty`. They may be freed together only."""
        return {name: self.empty(shape, dtype) for name, (shape, dtype) in arrays.items()}

    @abc.abstractmethod
    def full(self, shape: int | tuple[int, ...], value: Any, dtype: DTypeLike) -> Any:
        """A device array filled with one value."""

    @abc.abstractmethod
    def fill(self, array: Any, value: Any) -> None:
        """Fill a device array with one value, all of whose bytes are alike."""

    @abc.abstractmethod
    def upload(self, array: ArrayLike) -> Any:
        """A C-contiguous copy of a host array on the device."""

    @abc.abstractmethod
    def upload_rows(self, matrix: np.ndarray, width: int) -> Any:
        """A (rows, width) device array that begins with the columns of a C-contiguous matrix; zeros follow."""

    @abc.abstractmethod
    def upload_symmetric(self, matrix: np.ndarray) -> Any:
        """A symmetric (p, p) matrix on the device, to be read only: where it lies already, or half of it copied."""

    def download_all(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """Copies of device arrays in host memory, after the work queued so far."""
        return [self.download(array) for array in arrays]

    @abc.abstractmethod
    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        """A copy of a device array in host memory, after the work queued so far.

        Args:
            out: where it goes: an array of that size from `host_empty`; None for an array of its own.
        """

    @abc.abstractmethod
    def gram(self, matrix: Any) -> Any:
        """X^T X of an (m, p) float64 device array, on the device, by the device's linear algebra library."""

    @abc.abstractmethod
    def array_library(self) -> contextlib.AbstractContextManager[Any]:
        """The library that computes with this device's arrays, NumPy or CuPy.

        Inside the context CuPy works on this device and takes memory within the budget. NumPy's arrays are not counted;
        its products of matrices take one thread, so that `array_threads` threads may compute side by side.
        """

    @abc.abstractmethod
    def host_empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """A host array, contents undefined, that streams copy from and to while the host goes on (pinned memory)."""

    @property
    def host_arrays(self) -> Empty | None:
        """Gives host arrays that the device copies from best, once they are read-only; None: any will do."""
        return None

    @abc.abstractmethod
    def stream(self) -> Stream:
        """A new stream."""

    @abc.abstractmethod
    def managed_memory(self, oversubscribe: bool = False) -> contextlib.AbstractContextManager[None]:
        """Arrays made inside this context lie in managed memory, which the driver moves to where it is used.

        The budget holds as ever, unless `oversubscribe` lifts it to the host's memory as well.
        """

    @abc.abstractmethod
    def smaller_device(self, left: int) -> contextlib.AbstractContextManager[None]:
        """Inside this context plain allocations hold what is free beyond `left` bytes, as on a smaller device.

        The budget is at most `left`. Where device memory is only counted, so is this.

        Raises:
            DeviceMemoryError: the device does not grant what is to be held.
        """

    @abc.abstractmethod
    def release_memory(self) -> None:
        """Give memory that is kept for later arrays back to the device; they take it anew."""

    @property
    @abc.abstractmethod
    def memory_used(self) -> int:
        """Bytes of device memory in use through this backend now."""

    @property
    @abc.abstractmethod
    def memory_peak(self) -> int:
        """The largest ``memory_used`` since this object was made, or since `reset_peak`."""

    @abc.abstractmethod
    def reset_peak(self) -> None:
        """Let `memory_peak` begin anew, at what is in use now."""

    @property
    @abc.abstractmethod
    def memory_limit(self) -> int:
        """Bytes of device memory that may be in use: the budget, or what the device has."""

    # --- kernels -----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def kernel(
        self,
        source: str | Path,
        expression: str,
        structs: Sequence[Struct] = (),
        constants: Mapping[str, int] = NO_CONSTANTS,
    ) -> Kernel:
        """A kernel of a ``.cu`` file, compiled on first use.

        Args:
            source: path relative to the package (``"gaussian/kernels/cupc_s.cu"``), or an absolute path.
            expression: the kernel's name with its template arguments, as C++ writes it (``"cupc_s<3>"``).
            structs: those among its parameters, in order.
            constants: values that Python relies on, by the name of the constant in the source (``{"BINS": 32}``).

        Raises:
            KernelCompilationError: the source does not compile, or its structs or constants are not these.
        """

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait for all the work queued on the device."""
