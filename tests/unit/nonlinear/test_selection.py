"""Every neighbour selection gives the CMI of its definition, wherever lists of neighbours end."""

import itertools

import numpy as np
import pytest
from scipy import special

from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, ci_test, counts_of
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.retest import Retest
from gpupc_impl.nonlinear.tuning import DEFAULTS
from tests.conformance.drawn import knn_options
from tests.unit.nonlinear.conftest import SELECTIONS, run_test, sample_problem, tuned, whole_problem


def brute_force_cmi(x, y, z, k):
    """CMI of n samples, straight from its definition; z is (n, size). Distances in the dtype of the arguments."""
    n = len(x)

    def distances(*columns):
        return np.max([np.abs(column[:, None] - column) for column in columns], axis=0)

    joint = distances(x, y, *z.T)
    in_set = distances(*z.T) if z.shape[1] else np.zeros((n, n))
    total = 0.0
    for a in range(n):
        radius = sorted(np.delete(joint[a], a))[k - 1]
        spaces = [distances(x, *z.T)[a], distances(y, *z.T)[a], in_set[a]]
        counts = [int(((d < radius) | ((radius == 0) & (d == 0))).sum()) for d in spaces]
        if not z.shape[1]:
            counts[2] = n
        total += special.digamma(counts[0]) + special.digamma(counts[1]) - special.digamma(counts[2])
    return special.digamma(k) - total / n


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("transform", ["ranks", "standardize", "none"])
@pytest.mark.parametrize("ties", [False, True])
def test_cmi_is_that_of_its_definition(backend, precision, transform, ties):
    n = 21
    rng = np.random.default_rng(11)
    for k, members in itertools.product((1, 2, 7, 8, 15, 20), ([], [3], [0, 3, 4])):
        problem = sample_problem(rng, n, ties, k_cmi=k, transform=transform, precision=precision, permutations=3)
        values, z, cmi_of_rows = problem.values, problem.values[members].T, {}
        for selection in SELECTIONS:
            count, cmi, permuted = ci_test(problem, 1, 2, members[::-1], backend, selection=selection)
            rows, partials = run_test(problem, backend, 1, 2, members, selection=selection)
            rows = (rows + (values[1].min() if rows.dtype == np.int16 else 0)).astype(values.dtype)
            for x in (values[1], *rows):
                if x.tobytes() not in cmi_of_rows:  # selections permute alike
                    cmi_of_rows[x.tobytes()] = brute_force_cmi(x, values[2], z, k)
            expected = [cmi_of_rows[x.tobytes()] for x in (values[1], *rows)]
            assert np.allclose([cmi, *permuted], expected, rtol=0, atol=1e-10), selection
            own, *others = problem.cmi(partials)
            assert count == counts_of(partials) == np.count_nonzero(np.array(others) >= own), selection


def test_independent_code_finds_the_same_on_random_problems(backend):
    rng = np.random.default_rng(12)
    for _ in range(30):
        n = int(rng.integers(5, 80))
        options = knn_options(rng, n, 100) | {"permutations": int(rng.choice([1, 5, 31, 32, 100]))}
        options |= {"k_cmi": int(rng.integers(1, n)), "k_perm": int(rng.integers(1, n))}
        problem = sample_problem(rng, n, ties=bool(rng.integers(2)), **options)
        i, j, *members = rng.permutation(5)[: 2 + rng.integers(0, 4)].tolist()
        expected = Retest(problem).partials(i, j, sorted(members))
        for selection in SELECTIONS:
            assert np.array_equal(run_test(problem, backend, i, j, sorted(members), selection=selection)[1], expected)


def test_outliers_and_copies(backend):
    """Bisection ends although distances are of every magnitude and many are zero."""
    rng = np.random.default_rng(2)
    data = np.exp(rng.normal(size=(60, 4)) * 12)
    data[10:40] = data[10]
    for precision, transform in itertools.product(("float32", "float64"), ("none", "standardize")):
        options = {"permutations": 40, "k_perm": 6, "k_cmi": 9}
        problem = NonlinearProblem.from_data(data, transform=transform, precision=precision, **options)
        for members in ([], [3], [2, 3]):
            expected = Retest(problem).partials(0, 1, members)
            for selection in SELECTIONS:
                assert np.array_equal(run_test(problem, backend, 0, 1, members, selection=selection)[1], expected)


@pytest.mark.parametrize("transform", ["ranks", "standardize", "none"])
def test_a_constant_variable_is_independent(backend, transform):
    data = np.random.default_rng(0).normal(size=(50, 3))
    data[:, 1] = 4
    with pytest.warns(UserWarning, match="constant"):
        problem = NonlinearProblem.from_data(data, transform=transform, permutations=20)
    assert ci_test(problem, 0, 1, [], backend)[0] == 20
    assert ci_test(problem, 1, 2, [], backend)[0] == 20


