"""The kernels of the out-of-core methods are clean under the sanitizers, in every layout and with split rows."""

import os
import subprocess
import sys

import pytest

from gpupc_impl.backends import replay
from gpupc_impl.backends.simt import build
from gpupc_impl.out_of_core.device import all_kernels

SEARCH = """
import dataclasses
import numpy as np
from gpupc_impl import GaussianProblem, methods
from gpupc_impl.backends import open_backend
from gpupc_impl.core.solve import solve
from gpupc_impl.out_of_core._gathered import Gathered

rng = np.random.default_rng(1)
weights = np.tril(rng.random((14, 14)) < 0.25, -1) * rng.uniform(0.3, 1, (14, 14))
weights[1:, 0] = 0.8  # a hub
data = rng.normal(size=(60, 14)) @ np.linalg.inv(np.eye(14) - weights).T
data = np.column_stack([data, data[:, 0], data[:, 3]])  # singular conditioning matrices
problem = GaussianProblem.from_data(data, alpha=0.2, max_level=3)
method, backend = methods()["out-of-core-block"], open_backend("host")
expected = solve(problem, methods()["cupc-s"], backend)
assert expected.pseudo_inverses and expected.levels_run == 4
for layout, options in {"blocks": {}, "panels": {"pmax": True}, "gather": {"separating_sets": "first-come"}}.items():
    found = solve(problem, method, backend, {"layout": layout, "block_size": 9}, **options)
    assert (found.adjacency == expected.adjacency).all()
for layout, pmax in (("blocks", True), ("panels", False)):  # the kernels' other variants
    assert solve(problem, method, backend, {"layout": layout, "block_size": 9}, pmax=pmax).sha256 == expected.sha256
literal = dataclasses.replace(problem, residual_tolerance=0.0, max_level=1)
pairs = solve(literal, methods()["out-of-core-um"], backend, {"level_one": "pairs"})
assert pairs == solve(literal, methods()["cupc-s"], backend)
Gathered.largest_arena = lambda *given: 1024
assert solve(problem, method, backend, {"layout": "gather"}) == expected
"""


def run_search(environment):
    done = subprocess.run(
        [sys.executable, "-c", SEARCH],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(build.missing_sanitizer(("address", "undefined")) is not None, reason="no sanitizer runtime here")
def test_addresses_and_arithmetic_are_clean():
    run_search(build.sanitizer_environment("address,undefined"))


@pytest.mark.skipif(build.missing_sanitizer(("thread",)) is not None, reason="no thread sanitizer here")
def test_kernels_do_not_race(tmp_path):
    run_search({**os.environ, "GPUPC_RECORD_LAUNCHES": str(tmp_path)})
    results = [result for result in replay.replay(tmp_path) if "out_of_core" in result.kernel]
    replayed = {result.kernel.split(" of ")[0] for result in results}
    assert replayed >= {kernel.expression for kernel in all_kernels(3)}, sorted(replayed)
    for result in results:
        assert result.clean, f"{result.kernel}\n{result.report}"
