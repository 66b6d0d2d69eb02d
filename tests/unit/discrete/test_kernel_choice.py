"""A first search on a GPU begins with kernels that compile fast: the same answers as with the fastest kernels."""

from __future__ import annotations

import numpy as np
import pytest

from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.discrete.problem import DiscreteProblem
from tests.prepared import Prepared

RNG = np.random.default_rng(0)
MIXED = RNG.standard_normal((500, 10)) @ (np.eye(10) + 0.6 * RNG.standard_normal((10, 10)))


class LikeGpu(Prepared):
    """Chooses blocks as on a GPU."""

    def __init__(self, ready: bool):
        super().__init__(ready)
        self.multiprocessors = 2


@pytest.mark.parametrize("cuts", [[0.0], [-1.0, 0.5]])
def test_few_ways_find_what_all_ways_find(cuts):
    problem = DiscreteProblem.from_data(np.digitize(MIXED, cuts).astype(np.uint8), max_level=2)
    slow, fast = LikeGpu(ready=False), LikeGpu(ready=True)
    few, all_ways = (solve(problem, get_method("gpupc"), backend, pmax=True) for backend in (slow, fast))
    assert {name for name in slow.taken if "gpupc" in name} == {"gpupc_level<unsigned char, SHARED, FEW_WAYS>"}
    assert fast.taken & {"gpupc_level<unsigned char, SHARED, ALL_WAYS>", "gpupc_batches<unsigned char, false>"}
    assert few.levels_run == 3
    assert few.sha256 == all_ways.sha256
    np.testing.assert_array_equal(few.sepsets.members, all_ways.sepsets.members)
    np.testing.assert_array_equal(few.pmax, all_ways.pmax)
