"""Numbers at the ends of what float64 holds: every method decides rightly, or they are refused (docs/numerics.md)."""

import numpy as np
import pandas as pd
import pytest

from gpupc_impl import GaussianProblem, InvalidProblem
from tests.graphs import linear_samples

# level, samples, alpha: one degree of freedom left, many samples, p-values around 1e-300
THRESHOLDS = [(0, 4, 0.05), (1, 5, 0.05), (0, 4, 0.9), (2, 10**12, 0.01)]
THRESHOLDS += [(level, 10**5, 1e-300) for level in range(3)]


def at_threshold(level: int, n_samples: int, alpha: float, factor: float) -> np.ndarray:
    """Correlations of two variables and those of S, given which the two correlate as the threshold times a factor."""
    links = 0.5 if n_samples > 100 else 0.95  # of either with every member of S
    explained = level * links**2
    tau = GaussianProblem.from_correlation(np.eye(2), n_samples=n_samples, alpha=alpha).threshold(level)
    correlation = np.eye(level + 2)
    correlation[:2, 2:] = correlation[2:, :2] = links
    correlation[0, 1] = correlation[1, 0] = explained + np.tanh(tau) * factor * (1 - explained)
    return correlation


@pytest.mark.parametrize("asked", THRESHOLDS, ids=str)
def test_a_billionth_on_either_side_of_the_threshold(setting, find, asked):
    """causal-learn takes one minus the distribution for a p-value, which is zero below 1e-16: it keeps such edges."""
    level, n_samples, alpha = asked
    seen = setting[0].name != "causal-learn" or alpha > 1e-15
    for factor, separated in ((1 - 1e-9, seen), (1 + 1e-9, False)):
        found = find(at_threshold(*asked, factor), n_samples=n_samples, alpha=alpha)
        assert found.adjacency[0, 1] != separated
        if separated:
            assert found.sepsets[0, 1] == tuple(range(2, level + 2))


@pytest.mark.parametrize("r", [1.0, -1.0])
@pytest.mark.parametrize(("n_samples", "alpha"), [(4, 1e-300), (4, 5e-324), (10**6, 1e-300), (100, 0.05)])
def test_a_full_correlation_is_an_edge_at_any_level_of_significance(canonical_setting, find, r, n_samples, alpha):
    assert find(np.array([[1, r], [r, 1]]), n_samples=n_samples, alpha=alpha).n_edges == 1


def test_variables_that_are_all_the_same_decide_nothing(canonical_setting, find):
    signs = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    found = find(np.outer(signs, signs), n_samples=50)
    assert found.n_edges == 10
    assert found.undefined_tests == sum(found.tests_per_level[1:])


@pytest.mark.parametrize("n_samples", range(1, 8))
def test_levels_end_where_no_degree_of_freedom_is_left(find, n_samples):
    complete = np.full((6, 6), 1 - 1e-7)
    np.fill_diagonal(complete, 1.0)
    found = find(complete, n_samples=n_samples, alpha=0.9999)
    assert found.levels_run == max(n_samples - 3, 0)
    assert "no degrees of freedom" in found.stopped_because or found.levels_run == 5


def sample(seed: int = 0) -> np.ndarray:
    return linear_samples(12, 300, 0.25, seed, least=0.4)


@pytest.mark.parametrize("exponents", [(-200, 200), (-300, -280), (290, 300)], ids=str)
def test_scales_do_not_matter(find, exponents):
    data, scales = sample(), 10.0 ** np.linspace(*exponents, 12)
    expected = find(data)
    found = find(data * scales)
    assert 0 < expected.n_edges < 66
    assert found == expected


@pytest.mark.parametrize("correlations", ["host", "device"])
def test_columns_far_from_zero_lose_no_edge(setting, find, correlations):
    """Multiples of 2^-10 beside 2^40: float64 holds their sums exactly."""
    if correlations == "device" and setting[1] == "cpu":
        pytest.skip("correlations are made on a device")
    data = np.round(sample() * 2**10) / 2**10
    expected = find(data)
    assert find(data + 2.0**40, correlations=correlations) == expected


def test_float32_is_taken_as_it_is(find):
    single = sample().astype(np.float32)
    expected = find(single.astype(np.float64))
    assert find(single) == expected
    names = [f"V{k}" for k in range(12)]
    assert find(pd.DataFrame(single, columns=names)) == expected


def test_correlations_in_float32():
    exact = np.corrcoef(sample(), rowvar=False)
    taken = GaussianProblem.from_correlation(exact.astype(np.float32), n_samples=300)
    np.testing.assert_allclose(taken.correlation, exact, atol=1e-7)
    beyond = exact.astype(np.float32)
    beyond[3, 3] = np.nextafter(np.float32(1), np.float32(2))
    with pytest.raises(InvalidProblem, match=r"its diagonal differs from one by 1\.19e-07"):
        GaussianProblem.from_correlation(beyond, n_samples=300)
