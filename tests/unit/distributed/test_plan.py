"""How blocks of pairs are shared out among workers."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl.distributed._plan import Plan


def plan_of(panels: int) -> Plan:
    return Plan(p=32 * panels, rows=32, panels=panels, held=2, device_bytes=0, host_bytes=0, budget=0)


@given(panels=st.integers(1, 40), workers=st.integers(1, 12))
def test_every_block_has_a_worker_and_none_has_more_than_another(panels, workers):
    plan = plan_of(panels)
    shares = plan.shares(workers)
    assert sorted(shares) == sorted(plan.blocks())
    sizes = Counter(shares.values())
    assert max(sizes.values()) - min(sizes[worker] for worker in range(workers)) <= 1


def test_four_workers_make_two_thirds_of_the_panels_that_each_would_make_of_all():
    shares = plan_of(28).shares(4)
    made = [{panel for block, worker in shares.items() if worker == number for panel in block} for number in range(4)]
    assert [len(panels) for panels in made] == [14, 21, 24, 14]
