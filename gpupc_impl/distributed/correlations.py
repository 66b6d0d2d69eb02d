"""Correlations whose bits are the same wherever they are made: kernels/correlate.cu, and problems that have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, open_backend
from gpupc_impl.core import mapped
from gpupc_impl.gaussian.correlation import SOURCE as STANDARDISE_SOURCE
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

CORRELATE = KernelSource("distributed/kernels/correlate.cu", "correlate")

SQUARES = KernelSource("distributed/kernels/correlate.cu", "correlate_squares")
MIRROR = KernelSource("distributed/kernels/correlate.cu", "mirror")

TILES = {"cuda": (128, 64), "host": (64, 64)}
"""Rows and columns of a tile (kernels/correlate.cu)."""

THREADS = {"cuda": (16, 16), "host": (1, 1)}

COLUMNS_AT_ONCE = 512
"""Variables that are standardised together: what the device holds of them is small."""


def standardised(backend: Backend, samples: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """(m, p) columns with mean zero and length one, zeros for constant ones: the same bits on every backend.

    Args:
        out: where they go, such as a mapped file; a new array by default.
    """
    m, p = samples.shape
    out = np.empty((m, p)) if out is None else out
    threads = 128 if backend.warp_threads > 1 else 1
    kernel = backend.kernel(STANDARDISE_SOURCE, "standardise")
    for columns in mapped.pieces(p, COLUMNS_AT_ONCE):
        device = backend.upload(np.ascontiguousarray(samples[:, columns], np.float64))
        width = device.shape[1]
        kernel((ceil_div(width, threads),), (threads,), [device, np.int32(m), np.int32(width)])
        out[:, columns] = backend.download(device)
    return out


def correlate(backend: Backend, samples: Any, rows: Any, columns: Any, out: Any, first: int = 0) -> None:
    """Queue the correlations of some variables with others.

    Args:
        samples: (m, p) float64, standardised, on the device.
        rows, columns: int32 variables, on the device.
        out: (rows, width) float64, on the device: they go into its columns from `first` on.
    """
    m, p = samples.shape
    n_rows, n_columns = len(rows), len(columns)
    if n_rows and n_columns:
        height, width = TILES[backend.name]
        given = (samples, np.int32(m), np.int32(p), rows, np.int32(n_rows), columns, np.int32(n_columns))
        grid = ceil_div(n_columns, width), ceil_div(n_rows, height)
        place = (out, np.int32(out.shape[1]), np.int32(first))
        backend.kernel(*CORRELATE)(grid, THREADS[backend.name], [*given, *place])


def correlate_squares(backend: Backend, samples: Any, variables: np.ndarray, sizes: np.ndarray) -> Any:
    """Queue the correlations among the variables of each of some groups.

    Args:
        samples: (m, p) float64, standardised, on the device.
        variables: int32 variables, group after group.
        sizes: (groups,) how many each group has.

    Returns:
        the groups' square matrices, one after the other, float64 on the device.
    """
    m, p = samples.shape
    out = backend.empty(int(np.square(sizes).sum()), np.float64)
    starts, places = (np.concatenate(([0], np.cumsum(counts))) for counts in (sizes, np.square(sizes)))
    tiles = tiles_of(sizes, *TILES[backend.name])
    arrays = map(backend.upload, (variables, starts, places, tiles))
    backend.kernel(*SQUARES)((len(tiles),), THREADS[backend.name], [samples, np.int32(m), np.int32(p), *arrays, out])
    return out


def tiles_of(sizes: np.ndarray, height: int, width: int) -> np.ndarray:
    """(tiles, 3) int32: matrix, first row and first column of each tile of square matrices of these sizes."""
    across = ceil_div(sizes, width)
    counts = ceil_div(sizes, height) * across
    matrix = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(len(matrix)) - np.repeat(np.cumsum(counts) - counts, counts)
    row, column = np.divmod(number, across[matrix])
    return np.stack([matrix, height * row, width * column], axis=1).astype(np.int32)


def mirror(backend: Backend, other: Any, first_other: int, own: Any, first: int) -> None:
    """Queue the copying of entries that other whole rows have already.

    Args:
        other, own: (rows, p) float64 of the variables from `first_other` and from `first` on.
    """
    n_other, p = other.shape
    numbers = [other, np.int32(n_other), np.int32(first_other), own, *map(np.int32, (len(own), first, p))]
    backend.kernel(*MIRROR)((ceil_div(n_other, 32), ceil_div(len(own), 32)), (32, 8), numbers)


def fixed_order_correlation(samples: np.ndarray, backend: Backend | None = None) -> np.ndarray:
    """(p, p) correlations of (m, p) samples: those of `distributed`, to the bit, in memory.

    Args:
        backend: where they are made; by default a GPU where one is visible, else this machine's cores.
    """
    backend = backend or open_backend()
    device = backend.upload(standardised(backend, samples))
    p = samples.shape[1]
    every = backend.upload(np.arange(p, dtype=np.int32))
    out = backend.empty((p, p), np.float64)
    correlate(backend, device, every, every, out)
    return backend.download(out)


def fixed_order_problem(
    data: Any, *, names: Sequence[str] | None = None, backend: Backend | None = None, **search: Any
) -> GaussianProblem:
    """The problem that `GaussianProblem.from_data` makes, with the correlations of `distributed`, to the bit.

    Every method gives the answer to it that `distributed` gives to the data. The matrix is in memory, 8 p^2 bytes.

    Args:
        data: (m, p) samples by variables.
        backend: see `fixed_order_correlation`.
        search: alpha, max_level and the test's parameters, as `from_data` takes them.

    Raises:
        InvalidProblem: the data or a parameter cannot be used.
    """
    given = GaussianProblem.from_data(data, names=names, correlations="device", **search)
    assert given.samples is not None
    matrix = fixed_order_correlation(given.samples, backend)
    matrix.setflags(write=False)
    return dataclasses.replace(given, correlation=matrix, correlations="host", samples=None)
