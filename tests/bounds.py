"""The bound in single precision that most tests of level_one_tile.cu end with, on either backend."""

import itertools
from pathlib import Path

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE

SOURCE = Path(__file__).parent / "unit" / "gaussian" / "kernels" / "bounds.cu"
CASES = list(itertools.product([1e-16, 1e-6, 1e-3, 0.2, 0.999], [RESIDUAL_TOLERANCE, 0.0]))
"""Critical r^2 and residual tolerance."""

TESTS = 200_000


def check(backend: Backend, critical: float, tolerance: float) -> None:
    """No test that separates is ruled out, even within 1e-9 of the critical value; away from it, every test that does
    not separate is."""
    rng = np.random.default_rng(5)
    r_ik, r_jk = np.tanh(rng.normal(size=(2, TESTS)) * rng.choice([0.01, 1.0, 6.0], TESTS))
    root = np.sqrt(critical * (1 - r_ik**2) * (1 - r_jk**2)) * rng.choice([-1, 1], TESTS)
    near = r_ik * r_jk + root * (1 + rng.choice([-1e-9, -1e-15, 0, 1e-15, 1e-9], TESTS))
    others = np.tanh(rng.normal(size=TESTS))
    may, separates = _decide(backend, near, r_ik, r_jk, critical, tolerance)
    assert not (separates & ~may).any()
    assert 0.2 * TESTS < np.count_nonzero(separates) < 0.9 * TESTS
    may, separates = _decide(backend, others, r_ik, r_jk, critical, tolerance)
    assert not (separates & ~may).any()
    left, right = np.abs(others - r_ik * r_jk), np.abs(root)
    clear = np.abs(left - right) > 1e-5
    if tolerance == 0:
        clear &= (np.abs(right - critical * left) > 1e-5 * np.sqrt(critical)) & (right > 0)
    assert np.array_equal(may[clear], separates[clear])
    assert np.count_nonzero(clear) > 0.6 * TESTS


def _decide(backend, r_ij, r_ik, r_jk, critical, tolerance):
    """Whether each test may separate, and whether it does."""
    r = np.clip(np.stack([r_ij, r_ik, r_jk], axis=1), -1.0, 1.0)
    found = backend.full(TESTS, 0, np.uint8), backend.full(TESTS, 0, np.uint8)
    numbers = np.int32(TESTS), np.float64(critical), np.float64(tolerance)
    kernel = backend.kernel(SOURCE, f"decide<{str(tolerance > 0).lower()}>")
    kernel((8,), (32,), [backend.upload(r), *numbers, *found])
    return map(backend.download, found)
