"""Every kernel of every method is clean under the sanitizers, on a small problem that reaches several levels."""

import os
import subprocess
import sys

import pytest

from gpupc_impl import methods
from gpupc_impl.backends import replay
from gpupc_impl.backends.simt import build
from gpupc_impl.gaussian.device import all_kernels

SEARCH = """
import numpy as np
from gpupc_impl import GaussianProblem, methods
from gpupc_impl.backends import open_backend
from gpupc_impl.core.solve import solve

rng = np.random.default_rng(1)
weights = np.tril(rng.random((14, 14)) < 0.25, -1) * rng.uniform(0.3, 1, (14, 14))
data = rng.normal(size=(60, 14)) @ np.linalg.inv(np.eye(14) - weights).T
data = np.column_stack([data, data[:, 0], data[:, 3]])  # singular conditioning matrices
problem = GaussianProblem.from_data(data, max_level=3)
backend = open_backend("host")
for method in methods("gaussian").values():
    if "host" in method.backends:
        found = solve(problem, method, backend, pmax=True)
        assert found.levels_run == 4 and found.pseudo_inverses, found
        solve(problem, method, backend, separating_sets="first-come")
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


def test_there_are_kernels_to_check():
    assert sum("host" in method.backends for method in methods("gaussian").values()) >= 4


@pytest.mark.skipif(build.missing_sanitizer(("address", "undefined")) is not None, reason="no sanitizer runtime here")
def test_addresses_and_arithmetic_are_clean():
    run_search(build.sanitizer_environment("address,undefined"))


@pytest.mark.skipif(build.missing_sanitizer(("thread",)) is not None, reason="no thread sanitizer here")
def test_kernels_do_not_race(tmp_path):
    run_search({**os.environ, "GPUPC_RECORD_LAUNCHES": str(tmp_path)})
    results = replay.replay(tmp_path)
    assert {result.kernel.split(" of ")[0] for result in results} == {name for _, name in all_kernels(3)}
    for result in results:
        assert result.clean, f"{result.kernel}\n{result.report}"
