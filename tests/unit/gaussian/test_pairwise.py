"""Pairs of variables with sample sizes of their own have the correlations of pandas and the tests of causal-learn; if
all sizes are equal, the answer is that of the other methods."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gpupc_impl import GaussianProblem, InvalidProblem, skeleton
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.rows import RowStream
from gpupc_impl.core.solve import solve
from gpupc_impl.gaussian.array_search import TESTS_AT_ONCE
from gpupc_impl.gaussian.pairwise import METHOD, PairwiseProblem, pairwise_correlations
from tests.graphs import linear_samples


def sample(p: int, m: int, seed: int, missing: float = 0.0) -> np.ndarray:
    """(m, p) samples of a linear model on a random DAG, some of them missing."""
    rng = np.random.default_rng(seed)
    values = linear_samples(p, m, seed=rng, least=0.1)
    values[rng.random(values.shape) < missing] = np.nan
    return values


def found(values: np.ndarray, **options):
    return solve(PairwiseProblem.from_data(values, **options), METHOD, None, pmax=True)


@given(st.integers(2, 8), st.integers(8, 60), st.integers(0, 2**32), st.floats(0, 0.5), st.floats(-1e6, 1e6))
@settings(deadline=None, max_examples=40)
def test_correlations_are_those_of_pandas(p, m, seed, missing, shift):
    values = sample(p, m, seed, missing) * np.geomspace(1e-3, 1e3, p) + shift
    correlation, sizes = pairwise_correlations(RowStream.of(values))
    frame = pd.DataFrame(values)
    expected = frame.corr(min_periods=3).to_numpy()
    there = np.isfinite(expected) & (sizes >= 3)
    assert np.array_equal(sizes, frame.notna().astype(int).T @ frame.notna().astype(int))
    assert np.allclose(correlation[there], expected[there], atol=1e-6)
    assert np.array_equal(correlation, correlation.T)
    assert (np.diag(correlation) == 1).all()


def test_a_variable_that_is_constant_where_another_is_there():
    values = sample(3, 40, 0)
    values[:20, 0] = np.nan
    values[20:, 1] = 3.25
    correlation, _ = pairwise_correlations(RowStream.of(values))
    assert correlation[0, 1] == 0
    assert correlation[1, 2] != 0


@pytest.mark.parametrize("seed", range(4))
def test_complete_data_give_the_answer_of_all_methods(seed):
    values = sample(12 + 3 * seed, 200, seed)
    if seed % 2:
        values[:, 3] = values[:, 2]  # undefined tests, pseudo-inverses
    expected = skeleton(GaussianProblem.from_data(values), method="stable-serial", pmax=True)
    ours = found(values)
    assert ours == expected
    assert ours.stopped_because == expected.stopped_because
    assert (ours.undefined_tests > 0) == (expected.undefined_tests > 0) == bool(seed % 2)
    assert np.allclose(ours.pmax, expected.pmax, atol=1e-9, equal_nan=True)


def test_pieces_and_panels_give_the_same(monkeypatch):
    values = sample(12, 100, 5, 0.1) + 1e3
    correlation, sizes = pairwise_correlations(RowStream.of(values))
    monkeypatch.setattr(mapped_arrays, "PIECE_BYTES", 7 * 12 * 8)
    monkeypatch.setattr("gpupc_impl.gaussian.pairwise.SUMS_BYTES", 5 * 12 * 96)
    in_parts, same_sizes = pairwise_correlations(RowStream.of(values))
    assert np.array_equal(sizes, same_sizes)
    assert np.array_equal(in_parts, in_parts.T)
    assert np.abs(correlation - in_parts).max() < 1e-14


def test_small_batches_give_the_same(monkeypatch):
    values = sample(12, 100, 5, 0.1)
    expected = found(values)
    monkeypatch.setitem(TESTS_AT_ONCE, "cpu", 7)
    assert found(values) == expected


def test_p_values_without_a_set_are_causal_learns():
    """Its test deletes the samples that miss one of the variables, which is the same rule for a pair."""
    cit = pytest.importorskip("causallearn.utils.cit")
    values = sample(8, 60, 1, 0.2)
    test = cit.CIT(values, "mv_fisherz")
    level_zero = found(values, max_level=0)
    for i, j in np.argwhere(np.triu(np.ones((8, 8)), 1)):
        assert level_zero.pmax[i, j] == pytest.approx(test(int(i), int(j), ()), abs=1e-10)
        assert level_zero.adjacency[i, j] == (test(int(i), int(j), ()) < 0.05)


def test_a_test_has_the_smallest_size_of_its_pairs():
    values = sample(4, 60, 2)
    values[:30, 2] = np.nan  # a member of the set, so that its pairs have 30 samples
    problem = PairwiseProblem.from_data(values)
    outcome = problem.tests()(np.array([[0, 1]] * 2), np.array([[2], [3]]), True)
    C = problem.correlation
    rest = C[0, 1] - C[0, 2] * C[1, 2]
    expected = rest**2 / ((1 - C[0, 2] ** 2) * (1 - C[1, 2] ** 2))
    assert outcome.effects[0] ** 2 == pytest.approx(expected)
    for rule, size in (("smallest", 30), ("harmonic-mean", 36)):  # of 60, 30 and 30
        problem = PairwiseProblem.from_data(values, sample_size=rule)
        outcome = problem.tests()(np.array([[0, 1]] * 2), np.array([[2], [3]]), True)
        z = np.arctanh(np.sqrt(expected)) * np.sqrt(size - 1 - 3)
        assert outcome.p_values[0] == pytest.approx(2 * stats.norm.sf(z))
        assert outcome.separates[0] == (2 * stats.norm.sf(z) >= 0.05)
        r = outcome.effects[1]
        assert outcome.p_values[1] == pytest.approx(2 * stats.norm.sf(np.arctanh(abs(r)) * np.sqrt(60 - 1 - 3)))
    critical = problem.critical_of_sizes(1)
    assert (critical[:5] == -1).all()  # no degrees of freedom: nothing separates
    assert critical[60] == pytest.approx(GaussianProblem.from_data(sample(4, 60, 2)).critical_r_squared(1))


def test_the_cupc_convention_takes_one_degree_more():
    values = sample(5, 60, 3, 0.1)
    pcalg, cupc = (PairwiseProblem.from_data(values, df_convention=rule) for rule in ("pcalg", "cupc"))
    assert np.array_equal(cupc.critical_of_sizes(0)[5:], pcalg.critical_of_sizes(0)[4:-1])


def test_refusals(tmp_path):
    with pytest.raises(InvalidProblem, match="an infinite value in row 2, column 'V1'"):
        PairwiseProblem.from_data([[0, 1], [1, 2], [2, np.inf]])
    with pytest.raises(InvalidProblem, match=r"'V0' and 'V1' have 3 sample\(s\) in common"):
        PairwiseProblem.from_data([[0, np.nan], [1, 2], [2, 1], [3, 4], [3, np.nan]])
    with pytest.raises(InvalidProblem, match="correlations is 'device'"):
        PairwiseProblem.from_data(sample(3, 9, 0), correlations="device")
    with pytest.raises(InvalidProblem, match="sample_size is 'mean'; choose one of: smallest, harmonic-mean"):
        PairwiseProblem.from_data(sample(3, 9, 0), sample_size="mean")
    with pytest.raises(InvalidProblem, match="made of its data; save those"):
        PairwiseProblem.from_data(sample(3, 9, 0)).save(tmp_path / "problem.npz")
    with pytest.raises(InvalidProblem, match="is for missing='pairwise'"):
        solve(GaussianProblem.from_data(sample(3, 9, 0)), METHOD, None)


def test_fingerprints_tell_sizes_apart():
    values = sample(3, 20, 0)
    problem = PairwiseProblem.from_data(values)
    assert problem.fingerprint == PairwiseProblem.from_data(values, names=["a", "b", "c"]).fingerprint
    values[0, 0] = np.nan
    assert problem.fingerprint != PairwiseProblem.from_data(values).fingerprint
