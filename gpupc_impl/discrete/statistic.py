"""The statistic of single tests by NumPy and pandas, without the methods' code, for reports and verification only."""

import math
from collections.abc import Sequence

import numpy as np

from gpupc_impl.discrete.problem import DiscreteProblem


def p_values(problem: DiscreteProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return (k,) float64 p-values of (k, 2) pairs given (k, level) sets."""
    return problem.p_value(*statistics(problem, pairs, sets))


def statistics(problem: DiscreteProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return (2, k) float64 statistics and degrees of freedom of (k, 2) pairs given (k, level) sets."""
    tests = [statistic(problem, i, j, members) for (i, j), members in zip(pairs, sets, strict=True)]
    return np.array(tests, np.float64).reshape(-1, 2).T


def statistic(problem: DiscreteProblem, i: int, j: int, members: np.ndarray) -> tuple[float, int]:
    """Return chi-square or G-square of Vi and Vj given the members (gpuPC, section 2.3), and its degrees of freedom."""
    stratum = np.zeros(problem.n_samples, np.int64)
    for v in members:
        stratum = _crossed(problem, stratum, v)
    row, column = _crossed(problem, stratum, i), _crossed(problem, stratum, j)
    cell = _crossed(problem, row, j)
    in_stratum, in_row, in_column, in_cell = map(np.bincount, (stratum, row, column, cell))
    samples = _a_sample_of(cell, in_cell)
    observed = in_cell[cell[samples]]
    expected = in_row[row[samples]] * (in_column[column[samples]] / in_stratum[stratum[samples]])
    if problem.test == "g-square":
        value = 2 * float(observed @ np.log(observed / expected))
    else:  # an empty cell adds its expected count to the sum
        value = float(((observed - expected) ** 2 / expected).sum() + problem.n_samples - expected.sum())
    if problem.df_rule == "full":
        return max(value, 0.0), problem.degrees_of_freedom(i, j, members)
    rows, columns = (np.bincount(stratum[_a_sample_of(*one)]) for one in ((row, in_row), (column, in_column)))
    return max(value, 0.0), int(((rows - 1) * (columns - 1))[in_stratum > 0].sum())


def of_tables(problem: DiscreteProblem, tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return chi-square or G-square of the last two axes of k tables of counts given the others, which may differ,
    and its degrees of freedom, (k,) each; the last bits may be others than those of `statistic`."""
    strata = [math.prod(table.shape[:-2]) for table in tables]
    counts = np.concatenate([table.reshape(-1, *table.shape[-2:]) for table in tables])
    in_row, in_column = counts.sum(axis=2), counts.sum(axis=1)
    in_stratum = in_row.sum(axis=1)
    expected = in_row[:, :, None] * (in_column / np.maximum(in_stratum, 1)[:, None])[:, None]
    if problem.test == "g-square":
        terms = 2 * counts * np.log(np.where(counts > 0, counts, 1) / np.where(counts > 0, expected, 1))
    else:
        terms = (counts - expected) ** 2 / np.where(expected > 0, expected, 1)
    if problem.df_rule == "full":
        df = np.full(len(counts), (counts.shape[1] - 1) * (counts.shape[2] - 1))
    else:
        df = ((in_row > 0).sum(axis=1) - 1) * ((in_column > 0).sum(axis=1) - 1) * (in_stratum > 0)
    starts = np.cumsum([0, *strata[:-1]])
    values = np.add.reduceat(terms.reshape(len(counts), -1).sum(axis=1), starts)
    return np.maximum(values, 0.0), np.add.reduceat(df, starts)


def _crossed(problem: DiscreteProblem, cell: np.ndarray, v: int) -> np.ndarray:
    """Return each sample's cell in the table of (cell, Vv); in a large table only the cells that occur are numbered."""
    cell = cell * int(problem.categories[v]) + problem.codes[v]
    if cell.max() > len(cell):
        import pandas as pd  # imported here, since it takes time

        cell = pd.factorize(cell)[0]
    return cell


def _a_sample_of(cell: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the index of one sample of each cell that occurs, in the order of the cells."""
    samples = np.empty(len(counts), np.int64)
    samples[cell] = np.arange(len(cell))
    return samples[counts > 0]
