"""Copies between host and device memory of the CUDA backend, through pinned memory."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends.base import Empty, KernelSource
from gpupc_impl.backends.cuda_memory import CudaMemory, as_tuple
from gpupc_impl.backends.pinned import (
    CHUNK_BYTES,
    PinnedPool,
    Rows,
    chunks,
    is_placed,
    staged_download,
    staged_upload,
)
from gpupc_impl.integers import ceil_div

MIRROR = KernelSource("backends/kernels/mirror.cu", "mirror<double>")
"""Copies the upper triangle of a square matrix to the lower one."""

SMALL_BYTES = 1 << 21
"""The upper bound on the size of arrays that one core copies alone, since waking helpers would take longer."""

SMALL_MATRIX_BYTES = 1 << 20
"""The upper bound on the size of symmetric matrices that are uploaded whole, since mirroring a triangle would take
longer."""

TRIANGLE_PARTS = 8
"""The lower bound on the number of parts in which a triangle is uploaded, so that staging one part overlaps with
sending another."""

SMALL_PLACED_BYTES = 16 << 20
"""The upper bound on the size of symmetric matrices in pinned memory that are uploaded whole, since queueing parts
would take longer."""

MAX_PLACED_BYTES = 1 << 30
"""The upper bound on the size of host arrays that are made in pinned memory for uploads, so that enough is left for
other arrays."""

PINNED_RESULT_BYTES = 256 << 20
"""The upper bound on the size of downloads that stay in pinned memory; larger ones are copied on to pageable memory."""


@functools.cache
def _pinned_pool(device: int) -> PinnedPool:
    """The process's pool of pinned memory for a device."""
    import cupy

    def allocate(size: int) -> tuple[Any, int]:
        with cupy.cuda.Device(device):  # Otherwise another thread would create a context on its own current device.
            memory = cupy.cuda.PinnedMemory(size)
        return memory, memory.ptr

    return PinnedPool(allocate, (cupy.cuda.runtime.CUDARuntimeError,))


