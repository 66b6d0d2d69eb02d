"""Values and calibration of the kernel tests: against causal-learn, and under independence."""

import numpy as np
import pytest
from scipy import stats

from gpupc_impl import KernelProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.core.family import open_tests
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.kernel.kernel_batched import ci_test
from gpupc_impl.kernel.plain import PlainTest


@pytest.fixture(scope="module")
def data():
    """x and y that depend on the third column, which two more accompany."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((160, 3))
    noise = rng.standard_normal((160, 2))
    return np.column_stack([np.sin(z[:, 0]) + 0.5 * noise[:, 0], np.tanh(z[:, 0]) + 0.5 * noise[:, 1], z])


@pytest.mark.parametrize("members", [(), (2,), (2, 3), (2, 3, 4)])
def test_kci_is_causal_learns(data, members):
    """With the same widths and all eigenvalues, of which causal-learn leaves the smallest out."""
    kci = pytest.importorskip("causallearn.utils.KCI.KCI")
    problem = KernelProblem.from_data(data, test="kci")
    p_value, statistic = ci_test(problem, 0, 1, members, open_backend("host"))
    columns = data[:, [0]], data[:, [1]]
    if members:
        theirs = kci.KCI_CInd()
        usual, _ = theirs.compute_pvalue(*columns, data[:, members])
        theirs.thresh = 1e-15
        expected = theirs.compute_pvalue(*columns, data[:, members])
        assert abs(p_value - usual) < 1e-4
    else:
        expected = kci.KCI_UInd().compute_pvalue(*columns)
    np.testing.assert_allclose([p_value, statistic], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("test", ["rcit", "rcot"])
def test_rcit_is_causal_learns_within_its_random_features(data, test):
    """Means of the statistic over seeds, with the published weights and the same number of features."""
    rcit = pytest.importorskip("causallearn.utils.RCIT.RCIT")
    backend, x, y, z = open_backend("host"), data[:, [0]], data[:, [1]], data[:, [2]]
    np.random.seed(0)  # noqa: NPY002, since causal-learn draws from NumPy's global state
    theirs = [rcit.RCIT("hbe", num_f=25, rcit=test == "rcit").compute_pvalue(x, y, z) for _ in range(40)]
    options = {"test": test, "null": "hall-buckley-eagleson", "set_features": 25, "weights": "published"}
    ours = [ci_test(KernelProblem.from_data(data, seed=s, **options), 0, 1, (2,), backend) for s in range(40)]
    for k in range(2):  # p-values and statistics
        assert stats.ks_2samp([each[k] for each in ours], [each[k] for each in theirs]).pvalue > 0.01


def p_values_under_independence(test, level, seeds, n=200):
    """(seeds,) p-values of two variables that depend on the level's three variables alone."""
    backend, p_values = open_backend("host"), []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, n])
        z = rng.standard_normal((n, level))
        total = z.sum(axis=1) / max(level, 1) ** 0.5
        x, y = np.sin(total) + 0.7 * rng.standard_normal(n), np.tanh(total) + 0.7 * rng.standard_normal(n)
        problem = KernelProblem.from_data(np.column_stack([x, y, z]), test=test, seed=seed)
        p_values.append(ci_test(problem, 0, 1, range(2, 2 + level), backend)[0])
    return np.array(p_values)


@pytest.mark.parametrize(("test", "level"), [("rcit", 0), ("rcit", 1), ("rcot", 1), ("kci", 1)])
def test_p_values_are_uniform_under_independence(test, level):
    """A small part of docs/kernel.md's tables."""
    p_values = p_values_under_independence(test, level, 60, n=100)
    assert stats.kstest(p_values, "uniform").statistic < 0.21
    assert np.mean(p_values < 0.05) < 0.16


def test_dependence_is_found(data):
    backend = open_backend("host")
    for test in ("rcit", "rcot", "kci"):
        assert ci_test(KernelProblem.from_data(data, test=test), 0, 2, (3,), backend)[0] < 1e-4


def test_votes_are_those_of_sets_tested_pair_by_pair(data):
    """Pairs with sets of one size share batches, and a test that both ends ask for is made once."""
    problem = KernelProblem.from_data(data, test="rcot")
    tests = open_tests(problem, "host")
    pairs = np.array([[0, 1], [1, 0], [2, 3], [0, 4]])
    starts, candidates = np.array([0, 2, 5, 5, 6]), np.array([2, 3, 2, 3, 4, 2], np.int32)
    found = tests.count_separating(pairs, starts, candidates, 2)
    np.testing.assert_equal(found, IndependenceTests.count_separating(tests, pairs, starts, candidates, 2))
    assert found[0].sum() > 0


def test_kci_of_ties_and_far_values():
    """On cores kernel matrices of one variable are thin factors; the reference makes whole matrices of them."""
    rng = np.random.default_rng(2)
    data = np.column_stack([np.round(rng.standard_normal((90, 2))), rng.standard_normal((90, 2)) ** 5])
    problem = KernelProblem.from_data(data, test="kci")
    plain = PlainTest(problem)
    for i, j, members in ((0, 1, (2,)), (2, 3, (0,)), (0, 2, (1, 3)), (1, 3, ())):
        found = ci_test(problem, i, j, members, open_backend("host"))
        np.testing.assert_allclose(found, plain(i, j, members), rtol=1e-9, atol=1e-12)
