"""Tails of weighted sums of chi-square variables, against the package momentchi2 and its published values."""

import numpy as np
import pytest
from scipy import stats

from gpupc_impl.kernel.null import upper_tail
from gpupc_impl.kernel.plain import tail

NULLS = {"lindsay-pilla-basak": "lpb4", "satterthwaite-welch": "sw", "hall-buckley-eagleson": "hbe"}


def power_sums(weights):
    return np.array([[np.sum(np.asarray(each) ** r) for r in range(1, 9)] for each in weights])


@pytest.mark.parametrize(
    ("null", "p_values"),
    [
        ("hall-buckley-eagleson", [1 - 0.94908, 1 - 0.02857]),
        ("satterthwaite-welch", [1 - 0.95008, 1 - 0.0657]),
        ("lindsay-pilla-basak", [1 - 0.9500092, 1 - 0.05001144]),
    ],
)
def test_published_values(null, p_values):
    """From the documentation of momentchi2; exact tails are 0.05 and 0.95 (Johnson, Kotz and Balakrishnan 1994)."""
    sums = power_sums([[1.5, 1.5, 0.5, 0.5]] * 2)
    np.testing.assert_allclose(upper_tail(null, np.array([10.203, 0.627]), sums), p_values, atol=1e-5)


@pytest.mark.parametrize("null", NULLS)
def test_random_weights(null, monkeypatch):
    momentchi2 = pytest.importorskip("momentchi2")
    import math

    monkeypatch.setattr(np, "math", math, raising=False)  # which momentchi2 takes from older versions of NumPy
    rng = np.random.default_rng(0)
    weights = [rng.exponential(1, rng.integers(4, 26)) ** rng.choice([1, 2, 3]) for _ in range(60)]
    statistics = np.array([each.sum() * rng.exponential(1.5) for each in weights])
    expected = [1 - getattr(momentchi2, NULLS[null])(w, float(q)) for w, q in zip(weights, statistics, strict=True)]
    np.testing.assert_allclose(upper_tail(null, statistics, power_sums(weights)), expected, atol=1e-10)
    plain = [tail(null, q, w) for w, q in zip(weights, statistics, strict=True)]
    np.testing.assert_allclose(plain, expected, atol=1e-9)


def test_no_weight_at_all():
    assert upper_tail("lindsay-pilla-basak", np.zeros(2), np.zeros((2, 8))).tolist() == [1, 1]


def test_one_weight_is_a_chi_square_variable():
    """A mixture of four does not exist, and the approximation of three moments is exact."""
    p_values = upper_tail("lindsay-pilla-basak", np.array([3.841458820694124]), np.ones((1, 8)))
    np.testing.assert_allclose(p_values, [0.05], rtol=1e-7)


def test_one_weight_beside_tiny_ones_and_equal_weights():
    """Where fewer than four components suffice, up to rounding errors, tails are those of the exact distribution."""
    sums = power_sums([[1.0, 2e-9, 1e-9], [1.0], [0.5, 0.5], [0.25] * 4])
    p_values = upper_tail("lindsay-pilla-basak", np.array([0.02, 0.02, 0.3, 2.0]), sums)
    exact = [stats.chi2.sf(0.02, 1), stats.chi2.sf(0.02, 1), stats.chi2.sf(0.6, 2), stats.chi2.sf(8, 4)]
    np.testing.assert_allclose(p_values, exact, atol=1e-7)


def test_p_values_do_not_depend_on_the_batch():
    rng = np.random.default_rng(1)
    weights = [rng.exponential(1, rng.integers(1, 26)) ** 3 for _ in range(40)]
    statistics, sums = rng.exponential(2, 40), power_sums(weights)
    single = [upper_tail("lindsay-pilla-basak", q[None], row[None])[0] for q, row in zip(statistics, sums, strict=True)]
    assert upper_tail("lindsay-pilla-basak", statistics, sums).tolist() == single
