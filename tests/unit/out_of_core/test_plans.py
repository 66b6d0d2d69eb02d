"""The plans of the block-based search predict what it allocates, and the documented formulas what it moves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl import GaussianProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.out_of_core import plans

needs_host = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


@given(st.integers(1, 60_000), st.integers(0, 2**38), st.integers(1, 32768), st.booleans())
def test_a_plan_keeps_its_budget(p, budget, block_size, pmax):
    zero = plans.level_zero(p, budget, block_size)
    ones = [plans.level_one(p, budget, block_size, layout, pmax) for layout in ("auto", "blocks")]
    for plan in (zero, *ones):
        if plan is not None:
            assert plan.device_bytes <= budget
            assert 1 <= plan.rows <= p
            assert plan.columns <= block_size
    if budget >= plans.least_budget(p, True, pmax):
        assert None not in (zero, *ones)


@pytest.mark.parametrize(("budget", "layout"), [(2**31, "panels"), (2**24, "blocks")])
def test_little_memory_is_for_blocks(budget, layout):
    """With the variables of TCGA, panels in 16 MiB would have so few rows that they move more than blocks."""
    assert plans.level_one(55_572, budget, 2560, "auto", False).layout == layout
    squares = plans.level_one(55_572, budget, 2560, "blocks", False)
    assert (squares.layout, squares.rows) == ("blocks", 2560 if layout == "panels" else 612)


@needs_host
@pytest.mark.parametrize("layout", ["blocks", "auto"])
@pytest.mark.parametrize(("p", "block_size", "budget"), [(100, 2560, 180_000), (97, 33, 150_000), (130, 64, 200_000)])
def test_a_complete_graph_takes_the_planned_memory_and_moves_the_documented_bytes(p, block_size, budget, layout):
    problem = GaussianProblem.from_correlation(np.full((p, p), 0.5) + 0.5 * np.eye(p), n_samples=1000, max_level=1)
    params = {"block_size": block_size, "layout": layout}
    report = solve(problem, get_method("out-of-core-block"), open_backend("host", budget), params).facts["out_of_core"]
    zero, one = report["levels"]
    side = zero["rows"]
    sizes = [min(side, p - start) for start in range(0, p, side)]
    assert zero["bytes_up"] == 8 * sum(i * j for at, i in enumerate(sizes) for j in sizes[at:])
    if layout == "blocks":
        sizes = [min(one["rows"], p - start) for start in range(0, p, one["rows"])]
        pairs = sum(i * j for at, i in enumerate(sizes) for j in sizes[at:])
        exact = 8 * (pairs + len(sizes) * p * p)  # each variable's row goes to the device once for each block column
        assert exact < one["bytes_up"] < 1.1 * exact  # the rest is the graph's bits
    else:
        assert one["layout"] == "panels"
        assert one["bytes_up"] == sum(p - start for start in range(0, p, one["rows"])) * (8 * p + 4 * row_words(p))
    for level in (zero, one):
        assert set(level["seconds"]) == {"extract", "transfer", "kernel", "merge"}
    expected = max(level["device_bytes"] for level in report["levels"])
    assert expected - 16 * 512 < report["peak_device_bytes"] <= expected
