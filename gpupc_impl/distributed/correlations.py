"""Correlations whose bits do not depend on where they are computed (kernels/correlate.cu), and problems with them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, open_backend
from gpupc_impl.core import mapped
from gpupc_impl.distributed.communicator import Communicator
from gpupc_impl.gaussian.correlation import SOURCE as STANDARDISE_SOURCE
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

SOURCE = "distributed/kernels/correlate.cu"
CORRELATE = KernelSource(SOURCE, "correlate")
SQUARES = KernelSource(SOURCE, "correlate_squares")
STANDARDISE = KernelSource(STANDARDISE_SOURCE, "standardise")
MIRROR = KernelSource(SOURCE, "mirror")

TILES = {"cuda": (128, 64), "host": (64, 64)}
"""Rows and columns of a tile, by backend."""

TILE_CONSTANTS = {name: {"TILE_ROWS": rows, "TILE_COLUMNS": columns} for name, (rows, columns) in TILES.items()}

THREADS = {"cuda": (16, 16), "host": (1, 1)}
"""The thread block of a tile, by backend."""

COLUMNS_AT_ONCE = 512
"""Upper bound on the variables that are standardised at a time, to save device memory."""


def standardised(backend: Backend, samples: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return (m, p) columns with mean 0 and Euclidean length 1, with the same bits on any backend; a constant column is
    zero.

    Args:
        samples: (m, p).
        out: (m, p) float64 array for the result, such as a mapped file; a new array by default.
    """
    out = np.empty(samples.shape) if out is None else out
    for columns, device in _standardised_parts(
        backend, samples, list(mapped.pieces(samples.shape[1], COLUMNS_AT_ONCE))
    ):
        out[:, columns] = backend.download(device)
    return out


def standardised_rows(devices: Communicator, samples: np.ndarray, at_once: int) -> Any:
    """Return (p, m) float64 on the device: the transpose of the result of `standardised`, which devices share.

    Args:
        at_once: number of variables that are standardised at a time.
    """
    m, p = samples.shape
    backend, rows = devices.backend, devices.backend.empty((p, m), np.float64)
    parts = [(k % devices.size, variables) for k, variables in enumerate(mapped.pieces(p, at_once))]
    own = [variables for owner, variables in parts if owner == devices.number]
    for variables, device in _standardised_parts(backend, samples, own):
        with backend.array_library():
            rows[variables] = device.T
    devices.complete([rows], parts)
    return rows


def _standardised_parts(backend: Backend, samples: np.ndarray, parts: Sequence[slice]) -> Iterator[tuple[slice, Any]]:
    """Yield parts of the standardised columns, each as (m, width) float64 on the device."""
    m = len(samples)
    threads = 128 if backend.warp_threads > 1 else 1
    kernel = backend.kernel(*STANDARDISE)
    # The memory is reused, since new pages take longer than copies.
    memory = np.empty(m * max((columns.stop - columns.start for columns in parts), default=0))
    for columns in parts:
        width = columns.stop - columns.start
        part = memory[: m * width].reshape(m, width)
        mapped.by_pieces(part, functools.partial(_copy_columns, part, samples, columns))
        device = backend.upload(part)
        kernel((ceil_div(width, threads),), (threads,), [device, np.int32(m), np.int32(width)])
        yield columns, device


def _copy_columns(to: np.ndarray, samples: np.ndarray, columns: slice, rows: slice) -> None:
    to[rows] = samples[rows, columns]


def correlate(backend: Backend, samples: Any, rows: Any, columns: Any, out: Any, first: int = 0) -> None:
    """Queue the computation of the correlations of some variables with others.

    Args:
        samples: (m, p) float64, standardised, on the device.
        rows, columns: int32 variables, on the device.
        out: (rows, width) float64, on the device, whose columns from `first` on receive the correlations.
    """
    m, p = samples.shape
    n_rows, n_columns = len(rows), len(columns)
    if n_rows and n_columns:
        height, width = TILES[backend.name]
        inputs = (samples, np.int32(m), np.int32(p), rows, np.int32(n_rows), columns, np.int32(n_columns))
        grid = ceil_div(n_columns, width), ceil_div(n_rows, height)
        target = (out, np.int32(out.shape[1]), np.int32(first))
        _tile_kernel(CORRELATE, backend)(grid, THREADS[backend.name], [*inputs, *target])


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
    tiles = tiles_of(sizes, *TILES[backend.name])
    arrays = map(backend.upload, (variables, starts, places, tiles))
    inputs = [samples, np.int32(m), np.int32(p), *arrays, out]
    _tile_kernel(SQUARES, backend)((len(tiles),), THREADS[backend.name], inputs)
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


def mirror(backend: Backend, other: Any, first_other: int, own: Any, first: int) -> None:
    """Queue the copying, by symmetry, of entries of the rows `own` that the rows `other` contain already.

    Args:
        other, own: (rows, p) float64 on the device: the rows of the variables from `first_other` and from `first` on.
    """
    n_other, p = other.shape
    numbers = [other, np.int32(n_other), np.int32(first_other), own, *map(np.int32, (len(own), first, p))]
    backend.kernel(*MIRROR)((ceil_div(n_other, 32), ceil_div(len(own), 32)), (32, 8), numbers)


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
