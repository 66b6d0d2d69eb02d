"""The kernels of method `distributed` are clean under the sanitizers, as a worker launches them."""

from gpupc_impl.distributed.device import all_kernels
from tests import sanitized

SEARCH = """
import sys
from pathlib import Path
import numpy as np
from gpupc_impl import GaussianProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.distributed import _cluster, _plan, _search, _shards, _worker
from gpupc_impl.distributed.correlations import standardised
from gpupc_impl.out_of_core import _gathered

rng = np.random.default_rng(1)
p = 70
weights = np.tril(rng.random((p, p)) < 0.1, -1) * rng.uniform(0.3, 1, (p, p))
data = rng.normal(size=(45, p)) @ np.linalg.inv(np.eye(p) - weights).T
data[:, 40] = data[:, 3]
problem = GaussianProblem.from_data(data, alpha=0.2, correlations="device")
np.save(f"{sys.argv[1]}/numbers.npy", standardised(open_backend("host"), data))
spec_folder = _shards.Folder(Path(sys.argv[1]))
spec_folder.key.touch()
for fixed in (None, np.array([[1, 50], [3, 4]])):
    least = _plan.least_device_bytes(45, p, 32, True)
    knowledge = fixed is not None
    plan = _plan.choose(45, p, device_memory=least, host_memory=1 << 20, workers=1, rows=32, knowledge=knowledge)
    critical = problem.critical_r_squared(0), problem.critical_r_squared(1)
    tolerances = problem.residual_tolerance, problem.pivot_tolerance
    for path in spec_folder.fixed if knowledge else ():
        np.save(path, fixed)
    spec = _worker.Spec(
        "", _cluster.code(), sys.argv[1], data.shape, False, plan, "host", True, critical, *tolerances, knowledge
    )
    state, left = _worker.State(spec), []
    for i, j in plan.blocks():
        state.begin()
        _, arrays = state.test_block(i, j)
        left.append(plan.pairs(i, j, arrays["left"]))
    assert state.made > plan.panels > state.most_held
    graph = _search.graph_of(np.concatenate(left), p)
    rows = np.flatnonzero(graph.degrees > 2)
    slots = _gathered._ranges(graph.starts[rows], graph.degrees[rows])
    group = _worker.Group("", rows, graph.degrees[rows], graph.neighbours[slots], np.empty(0, np.int64))
    state.drop_panels()
    said, found = state.test_rows(2, problem.critical_r_squared(2), group)
    assert said["tests"] > 100 and (found["keys"] != 2**64 - 1).any()
"""


@sanitized.NEEDS_ONE
def test_every_kernel_is_clean(tmp_path):
    sanitized.check(SEARCH, tmp_path / "launches", all_kernels(3), tmp_path)
