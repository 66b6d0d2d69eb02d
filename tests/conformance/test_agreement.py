"""One answer: on random problems every method, with any launch parameters, finds what stable-serial finds.

And that answer is right: separating sets are tested again from scratch in 50 digits.
"""

import dataclasses
import math

import numpy as np
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from gpupc_impl import GaussianProblem, skeleton
from gpupc_impl.gaussian import canonical
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, RESIDUAL_TOLERANCE
from tests.conformance.affordable import affordable
from tests.conformance.drawn import launch_parameters

STRUCTURES = ("sparse", "dense", "chain", "star", "complete", "one factor", "independent")
COPY_NOISE = ((0.0, 1e-9, 1e-7), (1e-4, 1e-3, 1e-2), (0.0, 1e-9, 1e-7, 1e-4, 1e-3, 1e-2))
"""Standard deviation of what tells a copied column from its original: copies that count as determined by it, copies
that do not, and both in one problem, which is where the pseudo-inverse loses most digits; test_near_singular.py has
more of these.
"""
ILL_CONDITIONED = 1e-6
"""Smallest variance in a test down to which float64 and 50 digits certainly decide alike."""
MOST_SETS = 5_000_000
"""Tests that the deepest level of a drawn problem could need if no edge were removed."""
MOST_TESTS = 200_000
"""Upper bound on the tests of a level."""
DEEPEST = settings.default.max_examples // 8
"""Deepest level of a drawn problem, since every level has kernels of its own; `test_deep_levels` goes to level nine."""
CERTIFIED = 6
"""Most removed edges of a problem whose sets are tested again in 50 digits."""


def draw_data(rng: np.random.Generator, structure: str, p: int, m: int) -> np.ndarray:
    """(m, p) samples of a linear model whose graph has the structure, columns in random order."""
    noise = rng.standard_normal((m, p))
    if structure == "one factor":  # no edge is ever explained by the others
        return noise * rng.uniform(0.1, 1) + rng.standard_normal((m, 1))
    lower = np.tril(np.ones((p, p)), -1)
    mask = {
        "sparse": rng.random((p, p)) < 2 / p,
        "dense": rng.random((p, p)) < 0.5,
        "chain": np.eye(p, k=-1),
        "star": np.arange(p) == np.zeros((p, 1)),
        "complete": np.ones((p, p)),
        "independent": np.zeros((p, p)),
    }[structure]
    weights = mask * lower * rng.uniform(0.1, 1, (p, p)) * rng.choice([-1, 1], (p, p))
    return np.linalg.solve(np.eye(p) - weights, noise.T).T[:, rng.permutation(p)]


