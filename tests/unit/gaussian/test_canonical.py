"""Kernels and references have the bits of the canonical evaluation, also if M2 is singular."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from gpupc_impl import GaussianProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.gaussian import canonical
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, RESIDUAL_TOLERANCE
from tests.unit.gaussian.test_pair_scan import matrices

ELIMINATE = Path(__file__).parent / "kernels" / "eliminate.cu"
KINDS = sorted(matrices(2))
P = 9
END, ROW = 4, tuple(k for k in range(P) if k != 4)
PIVOT_TOLERANCES = (RESIDUAL_TOLERANCE, 0.0, 1.0)


def correlation_of(kind: str) -> np.ndarray:
    return GaussianProblem.from_correlation(matrices(P)[kind], n_samples=100).correlation


def every_test(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Every set of the row but its last variable with every other variable of the row: (k, 2) pairs and (k, size)."""
    tests = [(j, s) for s in itertools.combinations(ROW[:-1], size) for j in ROW if j not in s]
    ends, sets = zip(*tests, strict=True)
    return np.array([(END, j) for j in ends]), np.array(sets)


def bits(values) -> np.ndarray:
    return (np.array(values, np.float64) + 0.0).view(np.uint64)  # the sign of a zero does not matter


@given(*[st.floats(-1e3, 1e3)] * 3)
def test_a_fused_multiply_add_rounds_once(a, b, c):
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    found = float(canonical.fma(a, b, c))
    error = abs(Fraction(found) - exact)
    assert all(error <= abs(Fraction(math.nextafter(found, end)) - exact) for end in (-math.inf, math.inf))


def test_fused_multiply_adds_of_no_numbers():
    assert canonical.fma(math.inf, 1.0, 0.0) == math.inf
    assert math.isnan(canonical.fma(math.inf, 0.0, 1.0))


@pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))
@pytest.mark.parametrize("tolerance", PIVOT_TOLERANCES)
@pytest.mark.parametrize("size", range(1, 7))
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_have_its_bits(kind, size, tolerance):
    """By sets and by prefixes, which share the functions for a near-singular M2, and whether or not the size is known
    when a kernel is compiled."""
    correlation, n, backend = correlation_of(kind), len(ROW), open_backend("host")
    sets = math.comb(n - 1, size)
    by_prefix, by_set = (backend.full((sets, n, 3), 0, np.float64) for _ in range(2))
    singular = backend.full((sets, 2), 0, np.int32)
    cells = backend.empty((3 * size + 2) * n, np.float64)
    row = backend.upload(np.array(ROW, np.int32))
    arguments = [np.int32(P), np.int32(END), row, np.int32(n), np.float64(tolerance), cells]
    arguments += [by_prefix, by_set, singular, np.int32(size)]
    pairs, members = every_test(size)
    h = canonical.residuals(correlation, pairs, members, tolerance)
    ascending = pairs[:, 0] < pairs[:, 1]
    expected = bits([np.where(ascending, h.ii, h.jj), np.where(ascending, h.jj, h.ii), h.ij])
    t, q = np.repeat(np.arange(sets), n - size), np.searchsorted(ROW, pairs[:, 1])
    for name in (f"eliminate<Exactly<{size}>>", "eliminate<UpTo<8>>"):
        backend.kernel(ELIMINATE, name)((1,), (1,), [backend.upload(correlation), *arguments])
        assert np.array_equal(singular[t], np.stack([h.near_singular] * 2, axis=1))
        np.testing.assert_array_equal(bits(by_set[t, q].T), expected)
        plain = ~h.near_singular
        np.testing.assert_array_equal(bits(by_prefix[t, q].T)[:, plain], expected[:, plain])


