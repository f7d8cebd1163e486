"""What has become of the calls of a chaos run: whether each is right, and the numbers for the summary."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.callers import Call, Outcome
from tests.chaos.plan import Item, Plan
from tests.support.apps.chaotic import answer

#: Wrong items that a failure lists.
SHOWN = 20


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
    runs: Sequence[Run]
    #: The pool processes that the plan has killed.
    killed: Collection[int]

    def wrong(self, outcomes: Mapping[int, Outcome | None]) -> list[str]:
        """The items whose outcome, as their callers got it or as the backend keeps it, is not theirs, in words.

        How often their runs began and ended tells a lost message from a lost result.
        """
        told = [
            f"{item}: {outcome}, runs begun {self._runs(item, 'begin')}, ended {self._runs(item, 'end')}"
            for item in self.plan.items
            if not self._is_right(item, outcome := outcomes.get(item.number))
        ]
        return [*told[:SHOWN], *([f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else [])]

    def got(self) -> dict[int, Outcome | None]:
        """What the callers got."""
        return {call.number: call.outcome for call in self.calls}

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
        times = [(call.answered, call.sent) for call in self.calls if call.answered and call.sent]
        return (
            f"seed {self.plan.seed}: events {sum(done.values())} ({counts(done)}), items {len(self.calls)},"
            f" results {len(times)}, errors {sum(errors.values())} ({counts(errors)}),"
            f" bystanders {len(self.bystanders())},"
            f" runs {sum(run.what == 'begin' for run in self.runs)}, begun again {times_again(self.runs, 'begin')},"
            f" duplicates {times_again(self.runs, 'end')},"
            f" longest stall {longest_stall(times):.1f} s,"
            f" longest wait {max((answered - sent for answered, sent in times), default=0.0):.1f} s"
        )

    def _runs(self, item: Item, what: str) -> int:
        return sum(item.number in run.items for run in self.runs if run.what == what)

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


def longest_stall(times: Sequence[tuple[float, float]]) -> float:
    """The longest time in which callers waited and none got an answer; `times`: when each was answered, and sent."""
    longest, waiting_since, until = 0.0, math.inf, math.inf
    for answered, sent in sorted(times, reverse=True):  # so that those still waiting then are known
        longest = max(longest, until - max(answered, waiting_since)) if until < math.inf else longest
        waiting_since, until = min(waiting_since, sent), answered
    return max(longest, until - waiting_since) if times else 0.0


def times_again(runs: Sequence[Run], what: str) -> int:
    """How often a run of an item began, or came to its end, that had done so before."""
    times = Counter(x for run in runs if run.what == what for x in run.items)
    return sum(times.values()) - len(times)


def counts(numbers: Mapping[str, int]) -> str:
    """How often each, in words."""
    return ", ".join(f"{name} {number}" for name, number in sorted(numbers.items())) or "none"
