"""The plans of the chaos test: the same seed gives the same plan, and each plan has something of everything."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.chaos.plan import APART_S, EVENTS, PARTS, RATE, make_plan


def test_a_seed_has_one_plan() -> None:
    """A failing seed can be run again: its plan is the same, that of another seed is not."""
    assert make_plan(3, 300) == make_plan(3, 300)
    assert make_plan(3, 300) != make_plan(4, 300)


@pytest.mark.parametrize("count", [150, 300, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_everything(seed: int, count: int) -> None:
    """Each kind of item and each event is there, in order of time and within the run, the events apart."""
    plan = make_plan(seed, count)

    assert list(range(count)) == [item.number for item in plan.items]
    assert {*PARTS, "good"} == {item.kind for item in plan.items}
    assert set(EVENTS) == {event.kind for event in plan.events}
    times = [event.at for event in plan.events]
    assert all(later - earlier >= APART_S - 1e-9 for earlier, later in pairwise(times))
    assert 0 <= plan.items[0].at <= plan.items[-1].at <= count / RATE
    assert 0 <= times[0] <= times[-1] <= count / RATE


def test_events_and_deadly_items_can_be_left_out() -> None:
    """A pool without processes is spared what only processes can suffer."""
    plan = make_plan(1, 300, kinds=("cut", "pause"), deadly=False)

    assert {"cut", "pause"} == {event.kind for event in plan.events}
    assert "ends" not in {item.kind for item in plan.items}
