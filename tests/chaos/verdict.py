"""What has become of the calls of a chaos run: whether each is right, and the numbers for the summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.chaos.callers import Call, Outcome
from tests.chaos.plan import Item, Plan
from tests.support.apps.chaotic import answer


@dataclass(frozen=True)
class Run:
    """What a pool process has noted: a run of these items begins or ends."""

    what: str
    pid: int
    items: list[int]


@dataclass(frozen=True)
class Verdict:
    """A run of the plan, looked back on."""

    plan: Plan
    calls: Sequence[Call]
    #: What the result backend said after everything.
    kept: Mapping[int, Outcome]
    runs: Sequence[Run]
    #: The pool processes that the plan has killed.
    killed: Collection[int]

    def wrong(self) -> list[str]:
        """The calls whose caller or whose kept result has not what belongs to the item, in words."""
        told = [
            f"{item}: its caller got {call.outcome}, the backend has {self.kept.get(item.number)}"
            for item, call in zip(self.plan.items, self.calls, strict=True)
            if not (self._is_right(item, call.outcome) and self._is_right(item, self.kept.get(item.number)))
        ]
        return [*told[:20], *([f"and {len(told) - 20} more"] if len(told) > 20 else [])]

    def bystanders(self) -> list[int]:
        """The good items that failed since they were alone in a process that was killed from outside."""
        return [
            item.number
            for item, call in zip(self.plan.items, self.calls, strict=True)
            if item.kind != "ends" and is_lost(call.outcome) and item.number in self._killed_alone()
        ]

    def summary(self, done: Mapping[str, int]) -> str:
        """One line: events by kind, items, results, errors by kind, runs, duplicates, longest stall and wait."""
        errors = Counter(call.outcome[1] for call in self.calls if call.outcome and call.outcome[0] != "SUCCESS")
        answered = sorted(call.answered for call in self.calls if call.answered)
        waits = [call.answered - call.sent for call in self.calls if call.answered and call.sent]
        return (
            f"seed {self.plan.seed}: events {sum(done.values())} ({counts(done)}), items {len(self.calls)},"
            f" results {len(answered)}, errors {sum(errors.values())} ({counts(errors)}),"
            f" bystanders {len(self.bystanders())},"
            f" runs {sum(run.what == 'begin' for run in self.runs)}, begun again {times_again(self.runs, 'begin')},"
            f" duplicates {times_again(self.runs, 'end')},"
            f" longest stall {max((b - a for a, b in pairwise(answered)), default=0.0):.1f} s,"
            f" longest wait {max(waits, default=0.0):.1f} s"
        )

    def _is_right(self, item: Item, outcome: Outcome | None) -> bool:
        if item.kind == "ends":
            return is_lost(outcome)
        # An item that is alone in a process that dies is taken for the one that ends it:
        # nobody can tell whether the kernel killed it for its memory, or a person by hand.
        return outcome == right_outcome(item) or (is_lost(outcome) and item.number in self._killed_alone())

    def _killed_alone(self) -> set[int]:
        last = {run.pid: run.items for run in self.runs if run.pid in self.killed}
        return {items[0] for items in last.values() if len(items) == 1}


def right_outcome(item: Item) -> Outcome:
    """What the caller of an item gets that does not end its process."""
    if item.kind == "raises":
        return ["FAILURE", "ValueError", str(item.number)]
    if item.kind == "entry":
        return ["FAILURE", "LookupError", str(item.number)]
    return ["SUCCESS", answer(item.number)]


def is_lost(outcome: Outcome | None) -> bool:
    """Whether an item has failed with the end of its process."""
    return bool(outcome) and outcome[:2] == ["FAILURE", "WorkerLostError"]


def read_runs(folder: Path) -> list[Run]:
    """The notes of all processes, those of each in order."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines())
    return [Run(**json.loads(line)) for line in lines]


def times_again(runs: Sequence[Run], what: str) -> int:
    """How often a run of an item began, or came to its end, that had done so before."""
    times = Counter(x for run in runs if run.what == what for x in run.items)
    return sum(times.values()) - len(times)


def counts(numbers: Mapping[str, int]) -> str:
    """How often each, in words."""
    return ", ".join(f"{name} {number}" for name, number in sorted(numbers.items())) or "none"
