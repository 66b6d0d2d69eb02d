"""The CMIknn test's kernels: random numbers, permutations and CMI values, each against plain code."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import special

from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.nonlinear.device import CmiEstimator, ci_test, counts_of
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.retest import Retest, philox
from gpupc_impl.nonlinear.tuning import DEFAULTS, TUNING

PHILOX = """
#include "nonlinear/kernels/philox.cuh"
__global__ void known_answers(const unsigned* in, unsigned* out) {
    in += 6 * blockIdx.x;
    const Words words = philox(in[0], in[1], in[2], in[3], in[4], in[5]);
    for (int i = 0; i < 4; ++i) out[4 * blockIdx.x + i] = words.w[i];
}
"""

SELECTIONS = ("registers", "buckets", "counting", "insertion")

# kat_vectors of the Random123 library, philox4x32 with 10 rounds: counter, key and result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.fixture(scope="module")
def backend():
    return open_backend("host")


def words(text):
    return [int(word, 16) for word in text.split()]


def sample_problem(rng, n, ties=False, p=5, **options):
    data = rng.normal(size=(n, p))
    data[:, 1] += data[:, 0]
    data[:, 2] += data[:, 1] ** 2
    if ties:
        data[:, ::2] = np.round(data[:, ::2])
    options = {"permutations": 12, "k_cmi": min(3, n - 1), "k_perm": min(5, n - 1), **options}
    return NonlinearProblem.from_data(data, **options)


def run_test(problem, backend, i, j, members, tuning=None, **params):
    """Permuted values (perm, n) and partials of one test."""
    estimator = CmiEstimator(problem, backend, DEFAULTS | params, tuning=tuning)
    level = len(members)
    estimator.fitting(level, 1, 1)
    partials = estimator.partials(level, np.array([[i, *members]]), np.array([[0, j]]))
    return backend.download(estimator.permutations.rows)[0, 1:], partials[0]


def tuned(**choices):
    """The host backend's tuning with some choices, none of which may change an answer."""
    return dataclasses.replace(TUNING["host"], **choices)


# --- random numbers --------------------------------------------------------------------------------------------------


def test_philox_gives_the_known_answers(backend, tmp_path):
    path = tmp_path / "known.cu"
    path.write_text(PHILOX)
    inputs = np.array([words(counter) + words(key) for counter, key, _ in KNOWN_ANSWERS], np.uint32)
    expected = np.array([words(result) for *_, result in KNOWN_ANSWERS])
    outputs = backend.empty(expected.shape, np.uint32)
    backend.kernel(path, "known_answers")((3,), (1,), [backend.upload(inputs), outputs])
    assert np.array_equal(backend.download(outputs), expected)
    in_numpy = [philox(words(counter), words(key)) for counter, key, _ in KNOWN_ANSWERS]
    assert np.array_equal(in_numpy, expected)


# --- permutations ----------------------------------------------------------------------------------------------------


def one_word(*counter, key):
    return [int(word) for word in philox(counter, key)]


