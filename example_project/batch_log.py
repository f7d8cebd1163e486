"""The batches a worker has run, read from its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LoggedBatch", "mean_size", "read_batches"]

_LINE = re.compile(r"Batch (?P<task>\S+) size=(?P<size>\d+) reason=(?P<reason>\S+) ")


@dataclass(frozen=True)
class LoggedBatch:
    """One ``Batch ...`` line: how many items ran together, and why the batch left when it did."""

    size: int
    reason: str


def read_batches(log: str, task: str) -> list[LoggedBatch]:
    """The batches of the task of that name, in the order in which they ran."""
    return [LoggedBatch(int(match["size"]), match["reason"]) for match in _LINE.finditer(log) if match["task"] == task]


def mean_size(batches: Sequence[LoggedBatch]) -> float:
    """Items per batch, 0.0 where there was none."""
    return sum(batch.size for batch in batches) / len(batches) if batches else 0.0
