"""Gaussian problems whose correlation matrix is too large for memory and lies in an ``.npy`` file.

    values = np.load("expression.npy", mmap_mode="r")  # samples x variables
    problem = problem_from_data(values, "correlation.npy", alpha=0.01, max_level=1)
    problem.save("problem.npz")  # small; the matrix stays in its file beside it

The matrix is computed once and then only read, so that every method reads the same bits. The data may be any array that
can be sliced in two dimensions, such as an array in memory, a mapped ``.npy`` or a zarr array.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.files import write_whole
from gpupc_impl.core.problem import InvalidProblem, as_matrix, name_constants
from gpupc_impl.gaussian.matrix import check_correlations, standardized
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

LARGE = 10_000
"""The number of variables above which the workflow stores the correlation matrix, of 0.8 GB or more, in a separate
file."""

TILE = 2048
"""The number of variables on a side of a tile. A tile of this size takes 33 MB and writes 16 kB of each of its rows."""

Progress = Callable[[int, int], None]
"""A function that is called with the number of finished tiles and the number of all tiles."""


def correlation_tiles(
    values: Any, out_path: str | Path, *, tile: int = TILE, progress: Progress | None = None
) -> tuple[np.memmap, np.ndarray]:
    """Compute the Pearson correlations of the columns of an (m, p) matrix, and write them to an ``.npy`` file tile by
    tile.

    The matrix is exactly symmetric. The entries equal those of `correlation_matrix` up to rounding (a few 1e-16), and
    to the bit if one tile holds the whole matrix. On one machine the same tile size always gives the same bits. The
    computation takes about 8 (4 m t + 3 t^2) bytes of memory for tiles of t variables, beside the data if these are in
    memory.

    Args:
        values: (m, p) numbers, all finite.
        out_path: the file for the (p, p) float64 matrix, which is written completely or not at all.
        tile: variables on a side of a tile.

    Returns:
        The matrix, mapped read-only, with zeros for constant columns, and (p,) bool that marks these columns.

    Raises:
        InvalidProblem: the shape is wrong, or a value is missing or infinite.
        OSError: the disk has no space for the file.
    """
    if len(values.shape) != 2 or values.shape[0] < 2 or values.shape[1] < 1:
        raise InvalidProblem(
            f"data has shape {tuple(values.shape)}; it must be 2 or more samples x 1 or more variables"
        )
    p = values.shape[1]
    constant = np.zeros(p, bool)

    def panel(columns: slice) -> np.ndarray:
        panel_values = np.asarray(values[:, columns], np.float64)
        bad = np.argwhere(~np.isfinite(panel_values))
        if len(bad):
            row, column = bad[0]
            raise InvalidProblem(
                f"data has missing or infinite values, one in row {row}, column {columns.start + column}; "
                "drop such rows or impute them first"
            )
        standard, constant[columns] = standardized(panel_values)
        mapped_arrays.release(values)
        return standard

    with write_whole(out_path) as file:
        out = mapped_arrays.new_npy(file, (p, p))
        for rows, column_tiles in _upper_tiles(p, tile, progress):
            left = panel(rows)
            for columns in column_tiles:
                if columns == rows:
                    block = left.T @ left
                    np.fill_diagonal(block, 1.0)
                else:
                    block = left.T @ panel(columns)
                _put(out, rows, columns, np.clip(block, -1.0, 1.0, out=block))
        out.flush()
    return np.load(out_path, mmap_mode="r"), constant


def exact_correlation(
    correlation: Any, out_path: str | Path, *, tile: int = TILE, progress: Progress | None = None
) -> np.memmap:
    """Make any correlation matrix exact, tile by tile, and write it to an ``.npy`` file that a problem can use.

    The bits are those of `GaussianProblem.from_correlation` for a matrix in memory: the mean of the matrix and its
    transpose, clamped to [-1, 1], with ones on the diagonal. The computation takes about 40 t^2 bytes of memory for
    tiles of t variables.

    Args:
        correlation: (p, p), an array that can be sliced (mapped, zarr, in memory).
        out_path: the file to write, which must not be the file of the matrix itself.

    Raises:
        InvalidProblem: the matrix is one that `GaussianProblem.from_correlation` refuses.
        OSError: the disk has no space for the file.
    """
    p = correlation.shape[0]
    if tuple(correlation.shape) != (p, p):
        raise InvalidProblem(f"correlation has shape {tuple(correlation.shape)}; it must be square")
    with write_whole(out_path) as file:
        out = mapped_arrays.new_npy(file, (p, p))
        for rows, column_tiles in _upper_tiles(p, tile, progress):
            for columns in column_tiles:
                upper = np.asarray(correlation[rows, columns], np.float64)
                lower = np.asarray(correlation[columns, rows], np.float64).T
                check_correlations(upper, lower, diagonal=rows == columns)
                block = np.clip((upper + lower) / 2, -1.0, 1.0)
                if rows == columns:
                    np.fill_diagonal(block, 1.0)
                _put(out, rows, columns, block)
                mapped_arrays.release(correlation)
        out.flush()
    return np.load(out_path, mmap_mode="r")


def problem_from_data(
    data: Any,
    correlation_path: str | Path,
    *,
    names: Sequence[str] | None = None,
    tile: int = TILE,
    progress: Progress | None = None,
    **parameters: Any,
) -> GaussianProblem:
    """Return the problem of `GaussianProblem.from_data` with its correlation matrix in a file (see
    `correlation_tiles`).

    Args:
        data: (m, p) samples by variables: a DataFrame, whose column names are kept, or an array that can be sliced.
        correlation_path: the ``.npy`` file to write; 8 p^2 bytes.
        parameters: alpha, max_level and the parameters of `GaussianProblem.from_data`, except ``correlations``.

    Raises:
        InvalidProblem: the data or a parameter cannot be used.
        OSError: the disk has no space for the file.
    """
    if hasattr(data, "columns"):
        names = [str(name) for name in data.columns] if names is None else names
        data = data.to_numpy(np.float64)
    width = data.shape[1] if len(data.shape) == 2 else 0
    if width:  # Names and parameters are checked first, since the computation, which checks the values, takes long.
        _, names = as_matrix(np.zeros((1, width)), names)
        GaussianProblem.checked(data.shape[0], **parameters)
    matrix, constant = correlation_tiles(data, correlation_path, tile=tile, progress=progress)
    return GaussianProblem(
        names=names,
        correlation=matrix,
        constant=name_constants(names, constant),
        **GaussianProblem.checked(data.shape[0], **parameters),
    )


def prepare_large(data: Any, path: str | Path, **options: Any) -> GaussianProblem | None:
    """Return the problem with its correlation matrix in a file beside `path`; None if it has at most `LARGE` variables,
    or if correlations are computed on a device."""
    if data.shape[1] <= LARGE or options.pop("correlations", "host") == "device":
        return None
    return problem_from_data(data, Path(path).with_suffix(".npy"), **options)


def _upper_tiles(p: int, tile: int, progress: Progress | None) -> Iterator[tuple[slice, Iterator[slice]]]:
    """Yield the tiles on and above the diagonal: for each row of tiles its rows, and an iterator over the columns of
    its tiles."""
    if tile < 1:
        raise InvalidProblem(f"tile is {tile}; it must be at least 1")
    per_side = ceil_div(p, tile)
    total, done = per_side * (per_side + 1) // 2, 0

    def counted(tiles: Iterator[slice]) -> Iterator[slice]:
        nonlocal done
        for columns in tiles:
            yield columns
            done += 1
            if progress is not None:
                progress(done, total)

    for rows in mapped_arrays.pieces(p, tile):
        yield rows, counted(columns for columns in mapped_arrays.pieces(p, tile) if columns.start >= rows.start)


def _put(out: np.memmap, rows: slice, columns: slice, block: np.ndarray) -> None:
    """Write a tile and its mirror image."""
    out[rows, columns] = block
    if columns != rows:
        out[columns, rows] = block.T
    mapped_arrays.release(out)
