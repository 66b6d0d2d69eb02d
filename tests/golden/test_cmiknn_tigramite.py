"""The nonlinear test against tigramite's CMIknn: CMI values, permutations, p-values under the null, power.

tigramite adds noise of relative size 1e-6 to the samples before it looks for neighbours; here it is off, so that both
see the same samples. docs/cmiknn.md tells what else differs.
"""

import numpy as np
import pytest
from scipy import stats

from datasets.nonlinear import additive_noise
from gpupc_impl import methods, skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.core.solve import unavailable
from gpupc_impl.nonlinear.cmi_estimator import ci_test
from gpupc_impl.nonlinear.problem import NonlinearProblem

pytest.importorskip("tigramite")
from baselines import _cmiknn
from baselines._cmiknn import CmiknnTest
from baselines.tigramite_searches import TigramiteTest

pytestmark = pytest.mark.xdist_group("cmiknn")  # so that only one process compiles the references

INPUTS = 150
KERNELS = {
    f"{backend}-{selection}": (backend, selection)
    for backend in ("host", "cuda")
    for selection in ("registers", "counting", "insertion")
    if unavailable(methods()["gpucmiknn-single"], backend) is None
}
SLACK = 1e-9
"""tigramite multiplies a radius with 0.999999999 to make its counts strict."""


class NoNoise:
    """tigramite's source of random numbers, for noise that is zero."""

    def random(self, shape):
        return np.zeros(shape)


def without_noise(test: TigramiteTest) -> TigramiteTest:
    test._test.random_state = NoNoise()
    return test


