"""Every method of the regression family finds what the plain reference finds, on random problems."""

import warnings

import numpy as np
import pytest

from gpupc_impl import DeviceMemoryError, Skeleton, alpha_path, bootstrap, methods, skeleton
from gpupc_impl.core.registry import Method
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from gpupc_impl.regression.problem import RegressionProblem

SETTINGS = [
    pytest.param(method, backend, marks=[pytest.mark.gpu] if backend == "cuda" else [], id=f"{method.name}-{backend}")
    for method in methods("regression").values()
    for backend in method.backends
]


def mixed_data(rng: np.random.Generator, p: int, n: int) -> tuple[np.ndarray, list[str]]:
    """(n, p) samples of a random linear graph, in which about half of the variables are cut into 2 to 4 categories, and
    the names of these."""
    data = rng.standard_normal((n, p))
    coded = []
    for v in range(p):
        data[:, v] += data[:, :v] @ ((rng.random(v) < 0.4) * rng.choice([-0.8, 0.8], v))
        if rng.random() < 0.5:
            data[:, v] = np.digitize(data[:, v], np.sort(rng.normal(size=rng.integers(1, 4))))
            coded.append(f"V{v}")
    return data, coded


def draw_problem(rng: np.random.Generator) -> RegressionProblem:
    """A random problem, at times with a constant variable, or with one that repeats another one."""
    p, n = int(rng.integers(2, 7)), int(rng.integers(8, 120))
    data, coded = mixed_data(rng, p, n)
    if rng.random() < 0.2:
        data[:, rng.integers(p)] = 1.0
    if rng.random() < 0.2:
        copy, original = rng.integers(p, size=2)
        data[:, copy] = data[:, original]
        coded = [name for name in coded if name != f"V{copy}"] + [f"V{copy}"] * (f"V{original}" in coded)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant variables are meant
        return RegressionProblem.from_data(data, categories=coded, alpha=float(rng.choice([0.01, 0.1])), max_level=2)


def find(problem: RegressionProblem, method: Method, backend: str) -> Skeleton:
    if reason := unavailable(method, "auto" if backend == "cpu" else backend):
        pytest.skip(reason)
    return solve(problem, method, open_method_backend(method, "auto" if backend == "cpu" else backend), pmax=True)


@pytest.mark.parametrize(("method", "backend"), SETTINGS)
@pytest.mark.parametrize("seed", range(6))
def test_random_problems(method, backend, seed):
    problem = draw_problem(np.random.default_rng([seed, 2]))
    expected = solve(problem, methods()["regression-serial"], None, pmax=True)
    found = find(problem, method, backend)
    assert found == expected
    assert found.edges_per_level == expected.edges_per_level
    np.testing.assert_allclose(found.pmax, expected.pmax, rtol=0, atol=1e-6)


def test_studies_strengths_and_a_small_budget():
    data, coded = mixed_data(np.random.default_rng(1), 5, 150)
    options = {"family": "regression", "backend": "host", "categories": coded}
    path = alpha_path(data, (0.01, 0.1), **options)
    assert path[0.1] == skeleton(data, 0.1, **options)
    assert bootstrap(data, 2, 0.05, **options, progress=False).n == 2
    frame = path[0.1].strengths("all", backend="host")
    assert (frame.p_value[frame.kind == "removed"] >= 0.1).all()
    with pytest.raises(DeviceMemoryError) as refused:
        skeleton(data, 0.1, **options, device_memory_limit=10_000)
    assert skeleton(data, 0.1, **options, device_memory_limit=2 * refused.value.requested) == path[0.1]