def sequential(problem, i, members):
    """Algorithm 1 of the paper in plain Python: the sample that each sample takes its value from."""
    n, perm, k = problem.n_samples, problem.permutations, problem.k_perm
    key = (0, 0)
    for word in (problem.seed % 2**32, problem.seed // 2**32, i, len(members), *members):
        key = tuple(one_word(word, 0, 0, 0, key=key)[:2])
    spaces = problem.values[members].astype(float)
    knn = []
    for a in range(n):
        distance = np.abs(spaces - spaces[:, a : a + 1]).max(axis=0, initial=0)
        knn.append(sorted((b for b in range(n) if b != a), key=lambda b, d=distance: (d[b], b))[:k])
    result = []
    for m in range(perm):
        stream = {a: [word for q in range(2 + k // 4) for word in one_word(a, m, q, 1, key=key)] for a in range(n)}
        order = sorted(range(n), key=lambda a, s=stream: (s[a][0], s[a][1] >> 24, a))
        if not members:
            result.append(order)
            continue
        used, taken = set(), [None] * n
        for a in order:
            shuffled = list(knn[a])
            for y in range(k):
                other = y + stream[a][2 + y] * (k - y) // 2**32
                shuffled[y], shuffled[other] = shuffled[other], shuffled[y]
            taken[a] = next((x for x in shuffled if x not in used), shuffled[-1])
            used.add(taken[a])
        result.append(taken)
    return np.array(result)


@pytest.mark.parametrize("members", [[], [3], [0, 4], [0, 2, 3, 4]])
@pytest.mark.parametrize(
    ("n", "k_perm", "ties"),
    [
        (30, 5, False),
        (30, 29, False),
        (45, 1, False),
        (33, 30, True),
        (300, 5, False),
        (200, 16, True),
        (200, 17, True),
    ],
)
def test_permutations_are_those_of_the_sequential_scheme(backend, members, n, k_perm, ties):
    rng = np.random.default_rng(n + k_perm)
    transform = "none" if ties else "ranks"
    problem = sample_problem(rng, n, ties, k_perm=k_perm, permutations=6, seed=2**40 + 7, transform=transform)
    wanted = problem.values[1][sequential(problem, 1, members)]
    found = [run_test(problem, backend, 1, 2 if 2 not in members else 0, members, beta=beta)[0] for beta in (0, 7)]
    shift = problem.values[1].min() if found[0].dtype == np.int16 else 0
    for rows in found:
        assert np.array_equal(rows + shift, wanted)
    if not members:
        assert np.array_equal(np.sort(rows + shift, axis=1), np.sort(problem.values[1])[None].repeat(6, axis=0))


def test_permutations_of_more_samples_than_16_bits_number(backend):
    """They propose in the order of their numbers, since 16 bits cannot hold an order of their priorities."""
    n, seed, S = 2**16 + 100, 3, 1
    problem = sample_problem(np.random.default_rng(3), n, p=3, k_perm=2, permutations=1, k_cmi=1, seed=seed)
    estimator = CmiEstimator(problem, backend, DEFAULTS)
    estimator.fitting(1, 1, 1)
    estimator.permutations.draw(1, np.array([[0, S]]))
    found = backend.download(estimator.permutations.rows)[0, 1]

    ranks = problem.values[S]
    by_rank = np.argsort(ranks)
    nearest = np.empty((n, 2), int)
    for place, a in enumerate(by_rank.tolist()):
        others = [p for p in range(place - 2, place + 3) if p != place and 0 <= p < n]
        nearest[a] = sorted(by_rank[others], key=lambda b, rank=ranks[a]: (abs(ranks[b] - rank), b))[:2]
    key = (0, 0)
    for word in (seed, 0, 0, 1, S):
        key = tuple(one_word(word, 0, 0, 0, key=key)[:2])
    first, second, draw, _ = philox((np.arange(n), 0, 0, 1), key)
    wanted, used = np.empty(n, int), set()
    for a in np.lexsort([np.arange(n), second >> 24, first]).tolist():
        shuffled = nearest[a][::-1] if draw[a] >= 2**31 else nearest[a]
        wanted[a] = next((x for x in shuffled.tolist() if x not in used), shuffled[1])
        used.add(wanted[a])
    assert np.array_equal(found, problem.values[0][wanted])


def test_permutations_depend_on_variable_set_and_seed_but_not_on_the_other_variable(backend):
    rng = np.random.default_rng(5)
    problem = sample_problem(rng, 50)
    rows = run_test(problem, backend, 0, 1, [2])[0]
    assert np.array_equal(rows, run_test(problem, backend, 0, 4, [2])[0])
    assert not np.array_equal(rows, run_test(problem, backend, 0, 1, [3])[0])
    assert not np.array_equal(rows[0], rows[1])
    reseeded = sample_problem(np.random.default_rng(5), 50, seed=1)
    assert not np.array_equal(rows, run_test(reseeded, backend, 0, 1, [2])[0])


def test_racing_permutations_stay_among_the_neighbours_and_use_few_twice(backend):
    rng = np.random.default_rng(8)
    problem = sample_problem(rng, 200, k_perm=10)
    estimator = CmiEstimator(problem, backend, DEFAULTS, racing=True)
    for _ in range(2):  # the second time finds no marks of the first
        estimator.fitting(1, 1, 1)
        estimator.permutations.draw(1, np.array([[0, 3]]))
        taken = np.argsort(problem.values[0])[backend.download(estimator.permutations.rows)[0, 1:]]
        neighbours = np.argsort(
            np.abs(problem.values[3][:, None] - problem.values[3]) + np.eye(200) * 1e9, axis=1, kind="stable"
        )[:, :10]
        assert (taken[:, :, None] == neighbours).any(axis=2).all()
        assert all(len(set(row)) > 170 for row in taken)


# --- CMI -------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("transform", ["ranks", "standardize", "none"])
@pytest.mark.parametrize("ties", [False, True])
def test_cmi_is_that_of_its_definition(backend, selection, precision, transform, ties):
    n = 21
    rng = np.random.default_rng(11)
    for k, members in itertools.product((1, 2, 7, 8, 15, 20), ([], [3], [0, 3, 4])):
        problem = sample_problem(rng, n, ties, k_cmi=k, transform=transform, precision=precision, permutations=3)
        count, cmi, permuted = ci_test(problem, 1, 2, members[::-1], backend, selection=selection)
        values = problem.values
        rows, partials = run_test(problem, backend, 1, 2, members, selection=selection)
        shift = values[1].min() if rows.dtype == np.int16 else 0
        z = values[members].T
        expected = [brute_force_cmi(x, values[2], z, k) for x in (values[1], *(rows + shift).astype(values.dtype))]
        assert np.allclose([cmi, *permuted], expected, rtol=0, atol=1e-10)
        assert count == counts_of(partials) == np.count_nonzero(problem.cmi(partials)[1:] >= problem.cmi(partials)[0])


def test_every_k_of_a_small_problem(backend):
    for ties, precision in itertools.product((False, True), ("float32", "float64")):
        for k in range(1, 14):
            problem = sample_problem(
                np.random.default_rng(k), 14, ties, k_cmi=k, transform="none", precision=precision, permutations=33
            )
            for members in ([], [3], [0, 3]):
                wanted = Retest(problem).partials(1, 2, members)
                for selection in SELECTIONS:
                    found = run_test(problem, backend, 1, 2, members, selection=selection)[1]
                    assert np.array_equal(found, wanted), (ties, precision, k, members, selection)


def test_independent_code_finds_the_same_on_random_problems(backend):
    rng = np.random.default_rng(12)
    for _ in range(60):
        n = int(rng.integers(5, 80))
        problem = sample_problem(
            rng,
            n,
            ties=bool(rng.integers(2)),
            k_cmi=int(rng.integers(1, n)),
            k_perm=int(rng.integers(1, n)),
            permutations=int(rng.choice([1, 5, 31, 32, 100])),
            transform=str(rng.choice(["ranks", "standardize", "none"])),
            precision=str(rng.choice(["float32", "float64"])),
            seed=int(rng.integers(2**63)),
        )
        i, j, *members = rng.permutation(5)[: 2 + rng.integers(0, 4)].tolist()
        wanted = Retest(problem).partials(i, j, sorted(members))
        for selection in SELECTIONS:
            assert np.array_equal(run_test(problem, backend, i, j, sorted(members), selection=selection)[1], wanted)


def test_outliers_and_copies(backend):
    """Distances of every magnitude, many of them zero: bisection has to end all the same."""
    rng = np.random.default_rng(2)
    data = np.exp(rng.normal(size=(60, 4)) * 12)
    data[10:40] = data[10]
    for precision, transform in itertools.product(("float32", "float64"), ("none", "standardize")):
        problem = NonlinearProblem.from_data(
            data, transform=transform, precision=precision, permutations=40, k_perm=6, k_cmi=9
        )
        for members in ([], [3], [2, 3]):
            wanted = Retest(problem).partials(0, 1, members)
            for selection in SELECTIONS:
                assert np.array_equal(run_test(problem, backend, 0, 1, members, selection=selection)[1], wanted)


@pytest.mark.parametrize("transform", ["ranks", "standardize", "none"])
def test_a_constant_variable_is_independent(backend, transform):
    data = np.random.default_rng(0).normal(size=(50, 3))
    data[:, 1] = 4
    with pytest.warns(UserWarning, match="constant"):
        problem = NonlinearProblem.from_data(data, transform=transform, permutations=20)
    assert ci_test(problem, 0, 1, [], backend)[0] == 20
    assert ci_test(problem, 1, 2, [], backend)[0] == 20


# --- launches and memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [[], [3], [0, 3]])
@pytest.mark.parametrize("transform", ["ranks", "standardize"])
def test_launch_parameters_change_nothing(backend, members, transform):
    problem = sample_problem(np.random.default_rng(4), 70, permutations=70, k_cmi=9, transform=transform)
    wanted = Retest(problem).partials(1, 2, members)
    for selection in SELECTIONS:
        for beta, gamma in ((0, 0), (1, 1), (5, 3), (32, 32), (128, 64), (1024, 512)):
            found = run_test(problem, backend, 1, 2, members, selection=selection, beta=beta, gamma=gamma)[1]
            assert np.array_equal(found, wanted), (selection, beta, gamma)


@pytest.mark.parametrize("members", [[], [3], [0, 3]])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_scratch_takes_the_place_of_shared_memory(backend, members, precision, monkeypatch):
    rng = np.random.default_rng(6)
    problem = sample_problem(rng, 90, k_perm=20, k_cmi=40, transform="standardize", precision=precision)
    wanted = Retest(problem).partials(1, 2, members)
    for limit in (8448 + 3000, 8448 + 800, 8448 + 100, 8448 + 64):  # 800: of permutations the owners alone
        monkeypatch.setattr(backend, "max_shared_bytes", limit, raising=False)
        for selection in SELECTIONS:
            assert np.array_equal(run_test(problem, backend, 1, 2, members, selection=selection)[1], wanted)


def test_memory_is_forecast_and_kept():
    problem = sample_problem(np.random.default_rng(9), 64, p=8, permutations=30)
    sets = np.array([[0, s] for s in range(1, 7)])
    tests = np.array([[number, 7] for number in range(6)])
    wanted = np.array([Retest(problem).partials(0, 7, [s]) for s in range(1, 7)])
    for selection in SELECTIONS:
        params = DEFAULTS | {"selection": selection}
        fits = []
        for limit in (8_000, 30_000, 60_000, 90_000, 1 << 20):
            backend = open_backend("host", device_memory_limit=limit)
            try:
                estimator = CmiEstimator(problem, backend, params)
                room = estimator.fitting(1, 6, 1)
            except DeviceMemoryError:
                fits.append(0)
                continue
            fits.append(room)
            found = [
                estimator.partials(1, sets[start : start + room], tests[: len(sets[start : start + room])])
                for start in range(0, 6, room)
            ]
            assert np.array_equal(np.concatenate(found), wanted)
            assert backend.memory_peak <= limit
        assert fits[0] == 0
        assert fits[-1] == 6
        assert fits == sorted(fits)
        assert len(set(fits)) >= 3


@pytest.mark.parametrize("members", [[], [3]])
@pytest.mark.parametrize(("selection", "transform"), [("buckets", "standardize"), ("registers", "ranks")])
def test_lists_of_a_few_samples_at_a_time_give_the_same(selection, transform, members):
    """Lists that do not fit at once are made for some tests, or for some samples of one, after the other."""
    problem = sample_problem(np.random.default_rng(9), 64, transform=transform, permutations=9)
    params = DEFAULTS | {"selection": selection}
    level, sets, tests = len(members), np.array([[0, *members]] * 2), np.array([[0, 1], [1, 2], [0, 4]])
    wanted = [Retest(problem).partials(0, j, members) for _, j in tests]
    peaks = []
    sizes = (1, 30_000, 100_000, 1 << 30) if selection == "buckets" else (1, 15_000, 50_000, 1 << 30)
    for list_bytes in sizes:  # some samples of one test, one or two tests, all
        backend = open_backend("host")
        estimator = CmiEstimator(problem, backend, params, tuning=tuned(list_bytes=list_bytes, registers_blocks=5))
        estimator.fitting(level, 2, 2)
        before = backend.memory_used
        backend.reset_peak()
        assert np.array_equal(estimator.partials(level, sets, tests), wanted)
        peaks.append(backend.memory_peak - before)
    assert peaks == sorted(peaks)
    assert peaks[0] < peaks[-1] / 20


def whole_problem(rng, n, most, **options):
    """Whole numbers up to `most`, a few of them far from the others, and many equal."""
    data = np.rint(np.abs(rng.normal(size=(n, 5))) * 20)
    data[:, 1] += data[:, 0]
    data = np.minimum(data, most)
    data[: n // 20] = rng.integers(0, most + 1, (n // 20, 5))
    data[0], data[1] = 0, most
    return NonlinearProblem.from_data(data, transform="none", permutations=5, k_perm=4, **options)


@pytest.mark.parametrize("members", [[], [3], [0, 3]])
@pytest.mark.parametrize("k", [1, 60, 120, 599])
def test_neighbours_beyond_those_in_registers(backend, members, k):
    """A warp keeps 256, 384 or 512; more are needed where k is large or where V_i is far from the others."""
    problem = whole_problem(np.random.default_rng(k), 600, 2047, k_cmi=k)
    assert CmiEstimator(problem, backend, DEFAULTS | {"selection": "registers"}).selection.name == "registers"
    found = run_test(problem, backend, 1, 2, members, selection="registers")[1]
    assert np.array_equal(found, Retest(problem).partials(1, 2, members))


@pytest.mark.parametrize("members", [[], [3], [0, 3]])
@pytest.mark.parametrize("k", [20, 40, 150])
def test_lists_with_gaps_in_registers(backend, members, k):
    """Their last buckets may be empty of samples, and joint distances lie in these all the same."""
    rng, n = np.random.default_rng(k), 700
    data = 5 * rng.integers(0, 12, (n, 5))
    data[:, 1] = rng.integers(0, 60, n) + rng.choice([0, 12, 50], n, p=[0.6, 0.3, 0.1])
    data[0] = 2000  # buckets that tell where lists end are wider than theirs
    problem = NonlinearProblem.from_data(data, transform="none", permutations=15, k_perm=4, k_cmi=k)
    wanted = run_test(problem, backend, 1, 2, members, selection="counting")[1]
    for reach in (k, 260, 320, 380, 440, 500, n - 1):
        found = run_test(problem, backend, 1, 2, members, tuned(reach=max(reach, k)), selection="registers")[1]
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("members", [[], [3]])
def test_as_many_samples_as_registers_serve(backend, members):
    rng = np.random.default_rng(7)
    for k in (40, 2047):
        problem = sample_problem(rng, 2048, permutations=1, k_cmi=k)
        found = run_test(problem, backend, 1, 2, members, selection="registers")[1]
        assert np.array_equal(found, run_test(problem, backend, 1, 2, members, selection="counting")[1])


def selection_of(problem, backend, params=DEFAULTS, **tuning):
    return CmiEstimator(problem, backend, params, tuning=tuned(**tuning)).selection.name


def test_what_serves_which_values(backend, monkeypatch):
    rng, registers = np.random.default_rng(8), DEFAULTS | {"selection": "registers"}
    fits, wide = (whole_problem(rng, 60, most, k_cmi=50) for most in (2047, 2048))
    floats = sample_problem(rng, 60, transform="standardize")
    most, many = (whole_problem(rng, n, 2047, k_cmi=50) for n in (2048, 2049))  # counts of samples have 16 bits as well
    problems = {"fits": fits, "most": most, "wide": wide, "many": many, "floats": floats}
    chosen = {name: selection_of(problem, backend, registers) for name, problem in problems.items()}
    assert chosen == dict.fromkeys(problems, "buckets") | {"fits": "registers", "most": "registers"}
    few = sample_problem(rng, 60, k_cmi=39)
    auto = {"selection": "buckets", "registers_from": 40}
    assert [selection_of(each, backend, **auto) for each in (fits, wide, few)] == ["registers", "buckets", "buckets"]
    monkeypatch.setattr(backend, "max_shared_bytes", 8448 + 24 * 61 - 1, raising=False)
    assert selection_of(fits, backend, registers) == "buckets"
    monkeypatch.setattr(backend, "max_shared_bytes", 8448 + 2047, raising=False)
    assert selection_of(fits, backend, registers) == "counting"


@pytest.mark.parametrize(
    ("selection", "transform", "precision"),
    [("registers", "ranks", "float32")]
    + [
        ("buckets", transform, precision)
        for transform in ("ranks", "standardize")
        for precision in ("float32", "float64")
    ],
)
@pytest.mark.parametrize("members", [[], [3], [0, 3]])
def test_however_lists_are_made_and_wherever_they_end(backend, selection, transform, precision, members):
    """Nor does it matter whether cells have 32 bits, as for more samples than 16 bits count."""
    n = 200
    problem = sample_problem(
        np.random.default_rng(10), n, transform=transform, precision=precision, permutations=70, k_cmi=12
    )
    level, sets, tests = len(members), np.array([[1, *members]]), np.array([[0, 2], [0, 4]])
    partials, far_replicates = [], []
    everything = {"reach": n - 1, "near": n}
    least = {"reach": 12}  # as few as there can be, so that most replicates need more
    for choices in (
        everything | {"candidate_bytes": 0, "remembered_bytes": 0, "shares": 1},
        everything | {"lists": 3, "buckets": 64, "far": 32, "shares": 1000},
        {"reach": 90, "near": 90, "candidate_bytes": 100, "lists": 32, "buckets": 5, "narrow_samples": n - 1},
        least | {"near": 12, "lists": 32, "far": 1, "shares": 4},
        least | {"near": 100, "remembered_bytes": 0, "lists": 5, "far": 128, "shares": 2},  # distances computed twice
    ):
        tuning = tuned(**{"candidate_bytes": 1 << 15, "remembered_bytes": 1 << 15, **choices})
        estimator = CmiEstimator(problem, backend, DEFAULTS | {"selection": selection}, tuning=tuning)
        estimator.selection.counts_far = True
        estimator.fitting(level, 1, 2)
        partials.append(estimator.partials(level, sets, tests))
        far_replicates.append(estimator.selection.far_replicates)
    assert all(np.array_equal(partials[0], other) for other in partials[1:])
    assert far_replicates[0] == far_replicates[1] == 0
    assert far_replicates[3] == far_replicates[4] > 0
    assert np.array_equal(partials[0][:, :1], [[Retest(problem).partials(1, j, members)[0]] for j in (2, 4)])


@pytest.mark.parametrize("transform", ["ranks", "standardize"])
@pytest.mark.parametrize("level", [1, 2])
def test_lists_do_not_depend_on_the_samples_looked_at_first(backend, transform, level):
    """However few these are, they lead to all samples that are near enough: lists end at the same place."""
    rng, count = np.random.default_rng(11), 40
    problem = sample_problem(rng, 150, p=6, transform=transform, permutations=3, k_cmi=4)
    variables = np.array([rng.permutation(6)[: level + 2] for _ in range(count)])
    sets = np.hstack([variables[:, :1], np.sort(variables[:, 2:], axis=1)])
    tests = np.stack([np.arange(count), variables[:, 1]], axis=1)
    partials, far_replicates = [], []
    for near in (150, 30, 60):
        tuning = tuned(near=near, reach=30)
        estimator = CmiEstimator(problem, backend, DEFAULTS | {"selection": "buckets"}, tuning=tuning)
        estimator.selection.counts_far = True
        estimator.fitting(level, count, 1)
        partials.append(estimator.partials(level, sets, tests))
        far_replicates.append(estimator.selection.far_replicates)
    assert far_replicates[0] == far_replicates[1] == far_replicates[2] > 0
    assert all(np.array_equal(partials[0], other) for other in partials[1:])
    members = sets[0, 1:].tolist()
    assert np.array_equal(partials[0][0], Retest(problem).partials(sets[0, 0], tests[0, 1], members))


@pytest.mark.parametrize("most", [1e280, 5e307])
@pytest.mark.parametrize("members", [[2], [2, 3]])
def test_keys_near_the_largest_double(backend, most, members):
    """Where lists end, in keys, is then beyond 64 bits."""
    data = np.random.default_rng(0).uniform(-1, 1, (60, 4)) * most
    data[:20] *= 1e-30
    data[20:30] = data[20] * (1 + 1e-12 * np.arange(10)[:, None])
    problem = NonlinearProblem.from_data(
        data, transform="none", precision="float64", permutations=20, k_cmi=3, k_perm=5
    )
    for i, j in ((0, 1), (1, 0)):
        found = run_test(problem, backend, i, j, members, selection="buckets")[1]
        assert np.array_equal(found, run_test(problem, backend, i, j, members, selection="counting")[1])


@pytest.mark.parametrize("level", [0, 1, 3])
def test_ten_thousand_samples_take_bounded_memory(level):
    """What docs/cmiknn.md says of a batch of a GPU at n = 10,000."""
    problem = NonlinearProblem.from_data(np.random.default_rng(0).normal(size=(10_000, 5)), transform="standardize")
    params = DEFAULTS | {"selection": "buckets"}
    estimator = CmiEstimator(problem, open_backend("host"), params, tuning=TUNING["cuda"])
    batch = int(estimator.busy_tests)
    assert batch == 13
    assert estimator.needed_bytes(level, batch, 49) < 1.5e8
    assert TUNING["cuda"].list_bytes == 1 << 31
    assert estimator.needed_bytes(level, 1, 1) < 3.5e7


def test_ci_test_refuses_what_is_no_test(backend):
    problem = sample_problem(np.random.default_rng(1), 20)
    for i, j, members in ((0, 0, []), (0, 1, [1]), (0, 1, [2, 2]), (0, 5, []), (-1, 0, [])):
        with pytest.raises(ValueError, match="must be different variables from 0 to 4"):
            ci_test(problem, i, j, members, backend)
    with pytest.raises(InvalidParameter, match="selection"):
        ci_test(problem, 0, 1, [], backend, selection="sorting")
    with pytest.raises(InvalidParameter, match="gamma is 513"):
        ci_test(problem, 0, 1, [], backend, gamma=513)
