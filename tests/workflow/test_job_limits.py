"""What jobs of a cluster ask for, from the limits of their runs."""

import itertools

import pytest

from workflow.lib.searches import OVERHEAD_MB, resources_of_searches, resources_of_tests

TIMING = {"time_limit_s": 600, "long_run_s": 60, "side_by_side": 4}
CLUSTER = {"job_minutes": 10_000}
LIMITS = {"memory_mb": 1000}


@pytest.mark.parametrize(
    ("settings", "data_sets", "repeats", "minutes"),
    [
        ({"a": {}}, 1, 5, 10 + 20),  # two runs at the limit
        ({"a": {"time_limit_s": 30}}, 1, 5, 10 + 3),  # six runs at its own
        ({"a": {}}, 1, 40, 10 + 41),  # all repeats, of a minute each
        ({"a": {}, "b": {"time_limit_s": 60}}, 7, 1, 7 * (10 + 20 + 10 + 2)),
    ],
)
def test_minutes(settings, data_sets, repeats, minutes):
    asked = resources_of_searches(settings, data_sets, repeats, TIMING, LIMITS, CLUSTER)
    assert asked["runtime"] == minutes
    assert resources_of_searches(settings, data_sets, repeats, TIMING, LIMITS, {"job_minutes": 12})["runtime"] == 12


def test_memory():
    for count, (memory, expected) in itertools.product((1, 3), ((None, 0), (500, None))):
        settings = {str(k): {} for k in range(count)}
        asked = resources_of_searches(settings, 1, 1, TIMING, {"memory_mb": memory}, CLUSTER)["mem_mb"]
        assert asked == (expected if memory is None else count * memory + OVERHEAD_MB)
    asked = resources_of_searches({str(k): {} for k in range(9)}, 1, 1, TIMING, LIMITS, CLUSTER)
    assert asked["mem_mb"] == 4 * 1000 + OVERHEAD_MB  # of those that take turns


def test_single_tests():
    assert resources_of_tests(6, 2, 60, LIMITS, CLUSTER) == {"runtime": 20 + 6, "mem_mb": 2 * 1000 + OVERHEAD_MB}
