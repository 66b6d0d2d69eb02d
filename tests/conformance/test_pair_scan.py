"""`pair-scan` decides as `cupc-s` does, to the last bit: on problems made so that one bit would change the answer."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from gpupc_impl import GaussianProblem, methods
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE
from tests.conformance.test_agreement import problems
from tests.graphs import assert_same
from tests.launches import solve

EXAMPLES = {"ci": 60, "explore": 10_000}[settings.get_current_profile_name()]
SAMPLES = 400
"""Samples of the constructed correlation matrices, enough for degrees of freedom at every level."""

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


@pytest.fixture(scope="module")
def backends() -> dict[int | None, HostBackend]:
    """Backends by their bytes of shared memory: 128 have no room for a row of three neighbours or the cells of a
    prefix; 600 have room for one or two warps at the first fused levels, and for none later."""
    opened = {shared: open_backend("host") for shared in (None, 128, 600)}
    for shared, backend in opened.items():
        backend.max_shared_bytes = shared or backend.max_shared_bytes
    return opened


def with_ulps(value: float, ulps: int) -> float:
    """The float64 that is some units in the last place above (or below) another."""
    for _ in range(abs(ulps)):
        value = float(np.nextafter(value, math.copysign(math.inf, ulps)))
    return value


def threshold_entry(correlation: np.ndarray, i: int, j: int, members: tuple[int, ...], critical: float) -> float | None:
    """The r_ij at which r_ij|S^2 is the critical value, with all other entries fixed; None if there is none."""
    with mp.workdps(40):
        c = mp.matrix(correlation[np.ix_((i, j, *members), (i, j, *members))].tolist())
        m1, m2 = c[:2, 2:], c[2:, 2:]
        try:
            explained = m1 * m2**-1 * m1.T
        except ZeroDivisionError:
            return None
        left = (1 - explained[0, 0]) * (1 - explained[1, 1])
        if left <= 0:
            return None
        entry = float(explained[0, 1] + mp.sqrt(mpf(critical) * left))
    return entry if abs(entry) < 0.999 else None


@st.composite
def threshold_problems(draw) -> GaussianProblem:
    """Correlation matrices in which chosen tests are decided in the last bits of r_ij.

    One half of the variables are endpoints of the chosen tests and the others form their sets, so that setting an entry
    does not change the tests chosen before.
    """
    p, level = draw(st.integers(4, 12)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    alpha = draw(st.sampled_from([1e-6, 0.001, 0.05, 0.5]))
    factor = draw(st.sampled_from([0.5, 1.0, 3.0]))
    data = rng.standard_normal((50, p)) + factor * rng.standard_normal((50, 1)) * rng.uniform(0.5, 1, p)
    correlation = np.corrcoef(data, rowvar=False)
    ends, pool = np.split(rng.permutation(p), [(p + 1) // 2])
    problem = GaussianProblem.from_correlation(correlation, n_samples=SAMPLES, alpha=alpha)
    correlation = problem.correlation.copy()
    for i, j in itertools.combinations(ends.tolist(), 2):
        size = min(level, len(pool))
        members = tuple(sorted(rng.choice(pool, size, replace=False).tolist()))
        entry = threshold_entry(correlation, i, j, members, problem.critical_r_squared(size))
        if entry is not None:
            correlation[i, j] = correlation[j, i] = with_ulps(entry, draw(st.integers(-4, 4)))
    return GaussianProblem.from_correlation(correlation, n_samples=SAMPLES, alpha=alpha)


@st.composite
def near_singular_problems(draw) -> GaussianProblem:
    """Some variables are determined by one or two others up to RESIDUAL_TOLERANCE, plus or minus the last bits."""
    p = draw(st.integers(5, 11))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = 100
    data = rng.standard_normal((m, p)) + draw(st.sampled_from([0.3, 1.0])) * rng.standard_normal((m, 1))
    pairs = []
    for _ in range(draw(st.integers(1, 3))):
        first, second, copy = rng.choice(p, 3, replace=False)
        source = data[:, first] + (data[:, second] if draw(st.booleans()) else 0.0)
        noise = rng.standard_normal(m)
        noise *= math.sqrt(RESIDUAL_TOLERANCE) * source.std() / noise.std()
        data[:, copy] = source + noise * draw(st.sampled_from([0.0, 0.5, 0.999, 1.0, 1.001, 2.0]))
        pairs.append((first, copy))
    problem = GaussianProblem.from_data(data, alpha=draw(st.sampled_from([0.01, 0.2, 0.9])), max_level=6)
    correlation = problem.correlation.copy()
    for a, b in pairs:
        if abs(correlation[a, b]) > 1 - 1e-9:  # 1 - r^2 is the tolerance, plus or minus some ulps of r
            near = with_ulps(math.sqrt(1 - RESIDUAL_TOLERANCE), draw(st.integers(-3, 3)))
            correlation[a, b] = correlation[b, a] = math.copysign(near, correlation[a, b])
    return GaussianProblem.from_correlation(correlation, n_samples=m, alpha=problem.alpha, max_level=6)


launches = st.fixed_dictionaries(
    {
        "fused_levels": st.sampled_from(["auto", "always", "never"]),
        "tiles": st.sampled_from(["auto", "always", "never"]),
    }
)


@st.composite
def random_problems(draw) -> GaussianProblem:
    """Those of test_agreement.py, up to the level that `cupc-s` reaches quickly."""
    return dataclasses.replace(draw(problems()), max_level=3)


tolerances = st.sampled_from([RESIDUAL_TOLERANCE, 0.0])


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_bit_differs_from_cupc_s(backends, data):
    problem = data.draw(st.one_of(threshold_problems(), near_singular_problems(), random_problems()), label="problem")
    problem = dataclasses.replace(problem, residual_tolerance=data.draw(tolerances, label="residual_tolerance"))
    params = data.draw(launches, label="launch")
    variants = [(None, False), (None, True), (128, False), (600, False)]
    shared, pmax = data.draw(st.sampled_from(variants), label="variant")
    if pmax or shared:
        problem = dataclasses.replace(problem, max_level=min(4, problem.max_level or 4))  # fewer kernels to compile
    expected = solve(problem, methods()["cupc-s"], backends[None], pmax=pmax)
    found = solve(problem, methods()["pair-scan"], backends[shared], params, pmax=pmax)
    assert_same(found, expected)
    event(f"levels: {expected.levels_run}")
    event(f"near-singular conditioning matrices: {expected.pseudo_inverses > 0}")
    event(f"undefined tests: {expected.undefined_tests > 0}")
