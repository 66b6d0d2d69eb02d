"""The kernels of method `distributed` are clean under the sanitizers, as workers launch them."""

from gpupc_impl.distributed.filter import all_kernels
from tests import sanitized

SEARCH = """
import dataclasses
import numpy as np
from gpupc_impl import BackgroundKnowledge, skeleton
from gpupc_impl.distributed import filter, filter_plan
from gpupc_impl.distributed.correlations import fixed_order_problem
from gpupc_impl.gaussian import fixed_order

rng = np.random.default_rng(1)
p = 70
weights = np.tril(rng.random((p, p)) < 0.1, -1) * rng.uniform(0.3, 1, (p, p))
data = rng.normal(size=(45, p)) @ np.linalg.inv(np.eye(p) - weights).T
data[:, 40] = data[:, 3]
how = {"method": "distributed", "backend": "host", "max_level": 2, "transpose": False}
filter.SPARSENESS = 1e9  # so that level 1 runs in groups of rows
choose = filter_plan.choose
small = choose(*data.shape, 1 << 19, 0)
for most in (5, 1000):  # open edges are never few, or are so after the first block
    plan = dataclasses.replace(small, open_edges=most, candidates=32, parts=most == 5)
    filter_plan.choose, fixed_order.MOST_SMALL = lambda *sizes: plan, most
    found = skeleton(data, 0.2, workers=2, **how)
    assert found.tests_per_level[1] > 100 and found.tests_per_level[2] > 100
knowledge = BackgroundKnowledge(required_edges=[(1, 50), (3, 4)])
assert skeleton(data, 0.2, knowledge=knowledge, **how).adjacency[1, 50]
fixed_order_problem(data, alpha=0.2)
"""


@sanitized.NEEDS_ONE
def test_every_kernel_is_clean(tmp_path):
    sanitized.check(SEARCH, tmp_path / "launches", all_kernels(3), tmp_path)
