"""Every method of the families whose tests decide by p-values finds what the plain reference finds, on random problems
and in every form: kernel tests and likelihood ratio tests of regressions."""

import functools
import warnings

import numpy as np
import pytest

from gpupc_impl import DeviceMemoryError, KernelProblem, RegressionProblem, Skeleton, alpha_path, bootstrap, skeleton
from gpupc_impl.core.family import open_tests
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import Method, methods
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from gpupc_impl.kernel.problem import NULLS

FORMS = [(test, null) for test, nulls in NULLS.items() for null in nulls]


def additive_noise(rng: np.random.Generator, p: int, n: int, density: float = 0.4) -> np.ndarray:
    """(n, p) samples of a random graph whose effects are sums of sines and straight lines of their causes."""
    edges = np.tril(rng.random((p, p)) < density, -1)
    data = rng.standard_normal((n, p))
    for v in range(p):
        causes = data[:, edges[v]]
        data[:, v] += (np.sin(2 * causes) + 0.5 * causes).sum(axis=1)
    return data


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


def draw_kernel(rng: np.random.Generator) -> KernelProblem:
    """A random problem of any test and null distribution, at times with a repeated or a constant column."""
    p, n = int(rng.integers(2, 7)), int(rng.integers(12, 70))
    test, null = FORMS[rng.integers(len(FORMS))]
    data = additive_noise(rng, p, n)
    if rng.random() < 0.2:
        data[:, rng.integers(p)] = 1.5
    if rng.random() < 0.2:
        data[:, rng.integers(p)] = np.round(data[:, rng.integers(p)])
    alpha, features, seed = float(rng.choice([0.01, 0.05, 0.3])), int(rng.integers(2, 6)), int(rng.integers(100))
    return KernelProblem.from_data(data, test=test, null=null, alpha=alpha, max_level=2, features=features, seed=seed)


def draw_regression(rng: np.random.Generator) -> RegressionProblem:
    """A random problem, at times with a constant variable, or with one that repeats another one."""
    p, n = int(rng.integers(2, 7)), int(rng.integers(8, 120))
    data, coded = mixed_data(rng, p, n)
    if rng.random() < 0.2:
        data[:, rng.integers(p)] = 1.0
    if rng.random() < 0.2:
        copy, original = rng.integers(p, size=2)
        data[:, copy] = data[:, original]
        coded = [name for name in coded if name != f"V{copy}"] + [f"V{copy}"] * (f"V{original}" in coded)
    return RegressionProblem.from_data(data, categories=coded, alpha=float(rng.choice([0.01, 0.1])), max_level=2)


DRAWN = [("kernel", [seed, 1]) for seed in range(4)] + [("regression", [seed, 2]) for seed in range(6)]


def drawn(family: str, seed: list[int]) -> Problem:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant variables are meant
        return (draw_kernel if family == "kernel" else draw_regression)(np.random.default_rng(seed))


def find(problem: Problem, method: Method, backend: str) -> Skeleton:
    if reason := unavailable(method, "auto" if backend == "cpu" else backend):
        pytest.skip(reason)
    return solve(problem, method, open_method_backend(method, "auto" if backend == "cpu" else backend), pmax=True)


def reference(problem: Problem) -> Skeleton:
    return solve(problem, methods()[f"{problem.family}-serial"], None, pmax=True)


@functools.cache
def answer(family: str, *seed: int) -> Skeleton:
    return reference(drawn(family, list(seed)))


@pytest.mark.parametrize(
    ("family", "seed", "method", "backend"),
    [
        pytest.param(family, seed, method, backend, marks=[pytest.mark.gpu] * (backend == "cuda"))
        for family, seed in DRAWN
        for method in methods(family).values()
        for backend in method.backends
        if not method.random
    ],
)
def test_random_problems(family, seed, method, backend):
    found, expected = find(drawn(family, seed), method, backend), answer(family, *seed)
    assert found == expected
    assert found.edges_per_level == expected.edges_per_level
    np.testing.assert_allclose(found.pmax, expected.pmax, rtol=0, atol=1e-7 if family == "kernel" else 1e-6)


