"""One answer in the nonlinear family: every method, with any launch parameters, counts and removes the same.

Methods with random numbers of their own are left out. `tests/golden/test_cmiknn_tigramite.py` asks whether the answer
is right.
"""

import warnings

import numpy as np
import pytest

from datasets.nonlinear import additive_noise
from gpupc_impl import skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.nonlinear.cmi_estimator import ci_test
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.retest import Retest
from tests.conformance.drawn import check_single_tests, knn_options, random_parameters, usable
from tests.graphs import assert_same

pytestmark = pytest.mark.xdist_group("cmiknn")  # so that only one process compiles the references

SETTINGS = usable("nonlinear", lambda method: not method.random)
KERNELS = {name: setting for name, setting in SETTINGS.items() if setting[0].backends != ("cpu",)}
OTHERS = usable("nonlinear", lambda method: method.random and not method.module.startswith("baselines.peers."))
"""The project's own random methods; tests/gpu/test_cuda_peers.py compares those of other groups."""
CASES_A_TEST = 4


def draw_problem(rng: np.random.Generator, most_samples: int, most_permutations: int) -> NonlinearProblem:
    """A graph of section 5.1, at times with ties, a copy or a constant, and any parameters of the test."""
    p, n = int(rng.integers(3, 8)), int(rng.integers(20, most_samples + 1))
    data = additive_noise(p, n, seed=int(rng.integers(1000))).values.copy()
    kind = rng.integers(6)
    if kind == 0:
        data = np.round(2 * data)
    elif kind == 1:
        data[:, -1] = data[:, 0]
    elif kind == 2:
        data[:, -1] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the constant variable
        return NonlinearProblem.from_data(data, max_level=3, **knn_options(rng, n, most_permutations))


def check_agreement(seed: int, most_samples: int, most_permutations: int) -> None:
    rng = np.random.default_rng(seed)
    problem = draw_problem(rng, most_samples, most_permutations)
    expected = skeleton(problem, method="cmiknn-serial", pmax=True)
    for method, backend in SETTINGS.values():
        params = random_parameters(method, rng)
        found = skeleton(problem, method=method.name, backend=backend, pmax=True, **params)
        assert_same(found, expected)
        if method.reference:
            assert found.tests_per_level == expected.tests_per_level
        else:
            assert found.tests_per_level >= expected.tests_per_level
    retest = Retest(problem)
    for i, j in [pair for pair in expected.sepsets if expected.sepsets[pair]][:2]:
        members = expected.sepsets[i, j]
        from_i = expected.adjacency_at(len(members))[i, list(members)].all()
        orders = [(i, j)] if from_i else [(j, i)]
        counts = [retest.count(*order, list(members)) for order in [*orders, orders[0][::-1]]]
        assert max(counts) >= problem.critical_count


def test_the_methods_are_here():
    tested = {method.name for method, _ in SETTINGS.values()}
    assert tested >= {"cmiknn-serial", "cmiknn-parallel", "gpucmiknn-single", "gpucmiknn-parallel"}


@pytest.mark.parametrize(
    ("chunk", "most_samples", "most_permutations"),
    [
        *((chunk, 90, 25) for chunk in range(3)),
        *(pytest.param(chunk, 200, 100, marks=pytest.mark.slow) for chunk in range(2500, 2525)),
    ],
)
def test_every_method_finds_the_same(chunk, most_samples, most_permutations):
    for case in range(CASES_A_TEST):
        check_agreement(CASES_A_TEST * chunk + case, most_samples, most_permutations)


@pytest.mark.parametrize("name", KERNELS)
def test_counts_and_cmi_of_single_tests(name):
    from baselines._cmiknn import CmiknnTest

    check_single_tests(KERNELS[name], lambda rng: draw_problem(rng, 120, 40), CmiknnTest, Retest, ci_test)


@pytest.mark.parametrize("n", [10, 11, 31, 33, 257])
def test_few_and_odd_numbers_of_samples(n):
    data = additive_noise(4, n, seed=1).values
    problem = NonlinearProblem.from_data(data, alpha=0.2, k_cmi=min(7, n - 1), k_perm=min(15, n - 1), permutations=20)
    expected = skeleton(problem, method="cmiknn-serial", pmax=True)
    for method, backend in SETTINGS.values():
        assert_same(skeleton(problem, method=method.name, backend=backend, pmax=True), expected)


FEWEST = [(p, n, max_level) for p in (1, 2, 3) for n in (2, 3, 4, 5) for max_level in (None, 0)]


@pytest.mark.parametrize("name", {**SETTINGS, **OTHERS})
@pytest.mark.parametrize(("p", "n", "max_level"), FEWEST)
def test_fewest_variables_and_samples(name, p, n, max_level):
    method, backend = {**SETTINGS, **OTHERS}[name]
    data = np.random.default_rng(n).normal(size=(n, p))
    for k in {1, n - 1}:
        problem = NonlinearProblem.from_data(data, alpha=0.3, k_cmi=k, k_perm=k, permutations=9, max_level=max_level)
        found = skeleton(problem, method=method.name, backend=backend, pmax=True)
        if method.random:
            assert found.levels_run <= (0 if p == 1 else 1 if max_level == 0 or p == 2 else 2)
            assert found.tests_per_level[:1] == ((p * (p - 1) // 2,) if p > 1 else ())
            assert all(found.pmax[pair] >= problem.alpha for pair in found.sepsets)
            continue
        expected = skeleton(problem, method="cmiknn-serial", pmax=True)
        assert_same(found, expected)
        assert found.levels_run == (0 if p == 1 else 1 if max_level == 0 else expected.levels_run)
        retest = Retest(problem)
        for i, j in np.argwhere(np.tri(p, k=-1, dtype=bool))[:, ::-1].tolist():
            count = retest.count(i, j, [])
            if (i, j) in found.sepsets and not found.sepsets[i, j]:
                assert found.pmax[i, j] == problem.p_value(count) >= problem.alpha
            else:
                assert count < problem.critical_count


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_subnormal_distances(name, precision):
    """Subnormal numbers do not change when multiplied by a factor near one, but the answer is that of whole numbers."""
    method, backend = SETTINGS[name]
    least = float(np.finfo(precision).smallest_subnormal)
    data = np.random.default_rng(0).integers(0, 60, size=(40, 3))
    options = {"k_cmi": 3, "alpha": 0.1, "permutations": 20, "transform": "none", "precision": precision}
    problem, whole = (NonlinearProblem.from_data(values, **options) for values in (data * least, data))
    assert len(np.unique(problem.values)) > 30
    expected = skeleton(whole, method="cmiknn-serial", pmax=True)
    assert_same(skeleton(problem, method=method.name, backend=backend, pmax=True), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("members", [(), (2,)])
def test_ten_thousand_samples(name, members):
    from baselines._cmiknn import CmiknnTest

    problem = NonlinearProblem.from_data(additive_noise(4, 10000, seed=1).values, permutations=5)
    sums = CmiknnTest(problem).partial_sums(0, [1], members)[0]
    _, cmi, permuted = ci_test(problem, 0, 1, members, open_backend(KERNELS[name][1]))
    np.testing.assert_array_equal([cmi, *permuted], problem.cmi(sums))