@pytest.mark.parametrize("tolerance", PIVOT_TOLERANCES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_references_have_its_bits(kind, size, tolerance):
    pytest.importorskip("numba")
    from baselines import _fisher_z

    correlation = correlation_of(kind)
    never = (-1.0, 1e-300, tolerance, PSEUDO_INVERSE_TOLERANCE)  # critical r^2 with which no test separates
    pairs, sets = every_test(size)
    h = canonical.residuals(correlation, pairs, sets, tolerance)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.minimum(h.ij * h.ij / (h.ii * h.jj), np.inf)
    expected = h.near_singular, (h.ii <= 1e-300) | (h.jj <= 1e-300), squares
    for (i, j), members, near, undefined, square in zip(np.sort(pairs).tolist(), sets, *expected, strict=True):
        chosen, set_ = np.empty(size, np.int32), members.astype(np.int32)
        if size == 1:
            starts, smallest = np.zeros(P + 1, np.int64), np.array([np.inf])
            starts[i + 1 :] = 1
            edges = np.array([[i, j]], np.int32)
            data = correlation, starts, set_, edges, np.empty(0, np.int32)
            *_, found_undefined, found_near = _fisher_z.separate_edges_level_one(*data, never, smallest)
            found = smallest[0]
        else:
            tested = _fisher_z.first_separating_set(correlation, i, j, set_, chosen, never, True)
            _, found, (_, found_undefined, found_near) = tested
        assert (found_near, found_undefined) == (near, undefined)
        if not undefined:
            assert bits(found) == bits(square)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_either_end_gives_the_same(size):
    pairs, sets = every_test(size)
    correlation = correlation_of("determined")
    one, other = (canonical.residuals(correlation, each, sets, RESIDUAL_TOLERANCE) for each in (pairs, pairs[:, ::-1]))
    assert all(map(np.array_equal, one, other))


def test_pieces_give_the_same(monkeypatch):
    pairs, sets = every_test(3)
    whole = canonical.residuals(correlation_of("determined"), pairs, sets, RESIDUAL_TOLERANCE)
    monkeypatch.setitem(canonical.ENTRIES_AT_ONCE, True, 60)
    assert all(map(np.array_equal, whole, canonical.residuals(correlation_of("determined"), pairs, sets, 1e-10)))


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_it_is_the_test_of_equations_3_to_5(size):
    """Against 50 digits; only the digits that the conditioning of random correlations costs are lost."""
    correlation, (pairs, sets) = correlation_of("common"), every_test(size)
    pairs = np.sort(pairs)
    for h in (
        canonical.residuals(correlation, pairs, sets, RESIDUAL_TOLERANCE),
        canonical.quick_residuals(GaussianProblem.from_correlation(correlation, n_samples=9), correlation, pairs, sets),
    ):
        with mp.workdps(50):
            for k in range(0, len(pairs), 7):
                c = mp.matrix(correlation[np.ix_((*pairs[k], *sets[k]), (*pairs[k], *sets[k]))].tolist())
                exact = c[:2, :2] - c[:2, 2:] * c[2:, 2:] ** -1 * c[2:, :2]
                for found, right in ((h.ii, exact[0, 0]), (h.jj, exact[1, 1]), (h.ij, exact[0, 1])):
                    assert abs(found[k] - right) < 1e-13


def explained(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """v^T M^+ w for M = matrix and the columns v and w of (l, 2) vectors, in extended precision."""
    c = np.block([[matrix, vectors], [vectors.T, np.zeros((2, 2))]]).astype(np.longdouble)[..., None]
    h = canonical.residuals_of(c, pivot_tolerance=np.inf, fused=False)
    return -np.block([[h.ii, h.ij], [h.ij, h.jj]])


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_the_pseudo_inverse_is_that_of_moore_and_penrose(rank):
    rng = np.random.default_rng(rank)
    columns = rng.standard_normal((5, rank))
    matrix, vectors = columns @ columns.T, rng.standard_normal((5, 2))
    products = explained(matrix, vectors)
    expected = vectors.T @ np.linalg.pinv(matrix, rcond=1e-10) @ vectors
    np.testing.assert_allclose(products.astype(float), expected, rtol=1e-9)


def test_the_pseudo_inverse_keeps_its_digits_beside_near_copies():
    """M2 of an exact copy and a near one: forming R of Algorithm 7, line 2, loses half of these digits."""
    near = 1 - 2.0**-14
    matrix = np.array([[1, 1, near], [1, 1, near], [near, near, 1]], np.longdouble)
    vectors = np.array([[0.5, 0.25], [0.5, 0.25], [0.5, 0.125]], np.longdouble)
    with mp.workdps(60):
        distinct = mp.matrix(vectors[1:].astype(float).tolist())  # the copy adds nothing to what M2 explains
        expected = distinct.T * mp.matrix([[1, near], [near, 1]]) ** -1 * distinct
    expected = np.array(expected.tolist(), float).reshape(2, 2)
    np.testing.assert_allclose(explained(matrix, vectors).astype(float), expected, rtol=1e-11)
