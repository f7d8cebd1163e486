"""The verdict of the chaos test: what is right for each kind of item, and what counts as a stall."""

from __future__ import annotations

import pytest

from tests.chaos.callers import Call, Outcome
from tests.chaos.plan import Item, Plan
from tests.chaos.verdict import Run, Verdict, longest_stall

LOST = ["FAILURE", "WorkerLostError", "Worker exited prematurely: exitcode 3"]


def verdict(kind: str, outcome: Outcome | None, *, alone: bool = False) -> Verdict:
    """A plan with item 2 alone; its process, if `alone`, was killed while it ran nothing else."""
    runs = [Run("begin", 99, [1, 2]), Run("begin", 99, [2])] if alone else [Run("begin", 99, [1, 2])]
    return Verdict(Plan(1, (Item(2, 0.0, kind),), ()), [Call(2, 0.0, 1.0, outcome)], runs, {99})


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("good", ["SUCCESS", 15]),
        ("slow", ["SUCCESS", 15]),
        ("raises", ["FAILURE", "ValueError", "2"]),
        ("entry", ["FAILURE", "LookupError", "2"]),
        ("ends", LOST),
    ],
)
def test_each_kind_has_its_outcome(kind: str, outcome: Outcome) -> None:
    """What belongs to the kind is right; the same with another value, another end, or nothing is wrong."""
    assert [] == verdict(kind, outcome).wrong({2: outcome})
    for other in (None, ["SUCCESS", 8], ["FAILURE", "ValueError", "1"], *([LOST] if kind != "ends" else [])):
        assert 1 == len(verdict(kind, other).wrong({2: other}))


def test_a_bystander_was_alone() -> None:
    """A good item may fail with its process when it was alone there as the plan killed it, and is counted."""
    assert [2] == verdict("good", LOST, alone=True).bystanders()
    assert [] == verdict("good", LOST, alone=True).wrong({2: LOST})
    assert [] == verdict("good", LOST).bystanders()


def test_long_lists_are_cut() -> None:
    """When all is lost, some of it says as much."""
    items = tuple(Item(number, 0.0, "good") for number in range(100))
    wrong = Verdict(Plan(1, items, ()), [Call(number) for number in range(100)], [], set()).wrong({})

    assert 21 == len(wrong)
    assert "and 80 more" == wrong[-1]


@pytest.mark.parametrize(
    ("times", "stall"),
    [
        ([], 0.0),
        ([(5.0, 4.0)], 1.0),
        ([(5.0, 4.0), (9.0, 4.5)], 4.0),
        ([(5.0, 4.0), (20.0, 19.0)], 1.0),
        ([(5.0, 4.0), (12.0, 6.0), (20.0, 19.0)], 6.0),
    ],
)
def test_a_stall_is_time_in_which_somebody_waits(times: list[tuple[float, float]], stall: float) -> None:
    """The time between two answers counts from when one of those not yet answered had sent his call."""
    assert stall == longest_stall(times)
