"""Panels test pairs one by one or, on a GPU while few are separated, in tiles, with the same answer."""

import numpy as np
import pytest

from gpupc_impl.backends import open_backend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.gaussian import pair_block
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core.square_blocks import PairResults

METHOD = get_method("out-of-core-block")
P = 90


@pytest.fixture
def tiled(monkeypatch):
    """The first columns of the blocks tested in tiles, which are switched on for the host backend."""
    tiled_columns = []
    test = PairResults.test

    def record(self, *args, **kwargs):
        tiled_columns.append(self.columns.start)
        test(self, *args, **kwargs)

    monkeypatch.setattr(pair_block, "TILED", ("cuda", "host"))
    monkeypatch.setattr(PairResults, "test", record)
    return tiled_columns


def search(problem, rule, pmax=False):
    # There are two panels of at most 45 rows, and 16 rows at a time pass by.
    backend = open_backend("host", device_memory_limit=90_000)
    params = METHOD.parse_params({"block_size": 16})
    return solve(problem, METHOD, backend, params, separating_sets=rule, pmax=pmax)


def factors(coupling: float, alpha: float, copies: int = 0) -> GaussianProblem:
    """Variables that depend on one of three factors, which are the first three; the last ones are copies of others."""
    chance = np.random.default_rng(3)
    values = chance.normal(size=(400, P))
    of = chance.integers(0, 3, P)
    values[:, 3:] += coupling * values[:, of[3:]]
    values[:, P - copies :] = -values[:, 10 : 10 + copies]
    return GaussianProblem.from_data(values, alpha=alpha, max_level=1)


def test_what_nothing_separates_is_tested_in_tiles(tiled, monkeypatch):
    problem = factors(1.0, 1 - 2**-53)
    answer = search(problem, "canonical")
    assert len(tiled) == 9 - 2  # nothing was known when the first two blocks were queued
    monkeypatch.setattr(pair_block, "TILED", ())
    one_by_one = search(problem, "canonical")
    assert answer == one_by_one
    assert answer.tests_per_level == one_by_one.tests_per_level


@pytest.mark.parametrize("copies", [0, 4], ids=["", "copied columns"])
@pytest.mark.parametrize("rule", ["canonical", "first-come"])
def test_some_are_separated_in_tiles(tiled, rule, copies, monkeypatch):
    monkeypatch.setattr(pair_block, "GAIN", 1e9)
    problem = factors(1.0, 0.3, copies)
    answer = search(problem, rule)
    assert tiled
    assert answer.edges_per_level[1] < answer.edges_per_level[0] / 2
    monkeypatch.setattr(pair_block, "TILED", ())
    one_by_one = search(problem, rule)
    assert answer.sha256 == one_by_one.sha256
    if rule == "canonical":
        assert answer.sepsets == one_by_one.sepsets


def test_p_values_are_found_pair_by_pair(tiled):
    answer = search(factors(1.0, 1 - 2**-53), "canonical", pmax=True)
    assert tiled == []
    assert answer.pmax is not None


def test_what_is_separated_is_tested_pair_by_pair(tiled):
    answer = search(factors(1.0, 0.001), "canonical")
    assert answer.edges_per_level[1] < 0.05 * P * (P - 1) / 2
    assert tiled == []
