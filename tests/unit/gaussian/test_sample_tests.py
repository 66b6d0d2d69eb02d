"""Single tests from samples answer as those of the matrix of the same correlations."""

import contextlib
import itertools

import numpy as np
import pytest

from gpupc_impl import GaussianProblem
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.family import open_tests
from gpupc_impl.core.subsets import Subsets, concatenated
from gpupc_impl.distributed.correlations import fixed_order_problem
from gpupc_impl.gaussian import single_tests
from gpupc_impl.gaussian.fixed_order import product_bound

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))
P = 30


@pytest.fixture(scope="module", params=[{}, {"residual_tolerance": 0.0}, {"pseudo_inverse": "always"}], ids=str)
def both(request):
    """The tests from samples, of which some columns are constant or equal, and those from the matrix."""
    x = np.random.default_rng(3).standard_normal((60, P))
    x[:, 1:] += 0.8 * x[:, :-1]
    x[:, 7], x[:, 20], x[:, 21] = 4.0, x[:, 3], x[:, 12]
    search = {"alpha": 0.05, **request.param}
    samples = open_tests(GaussianProblem.from_data(x, correlations="device", **search), "host")
    return samples, open_tests(fixed_order_problem(x, **search), "host")


@pytest.mark.parametrize("size", [0, 1, 3])
def test_chosen_sets(both, size):
    rng = np.random.default_rng(size)
    tests = np.array([rng.permutation(P)[: size + 2] for _ in range(500)])
    one, other = (each.separates(tests[:, :2], tests[:, 2:]) for each in both)
    np.testing.assert_array_equal(one, other)
    assert one.any()
    one, other = (each.dependence(tests[one, :2], tests[one, 2:]) for each in both)
    np.testing.assert_array_equal(one, other)
    for one, other in zip(*(each.strengths(tests[:, :2], tests[:, 2:]) for each in both), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


@pytest.mark.parametrize("at_once", [1 << 28, 1500])
def test_numbered_subsets(both, at_once, monkeypatch):
    """A matrix for each list, some lists at a time, gives the numbers of one matrix for all."""
    monkeypatch.setitem(single_tests.PANEL_BYTES, "host", at_once)
    rng = np.random.default_rng(1)
    lists = [np.sort(rng.choice(P, rng.integers(0, 12), replace=False)) for _ in range(80)]
    pairs = np.array([rng.choice(np.setdiff1d(np.arange(P), each), 2, replace=False) for each in lists])
    for size in (1, 2, 4):
        subsets = Subsets(pairs.astype(np.int32), *concatenated(lists), size)
        for first, last in ((0, subsets.total), (7, subsets.total - 5), (40, 41)):
            one, other = (each.dependences(subsets, first, last) for each in both)
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("at_once", [1 << 28, 8])
def test_votes(both, at_once, monkeypatch):
    monkeypatch.setitem(single_tests.PANEL_BYTES, "host", at_once)
    rng = np.random.default_rng(2)
    lists = [np.sort(rng.choice(P, rng.integers(0, 7), replace=False)) for _ in range(40)]
    pairs = np.array([rng.choice(np.setdiff1d(np.arange(P), each), 2, replace=False) for each in lists])
    one, other = (each.count_separating(pairs, *concatenated(lists), 3) for each in both)
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])


class WrongLibrary:
    """NumPy, whose products are off by nearly as much as the bound allows."""

    def __getattr__(self, name):
        return getattr(np, name)

    def matmul(self, one, other, out):
        bound = product_bound(one.shape[1])
        np.matmul(one, other, out=out)
        out += 0.99 * bound * np.random.default_rng(len(one)).choice([-1.0, 1.0], out.shape)


@pytest.mark.parametrize("library", [None, WrongLibrary()], ids=["numpy", "wrong"])
@pytest.mark.parametrize("at_once", [1 << 28, 8 * P * 6])
def test_the_best_member(both, at_once, library, monkeypatch):
    monkeypatch.setitem(single_tests.PANEL_BYTES, "host", at_once)
    if library is not None:
        monkeypatch.setattr(HostBackend, "array_library", lambda self: contextlib.nullcontext(library))
    samples, matrix = both
    pairs = np.array(list(itertools.combinations(range(P), 2)))
    empty = np.empty((len(pairs), 0), np.int64)
    adjacent = np.zeros((P, P), bool)
    adjacent[tuple(pairs.T)] = ~matrix.separates(pairs, empty)
    adjacent |= adjacent.T
    for (i, j), found in zip(pairs.tolist(), samples.best_members(pairs).tolist(), strict=True):
        near = np.setdiff1d(np.flatnonzero(adjacent[i] | adjacent[j]), [i, j])
        ends = np.tile([i, j], (len(near), 1))
        near = near[matrix.separates(ends, near[:, None])]
        values = matrix.dependence(np.tile([i, j], (len(near), 1)), near[:, None])
        assert found == (near[np.argmin(values)] if len(near) else -1)
