"""What was measured: single values of every round, and their medians."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Results", "Row", "Sample", "Turn", "median", "percentile"]


@dataclass(frozen=True)
class Row:
    """Which number: of a scenario, at a point of it (as "64 callers"), with its unit."""

    scenario: str
    point: str
    metric: str


@dataclass(frozen=True)
class Sample:
    """One number of one system in one round."""

    row: Row
    system: str
    round: int
    value: float


@dataclass
class Turn:
    """One system's turn at a scenario in one round; what it measures goes here.

    Attributes:
        scenario: the scenario's name.
        system: the system's name.
        round: counted from 1.
        samples: what was measured.
        wrong: how many answers were wrong or missing.
        notes: errors, in words.
    """

    scenario: str
    system: str
    round: int
    samples: list[Sample] = field(default_factory=list)
    wrong: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, point: str, metric: str, value: float) -> None:
        """Keep one number; what is no number (a median of nothing) is left out."""
        if math.isfinite(value):
            self.samples.append(Sample(Row(self.scenario, point, metric), self.system, self.round, value))

    def add_wrong(self, wrong: int, errors: Sequence[str] = ()) -> None:
        """Keep how many answers were wrong, and what was raised."""
        self.wrong += wrong
        self.notes.extend(errors)


@dataclass
class Results:
    """All turns."""

    turns: list[Turn] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """How many answers were wrong or missing."""
        return sum(turn.wrong for turn in self.turns)

    @property
    def notes(self) -> list[str]:
        """All errors, with where they came from."""
        return [
            f"{turn.system}, {turn.scenario}, round {turn.round}: {note}" for turn in self.turns for note in turn.notes
        ]

    def rows(self) -> list[Row]:
        """Which numbers there are, in the order in which they were first measured."""
        return list(dict.fromkeys(sample.row for turn in self.turns for sample in turn.samples))

    def median(self, row: Row, system: str) -> float | None:
        """The median over the rounds; None where there is nothing."""
        values = [
            sample.value
            for turn in self.turns
            for sample in turn.samples
            if (sample.row, sample.system) == (row, system)
        ]
        return statistics.median(values) if values else None

    def as_json(self) -> list[dict[str, Any]]:
        """Every single value."""
        return [
            {**asdict(sample.row), "system": sample.system, "round": sample.round, "value": sample.value}
            for turn in self.turns
            for sample in turn.samples
        ]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that this share of the values does not exceed; nan of none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def median(values: Sequence[float]) -> float:
    """The median; nan of none."""
    return statistics.median(values) if values else math.nan
