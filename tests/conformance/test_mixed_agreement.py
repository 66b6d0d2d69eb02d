"""One answer in the mixed family: every method, with any launch parameters, counts and removes the same.

Methods with random numbers of their own are left out. `tests/golden/test_mixed_tigramite.py` asks whether the answer is
right.
"""

import numpy as np
import pandas as pd
import pytest

from datasets.mixed import categorized_noise
from gpupc_impl import MixedProblem, methods, skeleton
from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.core.solve import solve, unavailable
from gpupc_impl.mixed.gpucmiknn_mixed import mixed_ci_test
from gpupc_impl.mixed.retest import MixedRetest
from tests.conformance.drawn import check_single_tests, knn_options, random_parameters, usable
from tests.graphs import assert_same

pytestmark = pytest.mark.xdist_group("cmiknn")  # so that only one process compiles the references

SETTINGS = usable("mixed", lambda method: not method.random)
KERNELS = {name: setting for name, setting in SETTINGS.items() if setting[0].backends != ("cpu",)}
EVERY = {method.name: method for method in methods("mixed").values() if unavailable(method, "auto") is None}
CASES_A_TEST = 6


def draw_problem(rng: np.random.Generator, most_samples: int, most_permutations: int) -> MixedProblem:
    """A generated graph, at times with ties, copies or many categories, and any parameters of the test."""
    p, n = int(rng.integers(2, 7)), int(rng.integers(12, most_samples + 1))
    share = float(rng.choice([0.0, 0.5, 0.5, 1.0]))
    data = categorized_noise(p, n, seed=int(rng.integers(1000)), degree=min(2.0, p - 1), share=share)
    values, labels = data.values.copy(), dict(zip(data.names, data.labels, strict=True))
    kind = rng.integers(5)
    if kind == 0:
        values = np.round(2 * values)
    elif kind == 1:
        values[:, -1], labels[data.names[-1]] = values[:, 0], labels[data.names[0]]
    elif kind == 2:
        values[:, 0], labels[data.names[0]] = np.arange(n) // 2, ("many",)
    options = knn_options(rng, n, most_permutations)
    return MixedProblem.from_data(values, names=data.names, categories=labels, max_level=2, **options)


def check_agreement(seed: int, most_samples: int, most_permutations: int) -> None:
    rng = np.random.default_rng(seed)
    problem = draw_problem(rng, most_samples, most_permutations)
    expected = skeleton(problem, method="mixed-serial", pmax=True)
    for method, backend in SETTINGS.values():
        params = random_parameters(method, rng)
        assert_same(skeleton(problem, method=method.name, backend=backend, pmax=True, **params), expected)
        assert skeleton(problem, method=method.name, backend=backend, **params) == expected
    retest = MixedRetest(problem)
    for i, j in [pair for pair in expected.sepsets if expected.sepsets[pair]][:2]:
        members = list(expected.sepsets[i, j])
        assert max(retest.count(i, j, members), retest.count(j, i, members)) >= problem.critical_count


def test_the_methods_are_here():
    assert {method.name for method, _ in SETTINGS.values()} >= {"gpucmiknn-mixed", "mixed-serial", "mixed-parallel"}


LARGER = [(chunk, 60, 20) for chunk in (1, 2, 3)] + [(chunk, 200, 100) for chunk in range(1667, 1677)]


@pytest.mark.parametrize("data", [(0, 60, 20), *(pytest.param(data, marks=pytest.mark.slow) for data in LARGER)])
def test_every_method_finds_the_same(data):
    chunk, most_samples, most_permutations = data
    for case in range(CASES_A_TEST):
        check_agreement(CASES_A_TEST * chunk + case, most_samples, most_permutations)


@pytest.mark.parametrize("name", KERNELS)
def test_counts_and_cmi_of_single_tests(name):
    from baselines._mixed import MixedTest

    check_single_tests(KERNELS[name], lambda rng: draw_problem(rng, 80, 20), MixedTest, MixedRetest, mixed_ci_test)


def chain(n: int, seed: int) -> pd.DataFrame:
    """The chain x -> group -> y, and an independent number."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    group = np.digitize(x + 0.3 * rng.normal(size=n), [-0.5, 0.5])
    y = np.array([1.0, -1.0, 0.5])[group] + 0.3 * rng.normal(size=n)
    return pd.DataFrame({"x": x, "group": np.array(["b", "c", "a"])[group], "y": y, "apart": rng.normal(size=n)})


@pytest.mark.parametrize(
    ("name", "transform"),
    [
        pytest.param(name, transform, marks=[pytest.mark.slow] * (transform != "ranks" and "tigramite" in name))
        for name in EVERY
        for transform in ("ranks", "standardize")
    ],
)
def test_recovers_a_known_graph(name, transform):
    options = {"permutations": 60, "transform": transform, "seed": 1}
    found = skeleton(chain(150, 0), 0.02, family="mixed", method=name, **options)
    assert found.edges.tolist() == [[0, 1], [1, 2]]
    if not EVERY[name].random:
        assert found.sepsets[0, 2] == (1,)


@pytest.mark.parametrize("name", EVERY)
def test_fewest_variables_and_samples(name):
    for p, n in ((1, 2), (2, 2), (2, 3), (3, 4)):
        data = pd.DataFrame({str(v): np.random.default_rng(v).permutation(n) for v in range(p)})
        data["0"] = data["0"].astype(str)
        for k in {1, n - 1}:
            problem = MixedProblem.from_data(data, alpha=0.3, k_cmi=k, k_perm=k, permutations=9)
            found = skeleton(problem, method=name, pmax=True)
            assert found.adjacency.shape == (p, p)
            if not EVERY[name].random:
                assert_same(found, skeleton(problem, method="mixed-serial", pmax=True))


@pytest.mark.filterwarnings("ignore:.*constant variable")
@pytest.mark.parametrize("name", EVERY)
def test_constants_end_isolated(name):
    data = chain(60, 1).assign(group="one", apart=2.5)
    found = skeleton(data, 0.05, family="mixed", method=name, permutations=20)
    assert not found.adjacency[1].any()
    assert not found.adjacency[3].any()


@pytest.mark.parametrize("name", KERNELS)
def test_little_memory_means_blocks_not_another_answer(name):
    method, backend = KERNELS[name]
    problem = MixedProblem.from_data(chain(80, 2), alpha=0.02, permutations=30, max_level=2)
    roomy = open_backend(backend)
    expected = solve(problem, method, roomy, pmax=True)
    tight = open_backend(backend, roomy.memory_peak)
    assert_same(solve(problem, method, tight, pmax=True), expected)
    with pytest.raises(DeviceMemoryError, match="bytes"):
        solve(problem, method, open_backend(backend, 4000))
