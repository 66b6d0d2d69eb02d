"""Correlations whose bits do not depend on where they are computed (kernels/correlate.cu), and problems with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, open_backend
from gpupc_impl.core import mapped_arrays
from gpupc_impl.gaussian.correlation import SOURCE as STANDARDISE_SOURCE
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

SOURCE = "distributed/kernels/correlate.cu"
CORRELATE = KernelSource(SOURCE, "correlate")
STANDARDISE = KernelSource(STANDARDISE_SOURCE, "standardise")

TILES = {"cuda": (128, 64), "host": (64, 64)}
SMALL_TILE = 32  # rows and columns of a small tile (kernels/correlate.cu)
MOST_SMALL = 96  # the most variables of a matrix that is made of small tiles
TILE_CONSTANTS = {
    name: {"TILE_ROWS": rows, "TILE_COLUMNS": columns, "SMALL_TILE": SMALL_TILE}
    for name, (rows, columns) in TILES.items()
}

THREADS = {"cuda": (16, 16), "host": (1, 1)}
SMALL_THREADS = {"cuda": (8, 8), "host": (1, 1)}
SQUARES = tuple(KernelSource(SOURCE, f"correlate_squares<{flag}>") for flag in ("false", "true"))  # large, small tiles
COLUMNS_AT_ONCE = 512  # upper bound on the variables that are standardised at a time, to save device memory


def standardised(backend: Backend, samples: np.ndarray) -> np.ndarray:
    """Return (m, p) columns with mean 0 and Euclidean length 1, with the same bits on any backend; a constant column is
    zero.
    """
    out = np.empty(samples.shape)
    for columns in mapped_arrays.pieces(samples.shape[1], COLUMNS_AT_ONCE):
        out[:, columns] = backend.download(_standardised(backend, np.ascontiguousarray(samples[:, columns])))
    return out


class SampleRows:
    """The transpose of the result of `standardised`, on a device, made from parts of the samples."""

    def __init__(self, backend: Backend, m: int, p: int, at_once: int):
        self._backend = backend
        # The memory of a part is reused, since new pages take longer than copies.
        self._memory = np.empty(m * min(at_once, p))
        self.rows = backend.empty((p, m), np.float64)

    def add(self, variables: slice, samples: np.ndarray) -> None:
        """Standardise the (m, width) samples of some variables."""
        part = self._memory[: samples.size].reshape(samples.shape)
        mapped_arrays.by_pieces(part, lambda rows: np.copyto(part[rows], samples[rows]))
        with self._backend.array_library():
            self.rows[variables] = _standardised(self._backend, part).T


def _standardised(backend: Backend, samples: np.ndarray) -> Any:
    """Return standardised (m, width) samples on the device."""
    device, (m, width) = backend.upload(samples), samples.shape
    threads = 128 if backend.warp_threads > 1 else 1
    backend.kernel(*STANDARDISE)((ceil_div(width, threads),), (threads,), [device, np.int32(m), np.int32(width)])
    return device


def correlate(backend: Backend, samples: Any, rows: Any, columns: Any, out: Any) -> None:
    """Queue the computation of the correlations of some variables with others.

    Args:
        samples: (m, p) float64, standardised, on the device.
        rows, columns: int32 variables, on the device.
        out: (rows, columns) float64, on the device, which receives the correlations.
    """
    m, p = samples.shape
    n_rows, n_columns = len(rows), len(columns)
    if n_rows and n_columns:
        height, width = TILES[backend.name]
        inputs = (samples, np.int32(m), np.int32(p), rows, np.int32(n_rows), columns, np.int32(n_columns))
        grid = ceil_div(n_columns, width), ceil_div(n_rows, height)
        _tile_kernel(CORRELATE, backend)(grid, THREADS[backend.name], [*inputs, out])


def correlate_squares(backend: Backend, samples: Any, variables: np.ndarray, sizes: np.ndarray) -> Any:
    """Queue the computation of a correlation matrix for each of some groups of variables.

    Args:
        samples: (m, p) float64, standardised, on the device.
        variables: int32 variables, group after group.
        sizes: (groups,) the number of variables of each group.

    Returns:
        the square matrices, one after the other, float64 on the device.
    """
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
    """Return (tiles, 3) int32: the matrix, first row and first column of each tile of square matrices of these
    sizes."""
    across = ceil_div(sizes, width)
    counts = ceil_div(sizes, height) * across
    matrix = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(len(matrix)) - np.repeat(np.cumsum(counts) - counts, counts)
    row, column = np.divmod(number, across[matrix])
    return np.stack([matrix, height * row, width * column], axis=1).astype(np.int32)


class Numbers(Protocol):
    """The numbers of a problem on a worker, from which it takes canonical correlations.

    Attributes:
        samples_held: the number of samples on the device; 0 for a correlation matrix.
    """

    samples_held: int

    def tile(self, rows: slice, stop: int) -> Any:
        """Return (rows, stop) float64 on the device: the correlations of some variables with those below `stop`."""

    def squares(self, variables: np.ndarray, sizes: np.ndarray) -> Any:
        """Return the correlation matrix of each group of variables, one after the other, on the device; see
        `correlate_squares`."""


class SampleNumbers:
    """Standardised samples, (m, p) float64 on the device."""

    def __init__(self, backend: Backend, samples: Any):
        self._backend, self._samples, self.samples_held = backend, samples, len(samples)

    def tile(self, rows: slice, stop: int) -> Any:
        own, others = (
            self._backend.upload(np.arange(*ends, dtype=np.int32)) for ends in ((rows.start, rows.stop), (stop,))
        )
        out = self._backend.empty((rows.stop - rows.start, stop), np.float64)
        correlate(self._backend, self._samples, own, others, out)
        return out

    def squares(self, variables: np.ndarray, sizes: np.ndarray) -> Any:
        return correlate_squares(self._backend, self._samples, variables, sizes)


class MatrixNumbers:
    """A correlation matrix, (p, p) float64 in host memory."""

    samples_held = 0

    def __init__(self, backend: Backend, matrix: np.ndarray):
        self._backend, self._matrix = backend, matrix

    def tile(self, rows: slice, stop: int) -> Any:
        tile = self._backend.upload(self._matrix[rows, :stop])
        mapped_arrays.release(self._matrix)
        return tile

    def squares(self, variables: np.ndarray, sizes: np.ndarray) -> Any:
        groups = np.split(variables, np.cumsum(sizes)[:-1])
        matrices = [self._matrix[np.ix_(members, members)].reshape(-1) for members in groups]
        mapped_arrays.release(self._matrix)
        return self._backend.upload(np.concatenate(matrices))


def fixed_order_correlation(samples: np.ndarray, backend: Backend | None = None) -> np.ndarray:
    """Return (p, p) correlations of (m, p) samples, with the same bits as in method `distributed`.

    Args:
        backend: where correlations are computed; by default a GPU if one is visible, else this machine's cores.
    """
    backend = backend or open_backend()
    device = backend.upload(standardised(backend, samples))
    p = samples.shape[1]
    variables = backend.upload(np.arange(p, dtype=np.int32))
    out = backend.empty((p, p), np.float64)
    correlate(backend, device, variables, variables, out)
    return backend.download(out)


def fixed_order_problem(
    data: Any, *, names: Sequence[str] | None = None, backend: Backend | None = None, **search: Any
) -> GaussianProblem:
    """Return the problem of `GaussianProblem.from_data`, but with the correlations that method `distributed` computes.

    The correlations agree to the bit, so every method gives the answer to this problem that `distributed` gives to the
    data. The matrix takes 8 p^2 bytes of memory.

    Args:
        data: (m, p) samples by variables.
        backend: see `fixed_order_correlation`.
        search: alpha, max_level and the parameters of the test, as `from_data` takes them.

    Raises:
        InvalidProblem: the data or a parameter cannot be used.
    """
    problem = GaussianProblem.from_data(data, names=names, correlations="device", **search)
    assert problem.samples is not None
    matrix = fixed_order_correlation(problem.samples, backend)
    matrix.setflags(write=False)
    return dataclasses.replace(problem, correlation=matrix, correlations="host", samples=None)
