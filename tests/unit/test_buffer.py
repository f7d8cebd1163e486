"""core/items: windows keep order, priority and the age bound, and cost nothing when empty."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from celery_batching.core.items import AGE_BOUND_S, Buffer, Item

arrivals = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=60)


def filled(calls: list[tuple[str, int]]) -> tuple[Buffer[int], list[Item[int]]]:
    buffer: Buffer[int] = Buffer()
    items = [Item(number, key, number * 0.01, priority) for number, (key, priority) in enumerate(calls)]
    for item in items:
        buffer.add(item)
    return buffer, items


@given(arrivals)
def test_no_item_is_lost_and_none_comes_twice(calls: list[tuple[str, int]]) -> None:
    """Everything that was put in comes out exactly once, by key."""
    buffer, items = filled(calls)

    popped = []
    for key in "abc":
        while (item := buffer.pop(key, 1.0)) is not None:
            assert key == item.key
            popped.append(item.payload)

    assert [item.payload for item in items] == sorted(popped)
    assert not buffer.windows


@given(arrivals)
def test_young_items_leave_by_priority_and_then_by_arrival(calls: list[tuple[str, int]]) -> None:
    """A lower number leaves first; equal ones keep the order in which they came."""
    buffer, items = filled([("a", priority) for _, priority in calls])

    left = [buffer.pop("a", 1.0) for _ in items]

    assert sorted(items, key=lambda item: (item.priority, item.arrived)) == left


def test_an_old_item_goes_before_any_priority() -> None:
    """After the age bound an item leaves first, so that it does not starve behind better ones."""
    buffer: Buffer[str] = Buffer()
    buffer.add(Item("old", "a", 0.0, priority=9))
    buffer.add(Item("urgent", "a", AGE_BOUND_S, priority=0))

    first = buffer.pop("a", AGE_BOUND_S)

    assert first is not None
    assert "old" == first.payload


@given(arrivals)
def test_clear_forgets_what_waited(calls: list[tuple[str, int]]) -> None:
    """After clear nothing waits, whatever there was."""
    buffer, items = filled(calls)
    assert len(items) == len(buffer)

    buffer.clear()

    assert 0 == len(buffer)
    assert not buffer.windows


def test_the_oldest_is_the_oldest_of_all_priorities() -> None:
    """The clock of a window runs from its first item, whatever its priority."""
    buffer: Buffer[int] = Buffer()
    for arrived, priority in [(3.0, 0), (1.0, 9), (2.0, 4)]:
        buffer.add(Item(0, "a", arrived, priority))

    assert 1.0 == buffer.windows["a"].oldest
