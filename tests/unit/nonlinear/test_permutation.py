"""The random numbers and permutations of the CMIknn test, each against plain code."""

import numpy as np
import pytest

from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator
from gpupc_impl.nonlinear.retest import philox
from gpupc_impl.nonlinear.tuning import DEFAULTS
from tests.unit.nonlinear.conftest import run_test, sample_problem

PHILOX = """
#include "nonlinear/kernels/philox.cuh"
__global__ void known_answers(const unsigned* in, unsigned* out) {
    in += 6 * blockIdx.x;
    const Words words = philox(in[0], in[1], in[2], in[3], in[4], in[5]);
    for (int i = 0; i < 4; ++i) out[4 * blockIdx.x + i] = words.w[i];
}
"""

# kat_vectors of the Random123 library, philox4x32 with 10 rounds: counter, key and result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(word, 16) for word in text.split()]


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


@pytest.mark.parametrize("members", [[], [3], [0, 2, 3, 4]])
@pytest.mark.parametrize(
    ("n", "k_perm", "ties"),
    [(30, 29, False), (45, 1, False), (33, 30, True), (200, 5, False), (80, 16, True), (80, 17, True)],
)
def test_permutations_are_those_of_the_sequential_scheme(backend, members, n, k_perm, ties):
    rng = np.random.default_rng(n + k_perm)
    transform = "none" if ties else "ranks"
    problem = sample_problem(rng, n, ties, k_perm=k_perm, permutations=6, seed=2**40 + 7, transform=transform)
    expected = problem.values[1][sequential(problem, 1, members)]
    found = [run_test(problem, backend, 1, 2 if 2 not in members else 0, members, beta=beta)[0] for beta in (0, 7)]
    shift = problem.values[1].min() if found[0].dtype == np.int16 else 0
    for rows in found:
        assert np.array_equal(rows + shift, expected)
    if not members:
        assert np.array_equal(np.sort(rows + shift, axis=1), np.sort(problem.values[1])[None].repeat(6, axis=0))


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
