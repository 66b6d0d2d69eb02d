"""Products of standardised samples in single precision with a bound on their errors, by which filter.py decides."""

from __future__ import annotations

import abc
import math
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.core import mapped_arrays
from gpupc_impl.distributed.filter_bounds import DIGITS, SCALE, SINGLE_ROUNDOFF, part_bound
from gpupc_impl.gaussian.fixed_order import product_bound
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.out_of_core.host_blocks import in_threads

SMALL_PRODUCT = 1e7  # upper bound on the multiply-adds of a product that is computed on a single core
PITCH = 8  # the samples of a variable in parts are followed by zeros up to a multiple of this number, as libraries like
SHARE = 100  # parts are used if their error is at most 1 / SHARE of the critical |r|, as else much is tested again
SPLIT = KernelSource("distributed/kernels/parts.cu", "split_samples", (), {"SCALE": SCALE, "DIGITS": DIGITS})


class Products(abc.ABC):
    """Products of the (p, m) standardised samples on a device, off the canonical correlations by at most `error`."""

    error: float

    @abc.abstractmethod
    def multiply(self, library: Any, rows: slice, columns: slice, out: Any) -> None:
        """Queue the products of some variables with others into `out`, (rows, columns) float32, consecutive in rows."""


class DoubleProducts(Products):
    """Products of the device's library in double precision, `at_once` in one go, rounded to single precision."""

    def __init__(self, backend: Backend, samples: Any, at_once: int):
        self._backend, self._samples, self._made = backend, samples, backend.empty(at_once, np.float64)
        self.error = product_bound(samples.shape[1]) + SINGLE_ROUNDOFF / 2  # of the sums, and of rounding them

    def multiply(self, library: Any, rows: slice, columns: slice, out: Any) -> None:
        width, others = columns.stop - columns.start, self._samples[columns].T
        for part in mapped_arrays.pieces(rows.stop - rows.start, max(1, len(self._made) // max(1, width))):
            height, own = part.stop - part.start, self._samples[rows][part]
            made = self._made[: height * width].reshape(height, width)
            is_large = height * width * self._samples.shape[1] > SMALL_PRODUCT
            threads = self._backend.array_threads if is_large else 1

            def multiply(some: slice, own: Any = own, made: Any = made, to: Any = out[part]) -> None:
                library.matmul(own[some], others, out=made[some])
                to[some] = made[some]

            in_threads(multiply, mapped_arrays.pieces(height, ceil_div(height, threads)), threads)


class PartProducts(Products):
    """Products of samples in two parts by tensor cores, from FP16 to single precision (`filter_bounds.part_bound`)."""

    def __init__(self, backend: Backend, samples: Any):
        p, m = samples.shape
        self._pitch = round_up(m, PITCH)
        self._parts = backend.empty((p, 3 * self._pitch), np.float16 if backend.warp_threads > 1 else np.float32)
        left = backend.full(2, 0.0, np.float64)
        threads = 8 * backend.warp_threads if backend.warp_threads > 1 else 1
        arguments = [samples, *map(np.int32, (m, p, self._pitch)), self._parts, left]
        backend.kernel(*SPLIT)((ceil_div(p, max(1, threads // 32)),), (threads,), arguments)
        self.error = part_bound(m, *np.sqrt(backend.download(left)).tolist())
        self._of_high, self._of_low = SCALE**-2.0, SCALE**-2.0 / 2**DIGITS

    def multiply(self, library: Any, rows: slice, columns: slice, out: Any) -> None:
        own, others, pitch = self._parts[rows], self._parts[columns], self._pitch
        add_products(library, own[:, : 2 * pitch], others[:, pitch:], self._of_low, 0.0, out)
        add_products(library, own[:, :pitch], others[:, :pitch], self._of_high, 1.0, out)


def add_products(library: Any, own: Any, others: Any, scale: float, share: float, out: Any) -> None:
    """Set `out` to `scale` own others^T + `share` out. Rows are consecutive in memory."""
    if library is np:
        out[...] = np.float32(scale) * (own @ others.T) + np.float32(share) * (out if share else 0.0)
        return
    cuda, cublas = library.cuda.runtime, library.cuda.cublas
    (height, depth), width, factors = own.shape, len(others), np.array([scale, share], np.float32)
    cublas.gemmEx(
        library.cuda.device.get_cublas_handle(),
        cublas.CUBLAS_OP_T,
        cublas.CUBLAS_OP_N,
        *(width, height, depth),
        factors.ctypes.data,
        *(others.data.ptr, cuda.CUDA_R_16F, others.strides[0] // 2),
        *(own.data.ptr, cuda.CUDA_R_16F, own.strides[0] // 2),
        factors.ctypes.data + 4,
        *(out.data.ptr, cuda.CUDA_R_32F, out.strides[0] // 4),
        cublas.CUBLAS_COMPUTE_32F,
        cublas.CUBLAS_GEMM_DEFAULT_TENSOR_OP,
    )


def part_bytes(backend: Backend, m: int, critical: float) -> int:
    """Return the bytes of the m samples of a variable in parts; 0 if products are of double precision, since the device
    has no tensor cores or the critical r^2 is too small."""
    likely = math.sqrt(m / 12)  # the length of m errors of rounding
    if backend.warp_threads == 1 or SHARE * part_bound(m, likely, likely) > math.sqrt(critical):
        return 0
    return 3 * round_up(m, PITCH) * 2  # a number of FP16 takes two bytes
