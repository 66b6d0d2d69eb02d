"""The plans of the block-based search predict what it allocates and the bytes that it moves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl import GaussianProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import solve
from gpupc_impl.out_of_core import memory_plan

needs_host = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


def least(p: int, max_level: int | None = None, samples: int = 1000, pmax: bool = False) -> int:
    return memory_plan.least_budget(p, max_level, lambda level: samples - level - 3, pmax)


@given(st.integers(1, 60_000), st.integers(0, 2**38), st.integers(1, 32768), st.booleans())
def test_a_plan_keeps_its_budget(p, budget, block_size, pmax):
    plans = [
        memory_plan.level_zero(p, budget, block_size),
        memory_plan.blocks(p, budget, block_size, pmax),
        memory_plan.panels(p, budget, block_size, pmax),
    ]
    for plan in plans:
        if plan is not None:
            assert plan.device_bytes <= budget
            assert 1 <= plan.rows <= p
            assert plan.columns <= block_size
    if budget >= least(p, max_level=1, pmax=pmax):
        assert plans[0] is not None
        assert plans[1] is not None


@pytest.mark.parametrize("p", [1, 2, 31, 32, 33, 1000, 55_572])
def test_least_budgets_grow_with_the_levels(p):
    budgets = [least(p, max_level) for max_level in (0, 1, 2, 3, None)]
    assert budgets == sorted(budgets)
    assert budgets[-1] < 500_000 + 64 * p
    assert least(p, samples=5) <= least(p, max_level=1)


def test_the_papers_setting():
    """TCGA in 2 GiB: square blocks of the default size move more than twice the bytes of panels in the same memory."""
    budget, p = 2 * 2**30, 55_572
    panels, blocks = memory_plan.panels(p, budget, 2560), memory_plan.blocks(p, budget, 2560)
    assert (blocks.rows, blocks.width) == (2560, 2560)
    assert blocks.device_bytes < 2**29
    sides = math.ceil(p / 2560)
    exact = sum(
        8 * min(2560, p - i * 2560) * min(2560, p - j * 2560)
        + 8 * p * (min(2560, p - i * 2560) + (min(2560, p - j * 2560) if i != j else 0))
        for i in range(sides)
        for j in range(i, sides)
    )
    assert exact < blocks.bytes_up < exact * 1.03  # the rest is the graph's bits
    assert panels.bytes_up < blocks.bytes_up / 2
    assert memory_plan.level_one(p, budget, 2560, "auto", False).layout == "panels"
    assert memory_plan.level_one(p, 16 * 2**20, 2560, "auto", False).layout == "blocks"
    assert memory_plan.level_one(p, budget, 2560, "blocks", False) == blocks


@needs_host
@pytest.mark.parametrize("layout", ["blocks", "panels"])
@pytest.mark.parametrize(("p", "block_size", "budget"), [(100, 2560, None), (97, 33, 600_000), (130, 64, 700_000)])
def test_a_complete_graph_moves_what_the_forecast_says(p, block_size, budget, layout):
    problem = GaussianProblem.from_correlation(np.full((p, p), 0.5) + 0.5 * np.eye(p), n_samples=1000, max_level=1)
    backend = open_backend("host", budget)
    result = solve(problem, get_method("out-of-core-block"), backend, {"block_size": block_size, "layout": layout})
    report = result.facts["out_of_core"]
    for level, forecast in zip(report["levels"], report["forecast"].values(), strict=True):
        assert level["layout"] == forecast["layout"]
        assert (level["bytes_up"], level["bytes_down"]) == (forecast["bytes_up"], forecast["bytes_down"])
        assert set(level["seconds"]) == {"extract", "transfer", "kernel", "merge"}
    expected = max(forecast["device_bytes"] for forecast in report["forecast"].values())
    assert expected - 16 * 512 < report["peak_device_bytes"] <= expected