@st.composite
def problems(draw) -> GaussianProblem:
    p, m = draw(st.integers(2, 30)), draw(st.integers(5, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    data = draw_data(rng, draw(st.sampled_from(STRUCTURES)), p, m)
    for noise in draw(st.sampled_from(COPY_NOISE).flatmap(lambda kind: st.lists(st.sampled_from(kind), max_size=3))):
        original, copy = rng.integers(p, size=2)
        data[:, copy] = data[:, original] + noise * data[:, original].std() * rng.standard_normal(m)
    affordable_levels = [level for level in range(p - 1) if p * (p - 1) * math.comb(p - 2, level) <= MOST_SETS]
    return GaussianProblem.from_data(
        data,
        alpha=draw(st.sampled_from([0.001, 0.01, 0.05, 0.2, 0.5, 0.9])),
        df_convention=draw(st.sampled_from(["pcalg", "cupc"])),
        pseudo_inverse=draw(st.sampled_from(["near-singular", "always"])),
        max_level=min(max(affordable_levels), DEEPEST),
    )


@settings(max_examples=settings.default.max_examples, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_method_finds_the_same(usable_settings, data):
    problem = data.draw(problems(), label="problem")
    literal = data.draw(st.booleans(), label="residual_tolerance of zero")
    if literal:
        problem = dataclasses.replace(problem, residual_tolerance=0.0)
    problem, expected = affordable(problem, "stable-serial", MOST_TESTS)
    event(f"levels: {expected.levels_run}")
    event(f"near-singular conditioning matrices: {expected.pseudo_inverses > 0}")
    event(f"undefined tests: {expected.undefined_tests > 0}")
    some = st.lists(st.sampled_from(sorted(usable_settings)), min_size=2, max_size=2, unique=True)
    for name in usable_settings if problem.n_variables <= 8 else data.draw(some, label="settings"):
        method, backend = usable_settings[name]
        params = data.draw(launch_parameters(method), label=name)
        found = skeleton(problem, method=method.name, backend=backend, **params)
        assert np.array_equal(found.adjacency, expected.adjacency)
        assert found.sepsets == expected.sepsets
        assert found.edges_per_level == expected.edges_per_level
        assert found.stopped_because == expected.stopped_because
    removed = [] if literal or problem.pseudo_inverse == "always" else list(expected.sepsets)
    chosen = np.random.default_rng(0).permutation(len(removed))[:CERTIFIED]
    for i, j in (removed[k] for k in chosen):
        assert_separates(problem, i, j, expected.sepsets[i, j])


def assert_separates(problem: GaussianProblem, i: int, j: int, members: tuple[int, ...]) -> None:
    """The test of cuPC's equations 3 to 5 in 50 digits, by the rules of `gpupc_impl.core.problem`.

    What float64 can lose to the conditioning of the test is allowed for. Where it can lose all, the set must separate
    by the canonical evaluation, to the bit.
    """
    with mp.workdps(50):
        h11, h12, h22, conditioning = residuals(problem.correlation, i, j, members)
        critical = problem.critical_r_squared(len(members))
        smallest = min(conditioning, h11, h22)
        margin = min(1e-9 / max(smallest, mpf(RESIDUAL_TOLERANCE)), mpf(1e-3))
        confirmed = min(h11, h22) > RESIDUAL_TOLERANCE and h12**2 <= critical * h11 * h22 * (1 + margin)
    if not confirmed and smallest <= ILL_CONDITIONED:
        pair, sets = np.array([[i, j]]), np.array([members], int).reshape(1, -1)
        h = canonical.residuals(problem.correlation, pair, sets, problem.pivot_tolerance)
        confirmed = min(h.ii, h.jj) > RESIDUAL_TOLERANCE and h.ij * h.ij <= critical * (h.ii * h.jj)
    assert confirmed, (i, j, members)


def residuals(correlation: np.ndarray, i: int, j: int, members: tuple[int, ...]):
    """H11, H12, H22 and the smallest pivot of M2 (1 for an empty set)."""
    c = mp.matrix(correlation[np.ix_((i, j, *members), (i, j, *members))].tolist())
    size = len(members)
    m0, m1, m2 = c[:2, :2], c[:2, 2:], c[2:, 2:]
    if not size:
        return m0[0, 0], m0[0, 1], m0[1, 1], mpf(1)
    _, pivots = full_rank_cholesky(m2, RESIDUAL_TOLERANCE)
    if min(pivots) > RESIDUAL_TOLERANCE:
        inverse = m2**-1
    else:
        gram = m2.T * m2
        factor, _ = full_rank_cholesky(gram, PSEUDO_INVERSE_TOLERANCE * min(gram[k, k] for k in range(size)))
        inner = (factor.T * factor) ** -1
        inverse = factor * inner * inner * factor.T * m2.T
    h = m0 - m1 * inverse * m1.T
    return h[0, 0], h[0, 1], h[1, 1], max(min(pivots), mpf(RESIDUAL_TOLERANCE))


def full_rank_cholesky(a, no_pivot):
    """Columns of L with L L^T = a, and all pivots; a pivot of at most ``no_pivot`` adds no column."""
    size = a.rows
    columns, pivots = [], []
    for k in range(size):
        column = [a[t, k] - sum(c[t] * c[k] for c in columns) if t >= k else mpf(0) for t in range(size)]
        pivots.append(column[k])
        if column[k] > no_pivot:
            root = mp.sqrt(column[k])
            columns.append([entry / root for entry in column])
    return mp.matrix(columns).T, pivots
