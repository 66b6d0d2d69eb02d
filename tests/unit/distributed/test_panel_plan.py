"""Blocks of pairs are divided evenly among workers, in an order that reuses panels."""

from collections import Counter, OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from gpupc_impl.distributed.panel_plan import PanelPlan


def plan_of(panels: int, held: int = 2) -> PanelPlan:
    return PanelPlan(p=32 * panels, rows=32, panels=panels, held=held, device_bytes=0, host_bytes=0, budget=0)


@given(panels=st.integers(1, 40), workers=st.integers(1, 12))
def test_every_block_has_a_worker_and_none_has_more_than_another(panels, workers):
    plan = plan_of(panels)
    shares = plan.shares(workers)
    assert sorted(shares) == sorted(plan.blocks())
    sizes = Counter(shares.values())
    assert max(sizes.values()) - min(sizes[worker] for worker in range(workers)) <= 1


@given(panels=st.integers(1, 40), held=st.integers(2, 50))
def test_a_worker_that_keeps_more_panels_makes_fewer(panels, held):
    """About P^2 / 2 panels, divided by the number that stay while the others pass, are computed."""
    kept, made, done = OrderedDict(), 0, []
    for block in plan_of(panels, held).blocks():
        done.append(block)
        for panel in block:
            if panel not in kept:
                made += 1
                if len(kept) == held:
                    del kept[next(other for other in kept if other != block[0])]
            kept[panel] = None
            kept.move_to_end(panel)
    assert sorted(done) == [(i, j) for i in range(panels) for j in range(i, panels)]
    stay = max(held - 2, 1)
    assert made <= panels + (panels - min(stay, panels)) * (panels / stay + 2) / 2
    if held >= panels:
        assert made == panels


def test_four_workers_make_two_thirds_of_the_panels_that_each_would_make_of_all():
    shares = plan_of(28).shares(4)
    made = [{panel for block, worker in shares.items() if worker == number for panel in block} for number in range(4)]
    assert [len(panels) for panels in made] == [14, 21, 24, 14]
