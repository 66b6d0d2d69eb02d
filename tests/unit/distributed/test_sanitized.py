"""The kernels of method `distributed` are clean under the sanitizers, as a worker launches them."""

from gpupc_impl.distributed.device import all_kernels
from tests import sanitized

SEARCH = """
import dataclasses
import sys
from pathlib import Path
import numpy as np
from gpupc_impl import GaussianProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.distributed import filter_plan, machine, panel_plan
from gpupc_impl.distributed.communicator import communicators, on_all
from gpupc_impl.distributed.correlations import standardised
from gpupc_impl.distributed.filter import FilteredLevels
from gpupc_impl.distributed.shards import ShardFolder
from gpupc_impl.distributed.spec import RowGroup, SearchSpec
from gpupc_impl.distributed.row_search import search_rows
from gpupc_impl.distributed.worker_search import search_block
from gpupc_impl.distributed.worker_state import WorkerState
from gpupc_impl.engine.row_graph import RowGraph

rng = np.random.default_rng(1)
p = 70
weights = np.tril(rng.random((p, p)) < 0.1, -1) * rng.uniform(0.3, 1, (p, p))
data = rng.normal(size=(45, p)) @ np.linalg.inv(np.eye(p) - weights).T
data[:, 40] = data[:, 3]
problem = GaussianProblem.from_data(data, alpha=0.2, correlations="device")
np.save(f"{sys.argv[1]}/numbers.npy", standardised(open_backend("host"), data))
spec_folder = ShardFolder(Path(sys.argv[1]))
spec_folder.key.touch()
for fixed in (None, np.array([[1, 50], [3, 4]])):
    least = panel_plan.least_device_bytes(45, p, 32, True)
    knowledge = fixed is not None
    plan = panel_plan.choose(45, p, device_memory=least, host_memory=1 << 20, workers=1, rows=32, knowledge=knowledge)
    critical = problem.critical_r_squared(0), problem.critical_r_squared(1)
    tolerances = problem.residual_tolerance, problem.pivot_tolerance
    for path in spec_folder.fixed if knowledge else ():
        np.save(path, fixed)
    spec = SearchSpec(
        "", "", machine.code_digest(), sys.argv[1], data.shape, False, plan, "host", True, critical, *tolerances,
        knowledge,
    )
    state, left = WorkerState(spec), []
    for i, j in plan.blocks():
        state.begin()
        _, arrays = search_block(state, i, j)
        left.append(plan.pairs(i, j, arrays["left"]))
    assert state.panels_made > plan.panels > state.panels_held
    graph = RowGraph.from_pairs(np.unique(np.concatenate(left), axis=0), p)
    rows = np.flatnonzero(graph.degrees > 2)
    slots = graph.row_slots(rows)
    group = RowGroup("", rows, graph.degrees[rows], graph.neighbours[slots], np.empty(0, np.int64))
    state.drop_panels()
    counts, arrays = search_rows(state, 2, problem.critical_r_squared(2), group)
    assert counts["tests"] > 100 and (arrays["keys"] != 2**64 - 1).any()
choose = filter_plan.choose
for most in (5, 1000):  # open edges are never few, or are so after the first block
    filter_plan.choose = lambda m, p, budget: dataclasses.replace(choose(m, p, 1 << 19), open_edges=most, candidates=32)
    def levels(device):
        own = FilteredLevels(problem, device, True)
        return sum(group.starts[-1] for group in own.groups()), own.counts[0]
    edges, tests = zip(*on_all(communicators([open_backend("host"), open_backend("host")]), levels))
    assert min(*edges, *tests) > 50
"""


@sanitized.NEEDS_ONE
def test_every_kernel_is_clean(tmp_path):
    sanitized.check(SEARCH, tmp_path / "launches", all_kernels(3), tmp_path)
