"""The kernels of the out-of-core methods are clean under the sanitizers, in every layout."""

import pytest

from gpupc_impl.out_of_core.block import all_kernels
from tests import sanitized

SEARCH = """
import dataclasses
import numpy as np
from gpupc_impl import GaussianProblem, methods
from gpupc_impl.backends import open_backend
from gpupc_impl.core.solve import solve
from gpupc_impl.out_of_core import gathered

rng = np.random.default_rng(1)
weights = np.tril(rng.random((14, 14)) < 0.25, -1) * rng.uniform(0.3, 1, (14, 14))
weights[1:, 0] = 0.8  # a hub
data = rng.normal(size=(60, 14)) @ np.linalg.inv(np.eye(14) - weights).T
data = np.column_stack([data, data[:, 0], data[:, 3]])  # singular conditioning matrices
problem = GaussianProblem.from_data(data, alpha=0.2, max_level=3)
method, backend = methods()["out-of-core-block"], open_backend("host")
expected = solve(problem, methods()["cupc-s"], backend)
assert expected.pseudo_inverses and expected.levels_run == 4
params = {"block_size": 9}
for layout in ("blocks", "auto"):
    for options in ({}, {"pmax": True}, {"separating_sets": "first-come"}):
        found = solve(problem, method, backend, {"layout": layout, **params}, **options)
        assert (found.adjacency == expected.adjacency).all()
gathered.GATHER_FACTOR = 0  # gathered at level 1 as well
assert solve(problem, method, backend, params).sha256 == expected.sha256
literal = dataclasses.replace(problem, residual_tolerance=0.0, max_level=1)
pairs = solve(literal, methods()["out-of-core-um"], backend, {"level_one": "pairs"})
assert pairs == solve(literal, methods()["cupc-s"], backend)
"""


@pytest.mark.parametrize("every_variant", [False, pytest.param(True, marks=pytest.mark.slow)])
@sanitized.NEEDS_ONE
def test_every_kernel_is_clean(every_variant, tmp_path):
    sanitized.check(SEARCH, tmp_path / "launches", all_kernels(3), room="out_of_core", every_variant=every_variant)
