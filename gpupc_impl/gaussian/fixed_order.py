"""Correlations on a device: uploaded; computed from the samples by the device's library; or summed in a fixed order,
so that their bits are the same wherever they are computed (kernels/fixed_order.cu)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

SOURCE = "gaussian/kernels/fixed_order.cu"
CORRELATE = KernelSource(SOURCE, "correlate")
STANDARDISE = KernelSource("gaussian/kernels/correlate.cu", "standardise")
MAKE_EXACT = KernelSource("gaussian/kernels/correlate.cu", "make_exact")
TILES = {"cuda": (128, 64), "host": (64, 64)}
SMALL_TILE = 32  # rows and columns of a small tile (kernels/fixed_order.cu)
MOST_SMALL = 96  # the most variables of a matrix that is made of small tiles
TILE_CONSTANTS = {
    name: {"TILE_ROWS": rows, "TILE_COLUMNS": columns, "SMALL_TILE": SMALL_TILE}
    for name, (rows, columns) in TILES.items()
}

THREADS = {"cuda": (16, 16), "host": (1, 1)}
SMALL_THREADS = {"cuda": (8, 8), "host": (1, 1)}
SQUARES = tuple(KernelSource(SOURCE, f"correlate_squares<{flag}>") for flag in ("false", "true"))  # large, small tiles
UNIT_ROUNDOFF = 2.0**-53


def product_bound(m: int) -> float:
    """Return an upper bound on the difference of two correlations of m samples that are summed in different orders. A
    sum of m products, in any order and with or without fused operations, differs from the exact sum by at most gamma_m
    |x| |y| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), where gamma_m = m u / (1 - m u) and u
    = 2^-53. The length of a standardised column is one up to rounding, which the bound covers by m + 8 in the place of
    m. Clamping two numbers to [-1, 1] does not increase their difference."""
    steps = (m + 8) * UNIT_ROUNDOFF
    return 2 * steps / (1 - steps)


def standardised_on_device(backend: Backend, samples: np.ndarray) -> Any:
    """Return (m, width) columns with mean 0 and Euclidean length 1 on the device; a constant column is zero."""
    device, (m, width) = backend.upload(samples), samples.shape
    threads = 128 if backend.warp_threads > 1 else 1
    backend.kernel(*STANDARDISE)((ceil_div(width, threads),), (threads,), [device, np.int32(m), np.int32(width)])
    return device


def device_correlation(backend: Backend, problem: GaussianProblem) -> Any:
    """Return the (p, p) float64 correlations of a problem on the device, which are only read."""
    if problem.correlations == "host":
        return backend.upload_symmetric(problem.correlation)
    correlation = backend.gram(standardised_on_device(backend, problem.samples))
    tiles = ceil_div(len(correlation), 32)
    backend.kernel(*MAKE_EXACT)((tiles, tiles), (32, 8), [correlation, np.int32(len(correlation))])
    return correlation


def correlate(backend: Backend, samples: Any, rows: Any, columns: Any, out: Any) -> None:
    """Queue the computation of the correlations of some variables (`rows`, int32) with others (`columns`, int32) from
    the standardised (m, p) float64 samples into `out`, (rows, columns) float64; all lie on the device."""
    m, p = samples.shape
    n_rows, n_columns = len(rows), len(columns)
    if n_rows and n_columns:
        height, width = TILES[backend.name]
        inputs = (samples, np.int32(m), np.int32(p), rows, np.int32(n_rows), columns, np.int32(n_columns))
        grid = ceil_div(n_columns, width), ceil_div(n_rows, height)
        _tile_kernel(CORRELATE, backend)(grid, THREADS[backend.name], [*inputs, out])


def correlate_squares(backend: Backend, samples: Any, variables: np.ndarray, sizes: np.ndarray) -> Any:
    """Queue the computation of a correlation matrix for each of some groups of variables, from the standardised (m, p)
    float64 samples on the device. `variables` has the int32 variables group after group, `sizes` their numbers. The
    square matrices are returned one after the other, float64 on the device."""
    m, p = samples.shape
    out = backend.empty(int(np.square(sizes).sum()), np.float64)
    starts, places = (np.concatenate(([0], np.cumsum(counts))) for counts in (sizes, np.square(sizes)))
    sizes, arrays = np.asarray(sizes), [backend.upload(array) for array in (variables, starts, places)]
    shapes = (
        (sizes > MOST_SMALL, TILES, THREADS),
        (sizes <= MOST_SMALL, {backend.name: (SMALL_TILE,) * 2}, SMALL_THREADS),
    )
    for kernel, (chosen, shape, threads) in zip(SQUARES, shapes, strict=True):
        tiles = tiles_of(np.where(chosen, sizes, 0), *shape[backend.name])
        if len(tiles):
            inputs = [samples, np.int32(m), np.int32(p), *arrays, backend.upload(tiles), out]
            _tile_kernel(kernel, backend)((len(tiles),), threads[backend.name], inputs)
    return out


def _tile_kernel(kernel: KernelSource, backend: Backend) -> Any:
    return backend.kernel(*kernel._replace(constants=TILE_CONSTANTS[backend.name]))


def tiles_of(sizes: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return (tiles, 3) int32: the matrix, first row and column of each tile of squares of these sizes."""
    across = ceil_div(sizes, width)
    counts = ceil_div(sizes, height) * across
    matrix = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(len(matrix)) - np.repeat(np.cumsum(counts) - counts, counts)
    row, column = np.divmod(number, across[matrix])
    return np.stack([matrix, height * row, width * column], axis=1).astype(np.int32)
