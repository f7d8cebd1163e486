"""core/policy: as a table of decisions, and by a simulated worker driven through random arrivals."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_batching import BatchOptions
from celery_batching.core.items import AGE_BOUND_S, Buffer, Item, Reason
from celery_batching.core.policy import Decision, Flush, WaitUntil, decide


def decision(buffer: Buffer[int], options: BatchOptions, now: float) -> Decision:
    return decide(buffer.windows.items(), lambda key: options, now)


def waiting(*arrivals: tuple[str, float]) -> Buffer[int]:
    buffer: Buffer[int] = Buffer()
    for number, (key, arrived) in enumerate(arrivals):
        buffer.add(Item(number, key, arrived))
    return buffer


@pytest.mark.parametrize(
    ("arrivals", "max_wait", "now", "expected"),
    [
        ([], 0.0, 1.0, None),
        ([("a", 1.0)], 0.0, 1.0, Flush("a", Reason.IDLE, 2)),
        ([("a", 1.0), ("a", 1.0)], 0.0, 1.0, Flush("a", Reason.FULL, 2)),
        ([("a", 1.0)], 0.5, 1.2, WaitUntil(1.5)),
        ([("a", 1.0)], 0.5, 1.5, Flush("a", Reason.WAIT, 2)),
        ([("a", 1.0), ("a", 1.4)], 0.5, 1.4, Flush("a", Reason.FULL, 2)),
        ([("a", 1.2), ("b", 1.0)], 0.5, 1.3, WaitUntil(1.5)),
        ([("a", 1.2), ("b", 1.0)], 0.5, 9.0, Flush("b", Reason.WAIT, 2)),
        ([("a", 1.2), ("a", 1.3), ("b", 1.0)], 0.5, 1.4, Flush("a", Reason.FULL, 2)),
    ],
)
def test_decisions(arrivals: list[tuple[str, float]], max_wait: float, now: float, expected: Decision) -> None:
    """Full goes, then what has waited, the oldest head first; else the moment of the next deadline."""
    options = BatchOptions(max_batch_size=2, max_wait=max_wait)

    assert expected == decision(waiting(*arrivals), options, now)


@given(st.floats(0, 1e6), st.floats(1e-9, 1e3))
def test_the_deadline_it_names_is_the_moment_it_flushes(arrived: float, max_wait: float) -> None:
    """Asked again at exactly the time it gave, the policy flushes: a timer set for it is never set twice."""
    options = BatchOptions(max_batch_size=2, max_wait=max_wait)
    buffer = waiting(("a", arrived))

    named = decision(buffer, options, arrived)

    if isinstance(named, WaitUntil):
        assert isinstance(decision(buffer, options, named.time), Flush)


class Simulation:
    """A worker with one slot: arrivals and batch ends in order of time, the policy asked at each and at its timers."""

    def __init__(self, options: BatchOptions, run_s: float) -> None:
        self.options = options
        self.run_s = run_s
        self.buffer: Buffer[int] = Buffer()
        self.batches: list[tuple[float, Hashable, Reason, list[Item[int]]]] = []
        self.free_at = 0.0
        self.timer: float | None = None

    def play(self, arrivals: list[Item[int]]) -> None:
        pending = list(arrivals)
        now = 0.0
        while pending or len(self.buffer):
            events = [item.arrived for item in pending[:1]] + [t for t in (self.timer,) if t is not None]
            if self.free_at > now:
                events.append(self.free_at)
            assert events, "items wait, the slot is free, and nothing will ever wake the policy"
            now = max(now, min(events))
            while pending and pending[0].arrived <= now:
                self.buffer.add(pending.pop(0))
            self.ask(now)

    def ask(self, now: float) -> None:
        self.timer = None
        if self.free_at > now:
            return
        chosen = decision(self.buffer, self.options, now)
        if isinstance(chosen, WaitUntil):
            self.timer = chosen.time
        elif isinstance(chosen, Flush):
            taken = [self.buffer.pop(chosen.key, now) for _ in range(chosen.size)]
            items = [item for item in taken if item is not None]
            self.batches.append((now, chosen.key, chosen.reason, items))
            self.free_at = now + self.run_s


calls = st.lists(st.tuples(st.floats(0, 0.2), st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=60)
settings = st.builds(BatchOptions, max_batch_size=st.integers(1, 9), max_wait=st.sampled_from([0.0, 0.01, 0.1, 1.0]))


def played(
    gaps: list[tuple[float, str, int]], options: BatchOptions, run_s: float
) -> tuple[Simulation, list[Item[int]]]:
    now, items = 0.0, []
    for number, (gap, key, priority) in enumerate(gaps):
        now += gap
        items.append(Item(number, key, now, priority))
    simulation = Simulation(options, run_s)
    simulation.play(items)
    return simulation, items


@given(calls, settings, st.floats(0.001, 1.0))
def test_every_item_runs_once_and_no_batch_is_too_large(
    gaps: list[tuple[float, str, int]], options: BatchOptions, run_s: float
) -> None:
    """No item is lost, none runs twice, the cap holds, a batch is of one key, no wake-up is missed."""
    simulation, items = played(gaps, options, run_s)

    ran = [item.payload for _, _, _, batch in simulation.batches for item in batch]
    assert [item.payload for item in items] == sorted(ran)
    for _, key, reason, batch in simulation.batches:
        assert 1 <= len(batch) <= options.max_batch_size
        assert {key} == {item.key for item in batch}
        assert (reason is Reason.FULL) <= (len(batch) == options.max_batch_size)


@given(calls, settings, st.floats(0.001, 1.0))
def test_no_window_passes_its_deadline_while_the_slot_is_free(
    gaps: list[tuple[float, str, int]], options: BatchOptions, run_s: float
) -> None:
    """A batch starts when its oldest item is due or the slot becomes free, whichever is later."""
    simulation, _ = played(gaps, options, run_s)

    free_at = 0.0
    for now, _, _, batch in simulation.batches:
        due = min(item.arrived for item in batch) + options.max_wait
        assert now <= max(due, free_at)
        free_at = now + run_s


@given(calls, settings, st.floats(0.001, 0.05))
def test_equal_items_of_a_key_leave_in_order_of_arrival(
    gaps: list[tuple[float, str, int]], options: BatchOptions, run_s: float
) -> None:
    """Among items of one key and one priority nobody overtakes."""
    simulation, items = played([(gap, key, 0) for gap, key, _ in gaps], options, run_s)

    for key in "ab":
        ran = [item.payload for _, _, _, batch in simulation.batches for item in batch if item.key == key]
        assert [item.payload for item in items if item.key == key] == ran


def test_a_low_priority_item_does_not_starve() -> None:
    """Under a steady stream of better items a worse one leaves soon after the age bound."""
    options = BatchOptions(max_batch_size=1)
    stream = [Item(number, "a", number * 0.1, 0) for number in range(200)]
    late = Item(-1, "a", 0.05, 9)
    simulation = Simulation(options, 0.1)

    simulation.play(sorted([*stream, late], key=lambda item: item.arrived))

    left = next(now for now, _, _, batch in simulation.batches if batch == [late])
    assert left <= late.arrived + AGE_BOUND_S + 0.2


def test_a_busy_slot_lets_the_batch_grow() -> None:
    """With a model of 1 s and 20 items a second, batches grow to 20 instead of leaving by twos."""
    simulation = Simulation(BatchOptions(max_batch_size=64, max_wait=0.1), 1.0)
    simulation.play([Item(number, "a", number * 0.05) for number in range(80)])

    sizes = [len(batch) for _, _, _, batch in simulation.batches]
    assert all(size >= 19 for size in sizes[1:-1])