def draw_case(rng: np.random.Generator, precision: str):
    """A problem of a random transform, size and k, with ties or without, and a test with 0 to 5 members."""
    n, size = int(rng.integers(10, 150)), int(rng.integers(6))
    data = rng.standard_normal((n, size + 2))
    data[:, 1] += rng.choice([0, 1]) * np.tanh(2 * data[:, 0])
    data[:, 1:] += rng.choice([0, 0.5]) * data[:, -1:]
    ties = bool(rng.integers(2))
    if ties:
        data = np.round(data * rng.choice([1, 2, 4]))
    transform = str(rng.choice(["ranks", "none"] if ties else ["ranks", "standardize", "none"]))
    k_cmi = int(rng.choice([1, 2, 5, 7, n // 5, n // 2, n - 1]))
    options = {"k_cmi": k_cmi, "k_perm": 5, "permutations": 1, "precision": precision, "seed": int(rng.integers(99))}
    problem = NonlinearProblem.from_data(data, transform=transform, **options)
    return problem, tuple(range(2, size + 2))


def has_distance_in_slack(problem: NonlinearProblem, i: int, j: int, members: tuple[int, ...], slack: float) -> bool:
    """Whether a distance in a subspace lies so close below a radius that rounding or tigramite's factor decides."""
    values = problem.values.astype(np.float64)
    apart = {v: np.abs(values[v][:, None] - values[v][None]) for v in (i, j, *members)}
    joint = np.max([apart[v] for v in (i, j, *members)], axis=0)
    np.fill_diagonal(joint, np.inf)
    radius = np.sort(joint, axis=1)[:, problem.k_cmi - 1 : problem.k_cmi]
    near = [(d < radius) & (d >= radius * (1 - slack)) for d in apart.values()]
    return bool(np.any(near))


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_cmi_is_tigramites(precision):
    rng = np.random.default_rng(1)
    tolerance = {"float64": 1e-9, "float32": 1e-5}[precision]
    sizes = set()
    for _ in range(INPUTS):
        problem, members = draw_case(rng, precision)
        found = problem.cmi(CmiknnTest(problem).partial_sums(0, [1], members)[0, 0])
        assert found == pytest.approx(without_noise(TigramiteTest(problem)).dependence(0, 1, members), abs=tolerance)
        sizes.add(len(members))
    assert sizes == set(range(6))


@pytest.mark.parametrize("kernel", KERNELS)
def test_cmi_of_the_kernels_is_tigramites(kernel):
    backend, selection = KERNELS[kernel]
    opened = open_backend(backend)
    rng = np.random.default_rng(2)
    for case in range(INPUTS):
        precision, tolerance = (("float64", 1e-9), ("float32", 1e-5))[case % 2]
        problem, members = draw_case(rng, precision)
        _, found, _ = ci_test(problem, 0, 1, members, opened, selection=selection)
        assert found == pytest.approx(without_noise(TigramiteTest(problem)).dependence(0, 1, members), abs=tolerance)


def test_ties_of_standardised_data_may_hang_on_rounding():
    """Distances on a grid tie, but not to the last bit once the grid is scaled; tigramite's factor makes them tie.

    Where no distance lies within tigramite's factor below a radius, the values agree.
    """
    rng = np.random.default_rng(3)
    agreed = excused = 0
    for _ in range(60):
        n = int(rng.integers(20, 80))
        data = np.round(2 * rng.standard_normal((n, 3)))
        problem = NonlinearProblem.from_data(data, transform="standardize", k_cmi=5, k_perm=5, precision="float64")
        found = problem.cmi(CmiknnTest(problem).partial_sums(0, [1], (2,))[0, 0])
        agrees = found == pytest.approx(without_noise(TigramiteTest(problem)).dependence(0, 1, (2,)), abs=1e-9)
        if has_distance_in_slack(problem, 0, 1, (2,), SLACK):
            excused += 1
        else:
            assert agrees
            agreed += 1
    assert agreed + excused == 60
    assert excused > 0


@pytest.mark.parametrize(("n", "k"), [(12, 3), (40, 15), (40, 39), (90, 70)])
def test_permutations_are_tigramites_given_its_lists(n, k):
    """tigramite's restricted permutation of fully shuffled lists, in the order of priorities, is ours of lazy ones."""
    rng = np.random.default_rng(n)
    problem = NonlinearProblem.from_data(rng.standard_normal((n, 3)), k_perm=k, k_cmi=5, permutations=4, seed=7)
    key = _cmiknn.permutation_key(problem.seed, 0, (2,))
    neighbours = CmiknnTest(problem)._neighbours([2])
    columns = np.empty((n, problem.permutations), np.float32)
    _cmiknn.permute(problem.values[0], neighbours, key, np.arange(problem.permutations), columns)
    for permutation in range(problem.permutations):
        priorities, shuffled = [], neighbours.copy()
        for a in range(n):
            drawn = np.ravel(
                [
                    _cmiknn.philox(*map(np.uint64, (a, permutation, block, 1)), *map(np.uint64, key))
                    for block in range(k // 4 + 2)
                ]
            )
            priorities.append((int(drawn[0]), int(drawn[1]) >> 24))
            for y in range(k):
                other = y + (int(drawn[2 + y]) * (k - y) >> 32)
                shuffled[a, [y, other]] = shuffled[a, [other, y]]
        order = np.array(sorted(range(n), key=priorities.__getitem__), np.int32)
        expected = TigramiteTest(problem)._test.get_restricted_permutation(n, k, shuffled, order)
        np.testing.assert_array_equal(columns[:, permutation], problem.values[0, expected])


def null_counts(tests: int, members: tuple[int, ...], permutations: int = 19, n: int = 50) -> np.ndarray:
    """Counts of tests of independent variables."""
    counts = []
    for seed in range(tests):
        data = np.random.default_rng(seed).standard_normal((n, 3))
        problem = NonlinearProblem.from_data(data, permutations=permutations, seed=seed)
        counts.append(CmiknnTest(problem).counts(0, [1], members)[0])
    return np.array(counts)


@pytest.mark.parametrize("members", [(), (2,)])
def test_p_values_are_uniform_under_the_null(members):
    """Each of the 20 counts that 19 permutations allow is as likely: a chi-square test that errs once in 1000 times."""
    counts = np.bincount(null_counts(3000, members), minlength=20)
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("members", [(), (2,)])
def test_p_values_with_a_common_cause(members):
    """X and Y hang on Z: given Z the level is kept, without Z the null is false and rejected nearly always."""
    rejected = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal(60)
        data = np.column_stack([z + rng.standard_normal(60), z + rng.standard_normal(60), z])
        problem = NonlinearProblem.from_data(data, permutations=39, seed=seed, alpha=0.05, k_perm=5)
        rejected += CmiknnTest(problem).counts(0, [1], members)[0] < problem.critical_count
    if members:
        assert rejected <= stats.binom(400, 0.05).ppf(0.999)
    else:
        assert rejected > 200


def paired_p_values(strength: float, replicates: int, n: int = 80, permutations: int = 39) -> np.ndarray:
    """(replicates, 2) p-values of our test and of tigramite's on the same samples: X and Y hang on Z and X on Y."""
    pairs = []
    for seed in range(replicates):
        rng = np.random.default_rng(seed)
        z, x = rng.standard_normal(n), rng.standard_normal(n)
        y = strength * x**2 + 0.5 * z + 0.5 * rng.standard_normal(n)
        data = np.column_stack([x + 0.3 * z, y, z])
        problem = NonlinearProblem.from_data(data, permutations=permutations, seed=seed, k_perm=5)
        counts = CmiknnTest(problem).counts(0, [1], (2,))[0], TigramiteTest(problem).count(0, 1, (2,))
        pairs.append(problem.p_value(np.array(counts)))
    return np.array(pairs)


@pytest.mark.parametrize(
    "replicates", [12, pytest.param(200, marks=pytest.mark.slow)], ids=lambda number: f"{number} replicates"
)
def test_power_is_tigramites(replicates):
    """Power rises with the effect for both, and p-values of the same samples differ by chance alone (4 errors)."""
    powers = []
    for strength in (0.0, 0.3, 0.6, 1.2):
        p_values = paired_p_values(strength, replicates)
        difference = p_values[:, 0] - p_values[:, 1]
        assert abs(difference.mean()) <= 4 * difference.std() / np.sqrt(replicates) + 0.5 / 39
        powers.append((p_values < 0.05).mean(axis=0))
    powers = np.array(powers)
    print("power of ours and of tigramite's:", powers.round(2).tolist())
    assert (powers[-1] >= 0.9).all()
    assert (powers[0] <= 0.3).all()
    assert (abs(powers[:, 0] - powers[:, 1]) <= 4 * np.sqrt(0.5 / replicates)).all()


def test_count_undoes_tigramites_p_value():
    data = np.random.default_rng(5).standard_normal((40, 3))
    data[:, 1] = data[:, 0]
    problem = NonlinearProblem.from_data(data, permutations=20)
    test = TigramiteTest(problem)
    for p_value, count in ((1 / 21, 0), (2 / 21, 1), (1.0, 20)):
        test._test.get_shuffle_significance = lambda *_, p_value=p_value: p_value
        assert test.count(0, 2, (1,)) == count
    assert TigramiteTest(problem).count(0, 1, ()) == 0


@pytest.mark.slow
def test_workers_do_not_change_what_tigramite_finds():
    """Two processes import tigramite anew, which takes up to half a minute."""
    data = additive_noise(4, 50, seed=2, density=0.6).values
    options = {"alpha": 0.1, "family": "nonlinear", "permutations": 12, "pmax": True}
    one = skeleton(data, method="tigramite", **options)
    two = skeleton(data, method="tigramite", workers=2, **options)
    assert one == two
    assert one.tests_per_level == two.tests_per_level
    np.testing.assert_array_equal(one.pmax, two.pmax)


def test_tigramite_isolates_a_constant():
    data = additive_noise(4, 50, seed=2).values.copy()
    data[:, 2] = 3.0
    with pytest.warns(UserWarning, match="V2"):
        found = skeleton(data, family="nonlinear", method="tigramite", permutations=10)
    assert not found.adjacency[2].any()
    assert found.tests_per_level[0] == 6


def test_tigramite_finds_the_strong_edges():
    """A chain whose links no test at n = 150 can miss, and whose ends only a set separates."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal(150)
    y = x + 0.3 * rng.standard_normal(150)
    z = y + 0.3 * rng.standard_normal(150)
    data = np.column_stack([x, y, z])
    for method in ("tigramite", "cmiknn-serial"):
        found = skeleton(data, family="nonlinear", method=method, permutations=40, k_perm=5, alpha=0.05)
        assert found.edges.tolist() == [[0, 1], [1, 2]]
        assert dict(found.sepsets) == {(0, 2): (1,)}