class CudaCopies(CudaMemory):
    """The layer of the CUDA backend that copies between host and device."""

    def __init__(self, device_memory_limit: int | None = None):
        super().__init__(device_memory_limit)
        self._pinned = _pinned_pool(self._device_id)
        self._in_flight: list[np.ndarray] = []  # pinned memory that queued copies still read

    def _all_done(self) -> None:
        super()._all_done()
        self._in_flight.clear()

    # --- to the device -----------------------------------------------------------------------------------------

    def full(self, shape: int | tuple[int, ...], value: Any, dtype: DTypeLike) -> Any:
        if len(set(np.asarray(value, dtype).tobytes())) > 1:  # CuPy's fill would compile a kernel first.
            return self.upload(np.full(shape, value, dtype))
        array = self.empty(shape, dtype)
        self.fill(array, value)
        return array

    def upload(self, array: ArrayLike) -> Any:
        host = np.asarray(array, order="C")
        device = self.empty(host.shape, host.dtype)
        if not is_placed(host):
            if host.nbytes > SMALL_BYTES:

                def send(staged: np.ndarray, part: Rows) -> None:
                    self._send(device.data.ptr + part.first, staged)

                self._in_flight += staged_upload(self._pinned, host, chunks(host.nbytes), send, self._queued)
                return device
            staged = self._pinned.array(host.shape, host.dtype)
            staged[...] = host
            host = staged
        self._in_flight.append(host)
        self._send(device.data.ptr, host)
        return device

    def upload_rows(self, matrix: np.ndarray, width: int) -> Any:
        device = self.empty((len(matrix), width), matrix.dtype)
        if not matrix.nbytes:
            return device
        self.fill(device, 0)
        matrix = np.ascontiguousarray(matrix)
        row_bytes, pitch = matrix.shape[1] * matrix.itemsize, width * matrix.itemsize
        count = max(ceil_div(matrix.nbytes, CHUNK_BYTES), TRIANGLE_PARTS if matrix.nbytes > SMALL_BYTES else 1)
        height = len(matrix) if is_placed(matrix) else ceil_div(len(matrix), count)
        parts = [
            Rows(first * row_bytes, min(height, len(matrix) - first), row_bytes, row_bytes)
            for first in range(0, len(matrix), height)
        ]
        self._upload_parts(matrix, parts, lambda part: device.data.ptr + part.first // row_bytes * pitch, pitch)
        return device

    def upload_symmetric(self, matrix: np.ndarray) -> Any:
        if matrix.nbytes <= (SMALL_PLACED_BYTES if is_placed(matrix) else SMALL_MATRIX_BYTES):
            return self.upload(matrix)
        matrix = np.ascontiguousarray(matrix)
        p, itemsize = len(matrix), matrix.itemsize
        device = self.empty(matrix.shape, matrix.dtype)
        # Rows from `first` on contain the fraction (1 - first / p)^2 of the triangle, so these bounds cut it into equal
        # parts.
        count = max(TRIANGLE_PARTS, ceil_div(matrix.nbytes, 2 * CHUNK_BYTES))
        bounds = [round(p * (1 - math.sqrt(1 - part / count))) for part in range(count + 1)]
        parts = [
            Rows(first * (p + 1) * itemsize, last - first, (p - first) * itemsize, p * itemsize)
            for first, last in itertools.pairwise(bounds)
            if last > first
        ]
        self._upload_parts(matrix, parts, lambda part: device.data.ptr + part.first, p * itemsize)
        tiles = ceil_div(p, 32)
        self.kernel(*MIRROR)((tiles, tiles), (32, 8), [device, np.int32(p)])
        return device

    def _upload_parts(
        self, matrix: np.ndarray, parts: Sequence[Rows], address: Callable[[Rows], int], pitch: int
    ) -> None:
        """Upload parts of a C-contiguous matrix, each to rows on the device that begin `pitch` bytes apart."""
        if is_placed(matrix):
            self._in_flight.append(matrix)
            for part in parts:
                self._send_rows(address(part), pitch, matrix.ctypes.data, part)
            return

        def send(staged: np.ndarray, part: Rows) -> None:
            rows, width = staged.shape
            self._send_rows(address(part), pitch, staged.ctypes.data, Rows(0, rows, width, width))

        self._in_flight += staged_upload(self._pinned, matrix, parts, send, self._queued)

    def _send(self, address: int, pinned: np.ndarray) -> None:
        """Queue a copy of a pinned array to the device."""
        if pinned.nbytes:
            runtime = self._cupy.cuda.runtime
            kind = runtime.memcpyHostToDevice
            with self._on_device():
                runtime.memcpyAsync(address, pinned.ctypes.data, pinned.nbytes, kind, self._stream.ptr)

    def _send_rows(self, address: int, pitch: int, pinned: int, part: Rows) -> None:
        """Queue a copy from pinned memory at an address to rows on the device that begin `pitch` bytes apart."""
        runtime = self._cupy.cuda.runtime
        kind, source = runtime.memcpyHostToDevice, pinned + part.first
        with self._on_device():
            runtime.memcpy2DAsync(address, pitch, source, part.stride, part.width, part.rows, kind, self._stream.ptr)

    # --- to the host -------------------------------------------------------------------------------------------

    def download_all(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        if sum(array.nbytes for array in arrays) > PINNED_RESULT_BYTES:
            return [self.download(array) for array in arrays]
        out = [self._pinned.array(array.shape, array.dtype) for array in arrays]
        for host, array in zip(out, arrays, strict=True):
            self._fetch(host, array.data.ptr)
        self.synchronize()
        return out

    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        if not array.nbytes:
            return np.empty(array.shape, array.dtype)
        if out is not None or array.nbytes <= PINNED_RESULT_BYTES:
            host = self._pinned.array(array.shape, array.dtype) if out is None else out
            self._fetch(host, array.data.ptr)
            self.synchronize()
            return host
        host = np.empty(array.shape, array.dtype)

        def fetch(staged: np.ndarray, offset: int) -> Callable[[], None]:
            self._fetch(staged, array.data.ptr + offset)
            return self._queued()

        staged_download(self._pinned, host, fetch)
        self.synchronize()
        return host

    def _fetch(self, pinned: np.ndarray, address: int) -> None:
        """Queue a copy from the device to a pinned array."""
        if pinned.nbytes:
            runtime = self._cupy.cuda.runtime
            kind = runtime.memcpyDeviceToHost
            with self._on_device():
                runtime.memcpyAsync(pinned.ctypes.data, address, pinned.nbytes, kind, self._stream.ptr)

    # --- host memory that copies are fast from ------------------------------------------------------------------

    def host_empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        return self._pinned.array(as_tuple(shape), dtype)

    @property
    def host_arrays(self) -> Empty:
        return self._placed_array

    def _placed_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return an array in pinned memory, or in pageable memory if the array is very large or no more memory can be
        pinned."""
        sizes = as_tuple(shape)
        if math.prod(sizes) * np.dtype(dtype).itemsize <= MAX_PLACED_BYTES:
            with contextlib.suppress(MemoryError):
                return self._pinned.array(sizes, dtype)
        return np.empty(sizes, dtype)
