"""Correlation matrices in host memory and in files: their computation, their checks, and how they are made exact. A
matrix is *exact* if it is finite, lies in [-1, 1], has ones on its diagonal and equals its transpose to the bit."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core import allocation, mapped_arrays
from gpupc_impl.core.files import load_array
from gpupc_impl.core.problem import InvalidProblem, as_matrix
from gpupc_impl.core.rows import RowStream

PANEL = 1024
"""The number of variables whose correlations are computed in one product. A single product of all variables has two
drawbacks: with 16,000 variables and 1,000 samples, threads of OpenBLAS 0.3.31 write out of bounds, and NumPy copies the
triangle of a large symmetric product entry by entry."""

FAR_OFFSET = 1000
"""A column whose mean exceeds this many of its standard deviations is centred without a division, since rounding the
quotients would lose digits of their differences from the mean."""


def correlation_matrix(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (p, p) Pearson correlations of the columns of an (m, p) float64 matrix, exactly symmetric, with zeros
    for constant columns, and (p,) bool that marks those columns. Columns are scaled by their largest magnitude before
    anything is squared, so that values near the ends of the float64 range do not overflow (docs/numerics.md)."""
    centred, constant = standardized(values)
    p = centred.shape[1]
    correlation = allocation.new_array((p, p))
    for columns in mapped_arrays.pieces(p, PANEL):
        panel, rest = centred[:, columns], slice(columns.stop, p)
        # NumPy calls syrk, whose result is exactly symmetric.
        np.matmul(panel.T, panel, out=correlation[columns, columns])
        np.matmul(panel.T, centred[:, rest], out=correlation[columns, rest])
        correlation[rest, columns] = correlation[columns, rest].T
    np.fill_diagonal(correlation, 1.0)
    return np.clip(correlation, -1.0, 1.0, out=correlation), constant


def streamed_correlations(stream: RowStream) -> tuple[np.ndarray, np.ndarray]:
    """Return the correlations of `correlation_matrix`, up to rounding, in one pass over the rows, after the pass that
    computes their statistics. Means are subtracted from columns before products are summed, so that no digits cancel.
    It takes 8 p^2 bytes, and a few pieces of the rows (`mapped_arrays.PIECE_BYTES`)."""
    p, statistics = stream.shape[1], stream.statistics
    correlation, sums = allocation.new_array((p, p)), np.zeros(p)
    correlation[...] = 0.0
    panels = [(columns, slice(columns.start, p)) for columns in mapped_arrays.pieces(p, PANEL)]
    for rows in stream.chunks():
        centred = stream.scaled(rows)
        sums += centred.sum(axis=0)
        for columns, rest in panels:
            correlation[columns, rest] += centred[:, columns].T @ centred[:, rest]
    variances = np.diagonal(correlation) - sums * sums / statistics.rows
    constant = statistics.constant | (variances <= 0)
    lengths = np.sqrt(np.where(constant, np.inf, variances))
    for columns, rest in panels:
        panel = correlation[columns, rest]
        panel -= np.outer(sums[columns], sums[rest]) / statistics.rows
        panel /= np.outer(lengths[columns], lengths[rest])
        own = np.triu(panel[:, : len(panel)])
        panel[:, : len(panel)] = own + np.triu(own, 1).T
        correlation[rest, columns] = panel.T
    np.fill_diagonal(correlation, 1.0)
    return np.clip(correlation, -1.0, 1.0, out=correlation), constant