@pytest.mark.parametrize(("k", "members"), [(1, [3]), (60, [0, 3]), (120, [3]), (599, [])])
def test_neighbours_beyond_those_in_registers(backend, members, k):
    """A warp keeps 256, 384 or 512 neighbours; more are needed for large k, or where V_i is an outlier."""
    problem = whole_problem(np.random.default_rng(k), 600, 2047, k_cmi=k)
    assert CmiEstimator(problem, backend, DEFAULTS | {"selection": "registers"}).selection.name == "registers"
    found = run_test(problem, backend, 1, 2, members, selection="registers")[1]
    assert np.array_equal(found, Retest(problem).partials(1, 2, members))


@pytest.mark.parametrize(("k", "members"), [(20, []), (40, [3]), (150, [0, 3])])
def test_lists_with_gaps_in_registers(backend, members, k):
    """The last buckets of a list may hold no sample, although there are joint distances in them."""
    rng, n = np.random.default_rng(k), 700
    data = 5 * rng.integers(0, 12, (n, 5))
    data[:, 1] = rng.integers(0, 60, n) + rng.choice([0, 12, 50], n, p=[0.6, 0.3, 0.1])
    data[0] = 2000  # buckets that tell where lists end are wider than theirs
    problem = NonlinearProblem.from_data(data, transform="none", permutations=5, k_perm=4, k_cmi=k)
    expected = run_test(problem, backend, 1, 2, members, selection="counting")[1]
    for reach in (k, 260, 320, 380, 440, 500, n - 1):
        found = run_test(problem, backend, 1, 2, members, tuned(reach=max(reach, k)), selection="registers")[1]
        assert np.array_equal(found, expected)


def far_counters(selection, monkeypatch):
    """Return the list that will hold the counters of each launch, of which the first is that of `estimate_far`."""
    counters, estimate = [], selection._estimate

    def seen(level, sets, tests, lists):
        counters.append(lists.values["counters"])
        return estimate(level, sets, tests, lists)

    monkeypatch.setattr(selection, "_estimate", seen)
    return counters


@pytest.mark.parametrize("members", [[], [3]])
def test_as_many_samples_as_registers_serve(backend, members):
    rng = np.random.default_rng(7)
    for k in (40, 2047):
        problem = sample_problem(rng, 2048, permutations=1, k_cmi=k)
        found = run_test(problem, backend, 1, 2, members, selection="registers")[1]
        assert np.array_equal(found, run_test(problem, backend, 1, 2, members, selection="counting")[1])


DISTANCES = ("ranks", "float32"), ("standardize", "float32"), ("standardize", "float64")
WAYS = [("registers", *DISTANCES[0]), *(("buckets", *each) for each in DISTANCES)]


@pytest.mark.parametrize(("selection", "transform", "precision"), WAYS)
@pytest.mark.parametrize("members", [[], [3], [0, 3]])
def test_however_lists_are_made_and_wherever_they_end(backend, selection, transform, precision, members, monkeypatch):
    """No choice of the tuning changes a partial."""
    n = 200
    options = {"transform": transform, "precision": precision, "permutations": 34, "k_cmi": 12}
    problem = sample_problem(np.random.default_rng(10), n, **options)
    level, sets, tests = len(members), np.array([[1, *members]]), np.array([[0, 2], [0, 4]])
    partials, far_replicates = [], []
    everything = {"reach": n - 1, "near": n}
    least = {"reach": 12}  # as few as there can be, so that most replicates need more
    for choices in (
        everything | {"shares": 1},
        everything | {"lists": 3, "buckets": 64, "far": 32, "shares": 1000},
        {"reach": 90, "near": 90, "lists": 32, "buckets": 5},
        least | {"near": 12, "lists": 32, "far": 1, "shares": 4},
        least | {"near": 100, "lists": 5, "far": 128, "shares": 2},
    ):
        estimator = CmiEstimator(problem, backend, DEFAULTS | {"selection": selection}, tuning=tuned(**choices))
        estimator.fitting(level, 1, 2)
        far = far_counters(estimator.selection, monkeypatch)
        partials.append(estimator.partials(level, sets, tests))
        far_replicates.append(backend.download(far[0])[0])
    assert all(np.array_equal(partials[0], other) for other in partials[1:])
    assert far_replicates[0] == far_replicates[1] == 0
    assert far_replicates[3] == far_replicates[4] > 0
    assert np.array_equal(partials[0][:, :1], [[Retest(problem).partials(1, j, members)[0]] for j in (2, 4)])


@pytest.mark.parametrize("most", [1e280, 5e307])
@pytest.mark.parametrize("members", [[2], [2, 3]])
def test_keys_near_the_largest_double(backend, most, members):
    """The key at which lists would end then exceeds 64 bits."""
    data = np.random.default_rng(0).uniform(-1, 1, (60, 4)) * most
    data[:20] *= 1e-30
    data[20:30] = data[20] * (1 + 1e-12 * np.arange(10)[:, None])
    problem = NonlinearProblem.from_data(
        data, transform="none", precision="float64", permutations=20, k_cmi=3, k_perm=5
    )
    for i, j in ((0, 1), (1, 0)):
        found = run_test(problem, backend, i, j, members, selection="buckets")[1]
        assert np.array_equal(found, run_test(problem, backend, i, j, members, selection="counting")[1])
