"""Kernels and references have the bits of the canonical evaluation, also if M2 is singular."""

import itertools
import math
from fractions import Fraction

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
from tests.unit.gaussian.test_pair_scan import ELIMINATE, matrices

KINDS = sorted(matrices(2))
P = 9
END, ROW = 4, tuple(k for k in range(P) if k != 4)
PIVOT_TOLERANCES = (RESIDUAL_TOLERANCE, 0.0, 1.0)


def correlation_of(kind: str) -> np.ndarray:
    return GaussianProblem.from_correlation(matrices(P)[kind], n_samples=100).correlation


def each_test(size: int):
    """(j, S) for every set of the row but its last variable, and every other variable of the row."""
    for members in itertools.combinations(ROW[:-1], size):
        yield from ((j, members) for j in ROW if j not in members)


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


def residuals(correlation: np.ndarray, i: int, j: int, members: tuple[int, ...], tolerance: float):
    """The residuals of one test, as numbers."""
    h = canonical.residuals(correlation, np.array([[i, j]]), np.array([members], int).reshape(1, -1), tolerance)
    return canonical.Residuals(*(entry[0] for entry in h))


@pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))
@pytest.mark.parametrize("tolerance", PIVOT_TOLERANCES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_have_its_bits(kind, size, tolerance):
    correlation, n = correlation_of(kind), len(ROW)
    backend = open_backend("host")
    sets = math.comb(n - 1, size)
    by_prefix, by_set = (backend.full((sets, n, 3), 0, np.float64) for _ in range(2))
    singular = backend.full((sets, 2), 0, np.int32)
    cells = backend.empty((3 * size + 2) * n, np.float64)
    row = backend.upload(np.array(ROW, np.int32))
    arguments = [np.int32(P), np.int32(END), row, np.int32(n), np.float64(tolerance), cells]
    arguments += [by_prefix, by_set, singular, np.int32(size)]
    backend.kernel(ELIMINATE, f"eliminate<Exactly<{size}>>")((1,), (1,), [backend.upload(correlation), *arguments])
    found = backend.download(by_set)
    for t, members in enumerate(itertools.combinations(ROW[:-1], size)):
        for q, j in enumerate(ROW):
            if j in members:
                continue
            h = residuals(correlation, END, j, members, tolerance)
            assert h.near_singular == bool(singular[t, 1])
            mine = (h.ii, h.ij, h.jj) if j > END else (h.jj, h.ij, h.ii)
            np.testing.assert_array_equal(bits(mine), bits(found[t, q][[0, 2, 1]]))


@pytest.mark.parametrize("tolerance", PIVOT_TOLERANCES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_references_have_its_bits(kind, size, tolerance):
    pytest.importorskip("numba")
    from baselines import _fisher_z

    correlation = correlation_of(kind)
    never = (-1.0, 1e-300, tolerance, PSEUDO_INVERSE_TOLERANCE)  # critical r^2 with which no test separates
    for j, members in each_test(size):
        i, j = min(END, j), max(END, j)
        h = residuals(correlation, i, j, members, tolerance)
        chosen, set_ = np.empty(size, np.int32), np.array(members, np.int32)
        if size == 1:
            starts, smallest = np.zeros(P + 1, np.int64), np.array([np.inf])
            starts[i + 1 :] = 1
            edges = np.array([[i, j]], np.int32)
            data = correlation, starts, set_, edges, np.empty(0, np.int32)
            *_, undefined, near = _fisher_z.separate_edges_level_one(*data, never, smallest)
            square = smallest[0]
        else:
            _, square, (_, undefined, near) = _fisher_z.first_separating_set(
                correlation, i, j, set_, chosen, never, True
            )
        assert near == h.near_singular
        assert undefined == (h.ii <= 1e-300 or h.jj <= 1e-300)
        if not undefined:
            np.testing.assert_array_equal(bits(square), bits(min(h.ij * h.ij / (h.ii * h.jj), math.inf)))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_either_end_gives_the_same(size):
    correlation = correlation_of("determined")
    for j, members in each_test(size):
        one, other = (residuals(correlation, *ends, members, RESIDUAL_TOLERANCE) for ends in ((END, j), (j, END)))
        assert one == other


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_it_is_the_test_of_equations_3_to_5(size):
    """Against 50 digits; only the digits that the conditioning of random correlations costs are lost."""
    correlation = correlation_of("common")
    with mp.workdps(50):
        for j, members in each_test(size):
            h = residuals(correlation, END, j, members, RESIDUAL_TOLERANCE)
            ends = (min(END, j), max(END, j))
            c = mp.matrix(correlation[np.ix_((*ends, *members), (*ends, *members))].tolist())
            exact = c[:2, :2] - c[:2, 2:] * c[2:, 2:] ** -1 * c[2:, :2]
            for found, right in ((h.ii, exact[0, 0]), (h.jj, exact[1, 1]), (h.ij, exact[0, 1])):
                assert abs(found - right) < 1e-13