def standardized(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale the columns of an (m, p) matrix to mean zero and length one, so that their products are the correlations;
    constant columns, which the (p,) bool mark, become zeros."""
    values = np.ascontiguousarray(values, dtype=np.float64)  # One memory layout gives sums of the same bits.
    constant = constant_columns(values)
    scale = np.abs(values).max(axis=0)
    centred = values / np.where(scale > 0, scale, 1.0)
    mean = centred.mean(axis=0)
    centred -= mean
    norm = _lengths(centred)
    far = ~constant & (np.abs(mean) * math.sqrt(len(values)) > FAR_OFFSET * norm)
    if far.any():
        centred[:, far] = _centred_without_division(values[:, far])
        norm[far] = _lengths(centred[:, far])
    constant |= norm == 0
    centred /= np.where(constant, 1.0, norm)
    centred[:, constant] = 0.0
    return centred, constant


def constant_columns(values: np.ndarray) -> np.ndarray:
    """Return which columns of an (m, p) matrix are constant, (p,) bool; a glance at their ends rules most out."""
    constant: np.ndarray = values[0] == values[-1]
    constant[constant] = (values[:, constant] == values[0, constant]).all(axis=0)
    return constant


def _lengths(columns: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->j", columns, columns))


def _centred_without_division(values: np.ndarray) -> np.ndarray:
    """Return the columns scaled by powers of two and centred. Scaling by a power of two is exact, and so is subtracting
    values that are close to each other. A division would instead round each value relative to its distance from zero,
    which far exceeds the spread of the column."""
    _, exponents = np.frexp(np.abs(values).max(axis=0))
    scaled = np.ldexp(values, -exponents)
    scaled -= scaled[0]
    return scaled - scaled.mean(axis=0)


def correlation_in_memory(correlation: Any, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the (p, p) matrix, checked and made exact, and the names of its variables."""
    matrix, names = as_matrix(correlation, names)
    p = len(matrix)
    if matrix.shape != (p, p):
        raise InvalidProblem(f"correlation has shape {matrix.shape}; it must be square")
    if fault := _fault(matrix, matrix.T, diagonal=True, tolerance=1e-8):
        raise InvalidProblem(f"correlation cannot be used: {fault}")
    exact = allocation.new_array((p, p))
    np.add(matrix, matrix.T, out=exact)
    exact /= 2
    np.clip(exact, -1.0, 1.0, out=exact)
    np.fill_diagonal(exact, 1.0)
    exact.setflags(write=False)
    return exact, names


def correlation_fault(matrix: np.ndarray, tile: int = 1024) -> str | None:
    """Return why a (p, p) matrix is not exact, as a clause; None if it is exact. Two tiles are in memory at once."""
    for rows in mapped_arrays.pieces(len(matrix), tile):
        for columns in mapped_arrays.pieces(len(matrix), tile):
            if columns.start >= rows.start:
                upper, lower = np.asarray(matrix[rows, columns]), np.asarray(matrix[columns, rows]).T
                if fault := _fault(upper, lower, rows == columns, 0.0):
                    return fault
                mapped_arrays.release(matrix)
    return None


def _fault(matrix: np.ndarray, transposed: np.ndarray, diagonal: bool, tolerance: float) -> str | None:
    """Return the reason why a matrix, or a tile of one, does not hold correlations; None if it does. `transposed` is
    the transposed matrix, or that of a tile's mirror image; `diagonal` says whether the diagonal is the matrix's."""
    if not (np.isfinite(matrix).all() and np.isfinite(transposed).all()):
        return "it has entries that are not finite; give constant variables zeros instead"
    if (worst := float(np.abs(matrix - transposed).max(initial=0.0))) > tolerance:
        return f"it is not symmetric: it differs from its transpose by {worst:.3g}"
    if diagonal and (worst := float(np.abs(np.diagonal(matrix) - 1.0).max(initial=0.0))) > tolerance:
        return f"its diagonal differs from one by {worst:.3g}; a covariance matrix must be scaled to correlations first"
    if (worst := float(np.abs(matrix).max(initial=0.0))) > 1 + tolerance:
        return f"it has an entry of size {worst:.17g}; entries must lie in [-1, 1]"
    return None


def spot(matrix: np.ndarray) -> np.ndarray:
    """Return correlations among `mapped_arrays.SPOT_ROWS` spread variables, checked for the whole of a large matrix."""
    rows = mapped_arrays.spot_rows(matrix)
    return np.ascontiguousarray(matrix[np.ix_(rows, rows)])


def mapped_correlation(matrix: np.memmap, names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return a read-only view of a mapped matrix, which must be exact, and the names of its variables."""
    _, names = as_matrix(matrix, names)
    if matrix.shape != (len(matrix), len(matrix)):
        raise InvalidProblem(f"correlation has shape {matrix.shape}; it must be square")
    fault = correlation_fault(matrix)
    if fault is None and not matrix.flags.c_contiguous:
        fault = "it is not in C order"
    if fault is not None:
        raise InvalidProblem(
            f"correlation lies in a file, so it is used as it is, but {fault}; give a copy, np.array(...)"
        )
    matrix = matrix.view()
    matrix.setflags(write=False)
    return matrix, names


def stored_correlation(path: Path, stored: Mapping[str, np.ndarray]) -> np.ndarray:
    """Map the correlation matrix that lies in a file beside the problem file at `path`."""
    matrix_file = path.parent / str(stored["correlation_file"])
    try:
        matrix = load_array(matrix_file, mapped=True)
    except (OSError, ValueError) as error:
        raise InvalidProblem(
            f"{path.name} is a problem whose correlation matrix lies in {str(stored['correlation_file'])!r} beside it, "
            f"which cannot be read ({error}); move both files together, or make the problem again"
        ) from error
    if mapped_arrays.spot_sha256(matrix) != str(stored["correlation_spot"]):
        raise InvalidProblem(
            f"{matrix_file.name} is not the correlation matrix that {path.name} was saved with; make the problem again"
        )
    return matrix
