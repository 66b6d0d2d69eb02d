"""Gaussian problems whose correlation matrix is too large for memory and lies in an ``.npy`` file.

    values = np.load("expression.npy", mmap_mode="r")  # samples x variables
    problem = problem_from_data(values, "correlation.npy", alpha=0.01, max_level=1)
    problem.save("problem.npz")  # small; the matrix stays in its file beside it

The matrix is computed once and then only read, so that every method reads the same bits. The data may be any array that
can be sliced in two dimensions, such as an array in memory, a mapped ``.npy`` or a zarr array."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.files import write_whole
from gpupc_impl.core.problem import InvalidProblem, as_matrix, name_constants
from gpupc_impl.gaussian.matrix import standardized
from gpupc_impl.gaussian.problem import GaussianProblem

LARGE = 10_000  # variables above which the workflow stores the matrix, of 0.8 GB or more, in a file of its own
TILE = 2048  # variables on a side of a tile, which takes 33 MB and writes 16 kB of each of its rows
Progress = Callable[[int, int], None]  # called with the numbers of finished and of all tiles


def problem_from_data(
    data: Any,
    correlation_path: str | Path,
    *,
    names: Sequence[str] | None = None,
    tile: int = TILE,
    progress: Progress | None = None,
    **parameters: Any,
) -> GaussianProblem:
    """Return the problem of `GaussianProblem.from_data`, whose parameters it takes except ``correlations``, with its
    correlation matrix in an ``.npy`` file of 8 p^2 bytes. The data are (m, p), a DataFrame, whose column names are
    kept, or an array that can be sliced. The correlations equal those in memory up to rounding (a few 1e-16), and to
    the bit if one tile holds all. On one machine the same tile size always gives the same bits. For tiles of t
    variables on a side the computation takes about 8 (4 m t + 3 t^2) bytes of memory, beside the data if these are in
    memory. InvalidProblem is raised if the data or a parameter cannot be used, OSError if the disk has no space."""
    if hasattr(data, "columns"):
        names = [str(name) for name in data.columns] if names is None else names
        data = data.to_numpy(np.float64)
    width = data.shape[1] if len(data.shape) == 2 else 0
    if width:  # Names and parameters are checked first, since the computation, which checks the values, takes long.
        _, names = as_matrix(np.zeros((1, width)), names)
        GaussianProblem.checked(data.shape[0], **parameters)
    matrix, constant = _correlation_tiles(data, correlation_path, tile, progress)
    return GaussianProblem(
        names=names,
        correlation=matrix,
        constant=name_constants(names, constant),
        **GaussianProblem.checked(data.shape[0], **parameters),
    )


def prepare_large(data: Any, path: str | Path, **options: Any) -> GaussianProblem | None:
    """Return the problem with its matrix in a file beside `path`; None up to `LARGE` variables or if on a device."""
    if data.shape[1] <= LARGE or options.pop("correlations", "host") == "device":
        return None
    return problem_from_data(data, Path(path).with_suffix(".npy"), **options)


def _correlation_tiles(
    values: Any, out_path: str | Path, tile: int, progress: Progress | None
) -> tuple[np.memmap, np.ndarray]:
    """Return the correlations of an (m, p) matrix, mapped read-only from a file that is written tile by tile,
    completely or not at all, and (p,) bool that marks constant columns, whose correlations are zero."""
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

    if tile < 1:
        raise InvalidProblem(f"tile is {tile}; it must be at least 1")
    parts = list(mapped_arrays.pieces(p, tile))
    total, done = len(parts) * (len(parts) + 1) // 2, 0
    with write_whole(out_path) as file:
        out = mapped_arrays.new_npy(file, (p, p))
        for number, rows in enumerate(parts):
            left = panel(rows)
            for columns in parts[number:]:
                block = left.T @ (left if columns == rows else panel(columns))
                out[rows, columns] = np.clip(block, -1.0, 1.0, out=block)
                if columns == rows:
                    np.fill_diagonal(out[rows, columns], 1.0)
                else:
                    out[columns, rows] = block.T
                mapped_arrays.release(out)
                done += 1
                if progress is not None:
                    progress(done, total)
        out.flush()
    return np.load(out_path, mmap_mode="r"), constant
