"""Every method finds the same graph and sets if M2 is singular, near singular, or at the edge of either.

Columns are replaced by exact copies of others, by sums of others, and by copies and sums up to r = 1 - 10^-k. There are
several in one problem, so that copies of one kind are members of sets for another. The last bit of the arithmetic may
then decide a test. All methods share the canonical evaluation of docs/ci-tests.md, and therefore the answer.
"""

import collections
import dataclasses
import math

import numpy as np
import pytest

from gpupc_impl import GaussianProblem, Skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.core.registry import Method
from gpupc_impl.core.solve import solve
from gpupc_impl.gaussian.retest import Retest

QUICK, MANY = 40, 10_000
DISAGREED_ONCE = (128, 1946)
"""Problems on which references and kernels keep different edges if their arithmetics differ."""
DIGITS = range(3, 17)
"""The values of k for near copies with r = 1 - 10^-k."""


def hard_problem(seed: int) -> GaussianProblem:
    """Up to nine variables of a linear model, one to four of which others determine, exactly or nearly."""
    rng = np.random.default_rng(seed)
    p, m = int(rng.integers(5, 10)), int(rng.choice([20, 60, 200, 1000]))
    links = np.tril(rng.random((p, p)) < rng.choice([0.3, 0.6, 1.0]), -1)
    weights = links * rng.uniform(0.1, 1, (p, p)) * rng.choice([-1, 1], (p, p))
    data = np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T
    if rng.random() < 0.3:
        data += rng.standard_normal((m, 1))
    data /= data.std(axis=0)
    for _ in range(int(rng.integers(1, 5))):
        target, *others = rng.permutation(p).tolist()
        terms = int(rng.choice([1, 1, 2, 3]))
        source = data[:, others[:terms]] @ rng.choice([-1.0, 1.0, 0.5, 2.0], terms)
        if source.std() < 1e-8:  # copies that cancel
            continue
        exact = rng.integers(3) == 0
        data[:, target] = (
            source if exact else near_copy(rng, source, 1 - 10.0 ** -rng.integers(DIGITS[0], DIGITS[-1] + 1))
        )
    return GaussianProblem.from_data(
        data * 10.0 ** rng.integers(-3, 4, p),
        alpha=float(rng.choice([0.001, 0.01, 0.05, 0.2, 0.5])),
        max_level=4,
        pseudo_inverse="always" if rng.random() < 0.2 else "near-singular",
    )


def near_copy(rng: np.random.Generator, source: np.ndarray, r: float) -> np.ndarray:
    """A column whose correlation with the source is r up to rounding."""
    along = source - source.mean()
    along /= np.linalg.norm(along)
    beside = rng.standard_normal(len(along))
    beside -= beside.mean()
    beside -= along * (along @ beside)
    return r * along + math.sqrt(1 - r * r) * beside / np.linalg.norm(beside)


class Everybody:
    """All settings that can be used here, applied to one problem after the other."""

    def __init__(self, settings: dict[str, tuple[Method, str]]):
        backends = {name: open_backend(name) for name in {backend for _, backend in settings.values()} - {"cpu"}}
        self.settings = {name: (method, backends.get(backend)) for name, (method, backend) in settings.items()}
        self.seen: collections.Counter[str] = collections.Counter()

    def agree(self, problem: GaussianProblem, seed: int) -> None:
        answers = {name: solve(problem, *setting) for name, setting in self.settings.items()}
        expected = answers["stable-serial-cpu"]
        for name, found in answers.items():
            where = f"{name}, hard_problem({seed}), residual_tolerance {problem.residual_tolerance}"
            assert np.array_equal(found.adjacency, expected.adjacency), where
            assert found.sepsets == expected.sepsets, where
            assert found.edges_per_level == expected.edges_per_level, where
        self.seen["problems"] += 1
        self.seen["near-singular"] += expected.pseudo_inverses > 0
        self.seen["undefined"] += expected.undefined_tests > 0
        if problem.residual_tolerance > 0:
            self.seen["removed"] += verified(problem, expected)


def verified(problem: GaussianProblem, found: Skeleton) -> int:
    """The number of removed edges with a set, each of which verification's test confirms."""
    retest, by_level = Retest(problem), collections.defaultdict(list)
    for pair, members in found.sepsets.items():
        by_level[len(members)].append((pair, members))
    for level, removed in by_level.items():
        pairs, sets = (np.array(part, np.int64) for part in zip(*removed, strict=True))
        ratios, tolerances = retest.ratios(pairs, sets.reshape(len(pairs), level))
        assert (ratios <= 1 + tolerances).all(), (pairs, sets, ratios)
    return sum(map(len, by_level.values()))


@pytest.mark.filterwarnings("ignore:.*constant:UserWarning")
@pytest.mark.parametrize("seeds", [(*range(QUICK), *DISAGREED_ONCE), pytest.param(range(MANY), marks=pytest.mark.slow)])
def test_all_methods_agree(usable_settings, seeds):
    """With the default tolerance, and on some problems without one, so that rounding errors decide more tests."""
    everybody = Everybody(usable_settings)
    for seed in seeds:
        problem = hard_problem(seed)
        everybody.agree(problem, seed)
        if seed % 4 == 0:
            everybody.agree(dataclasses.replace(problem, residual_tolerance=0.0), seed)
    print(", ".join(f"{count:,} {what}" for what, count in everybody.seen.items()))  # shown by pytest -rP
    assert everybody.seen["near-singular"] > 0.2 * everybody.seen["problems"]
    assert everybody.seen["undefined"] > 0.2 * everybody.seen["problems"]
