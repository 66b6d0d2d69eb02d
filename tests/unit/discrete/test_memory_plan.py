"""Where gpuPC's tables lie: shared memory, scratch space, and sorted samples in the place of large tables."""

import itertools

import pytest

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.discrete.declarations import UNIT_BYTES
from gpupc_impl.discrete.memory_plan import SHARED_TABLE_CELLS, plan_memory


def plan(**changes):
    arguments = {
        "level": 2,
        "largest_table": 100_000,
        "grid": (100, 20),
        "tables": 2,
        "row_bytes": 400,
        "max_shared_bytes": 49_152,
        "memory_used": 10**6,
        "memory_limit": 10**9,
        "resident_blocks": 10**6,
        "running_blocks": 1,
        "dense_cells": 10**6,
        "sorted_cells": 200_000,
    }
    return plan_memory(**{**arguments, **changes})


def test_small_tables_are_shared():
    planned = plan(largest_table=500)
    assert planned.shared_cells == 500
    assert planned.shared_bytes == 2 * (UNIT_BYTES + 4 * 2) + 400 + 2 * 4 * 500
    assert planned.scratch_bytes == 0
    assert planned.z == 1


def test_large_tables_take_scratch_space_as_far_as_it_goes():
    planned = plan(max_shared_bytes=1 << 17)
    assert planned.scratch_cells == 100_000
    assert planned.shared_cells == SHARED_TABLE_CELLS
    block = 2 * 4 * 100_000
    blocks = planned.scratch_grid[0] * planned.scratch_grid[1]
    assert planned.scratch_bytes == blocks * block <= 10**9 - 10**6
    assert planned.scratch_grid == (62, 20)
    assert planned.z == 2  # of 100 rows, 62 at a time
    assert plan(memory_limit=10**11).z == 1
    assert plan(memory_limit=10**6 + 3 * block).scratch_grid == (1, 3)
    assert plan(memory_limit=10**6 + 3 * block).z == 100
    assert plan(resident_blocks=40).scratch_grid == (2, 20)


def test_samples_are_sorted_where_tables_are_too_large():
    few = {"dense_cells": 30_000, "sorted_cells": 20_001}
    planned = plan(**few)
    assert (planned.dense_cells, planned.scratch_cells) == (30_000, 30_000)
    assert plan(largest_table=20_000, **few).scratch_cells == 20_000
    assert plan(dense_cells=9000, sorted_cells=20_001).scratch_cells == 20_002  # of 64 bits each
    assert plan(dense_cells=9000, sorted_cells=20_001).dense_cells == 9000
    tight = plan(memory_limit=10**6 + 2 * 4 * 50_000, sorted_cells=20_000)  # not even one block's tables
    assert (tight.dense_cells, tight.scratch_grid) == (50_000, (1, 1))
    assert "samples are sorted instead of tables beyond 200,000 bytes" in str(tight)
    block = 2 * 4 * 20_000
    with pytest.raises(DeviceMemoryError) as caught:
        plan(memory_limit=10**6 + block - 1, sorted_cells=20_000)
    assert caught.value.requested == block


def test_tables_are_made_where_all_blocks_that_run_have_room():
    """With less memory samples are sorted, unless that takes as much."""
    block, given = 2 * 4 * 100_000, {"memory_used": 0, "sorted_cells": 50_000}
    assert plan(running_blocks=100, memory_limit=100 * block, **given).dense_cells == 100_000
    half = plan(running_blocks=200, memory_limit=150 * block, **given)
    assert (half.dense_cells, half.scratch_cells) == (75_000, 75_000)
    assert plan(running_blocks=200, memory_limit=50 * block, **given).dense_cells == 50_000
    few = plan(running_blocks=200, memory_limit=6 * block, grid=(3, 2), **given)
    assert few.dense_cells == 100_000  # there are no more blocks
    assert plan(running_blocks=200, memory_limit=block, **{**given, "sorted_cells": 200_000}).dense_cells == 100_000


def test_shared_memory_is_never_overdrawn():
    for level, tables, row_bytes in itertools.product((1, 9), (1, 8, 512), (0, 4000, 40_000)):
        planned = plan(level=level, tables=tables, row_bytes=row_bytes)
        if tables < 512:
            assert planned.shared_bytes <= 49_152