@pytest.mark.parametrize(("test", "null"), FORMS)
def test_p_values_of_every_form(test, null):
    problem = KernelProblem.from_data(additive_noise(np.random.default_rng(3), 4, 60), test=test, null=null)
    found, expected = find(problem, methods()["kernel-batched"], "host"), reference(problem)
    assert found == expected
    np.testing.assert_allclose(found.pmax, expected.pmax, rtol=0, atol=1e-8)


@pytest.mark.parametrize("test", NULLS)
def test_answers_do_not_depend_on_the_batch(test):
    problem = KernelProblem.from_data(additive_noise(np.random.default_rng(4), 6, 100), test=test)
    pairs = np.array([[i, j] for i in range(2, 6) for j in range(i + 1, 6)])
    strength = open_tests(problem, "host").strengths
    together, _ = strength(pairs, np.tile([0, 1], (len(pairs), 1)))
    alone = [strength(pair[None, ::-1], np.array([[1, 0]]))[0][0] for pair in pairs]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-9)


def test_beyond_exact_kernels(monkeypatch):
    monkeypatch.setattr("gpupc_impl.kernel.problem.EXACT_SAMPLES", 100)
    problem = KernelProblem.from_data(additive_noise(np.random.default_rng(5), 4, 150), test="kci", landmarks=60)
    found = find(problem, methods()["kernel-batched"], "host")
    assert found == reference(problem)
    assert found.facts["problem"]["form"] == "Nystrom"


def test_memory_that_sorting_lacks_is_named(monkeypatch):
    def lacking(*arguments, **options):
        raise MemoryError("std::bad_alloc")  # what CuPy raises where an allocation within Thrust fails

    data = additive_noise(np.random.default_rng(6), 5, 60)
    monkeypatch.setattr(np, "sort", lacking)
    with pytest.raises(DeviceMemoryError, match=r"bytes asked for with .* in use; give the method more device memory"):
        skeleton(data, 0.05, family="kernel", test="rcot", backend="host", method="kernel-batched")


@pytest.mark.parametrize("family", ["kernel", "regression"])
def test_studies_strengths_and_a_small_budget(family):
    rng = np.random.default_rng(1)
    data, coded = (additive_noise(rng, 5, 150), None) if family == "kernel" else mixed_data(rng, 5, 150)
    options = {"family": family, "backend": "host"} | ({} if coded is None else {"categories": coded})
    path = alpha_path(data, (0.01, 0.1), **options)
    assert path[0.1] == skeleton(data, 0.1, **options)
    assert bootstrap(data, 2, 0.05, **options, progress=False).n == 2
    frame = path[0.1].strengths("all", backend="host")
    assert list(frame.columns)[-1] == "statistic"
    assert (frame.p_value[frame.kind == "removed"] >= 0.1).all()
    with pytest.raises(DeviceMemoryError) as refused:
        skeleton(data, 0.1, **options, device_memory_limit=10_000)
    assert skeleton(data, 0.1, **options, device_memory_limit=2 * refused.value.requested) == path[0.1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "hsic"}, "test is 'hsic'; choose one of"),
        ({"null": "gamma"}, "null is 'gamma'; for test='rcit'"),
        ({"weights": "none"}, "weights is 'none'"),
        ({"features": 0}, "features is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_parameters_are_refused(options, message):
    with pytest.raises(InvalidProblem, match=message):
        KernelProblem.from_data(np.random.default_rng(0).random((20, 3)), **options)


def test_too_many_samples_for_the_spectral_null():
    with pytest.raises(InvalidProblem, match=r"spectral.*1001 samples.*at most 1000"):
        KernelProblem.from_data(np.random.default_rng(0).random((1001, 2)), test="kci", null="spectral")
