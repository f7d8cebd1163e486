"""The parts of a batch that run again: which item killed the pool process is found by halving, within a bound."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Generic, TypeVar

from .splitting import halves

__all__ = ["Part", "Search", "restart_bound"]

RowT = TypeVar("RowT")


def restart_bound(size: int) -> int:
    """How many pool processes one batch of ``size`` items may cost.

    One killer costs at most log2(size) + 1 of them; there is room for a second one, and for deaths
    from outside in between.
    """
    return 2 * math.ceil(math.log2(size)) + 2


@dataclasses.dataclass(eq=False, slots=True)
class Search:
    """What all parts of one batch have cost so far.

    Attributes:
        bound: pool processes that may be lost on account of the batch.
        restarts: those that were.
    """

    bound: int
    restarts: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether whatever is not cleared by now has to fail."""
        return self.restarts >= self.bound


@dataclasses.dataclass(eq=False, slots=True)
class Part(Generic[RowT]):
    """Some items of a batch that run together.

    Attributes:
        rows: the items.
        search: shared by all parts of the batch.
        sibling: the other half of a part that was lost, on the first half: when this one is
            cleared, that one holds the killer.
    """

    rows: Sequence[RowT]
    search: Search
    sibling: Part[RowT] | None = None

    @classmethod
    def whole(cls, rows: Sequence[RowT]) -> Part[RowT]:
        """A batch as it is formed."""
        return cls(rows, Search(restart_bound(len(rows))))

    def again(self, rows: Sequence[RowT]) -> Part[RowT]:
        """Some of the rows, to be run again together."""
        return Part(rows, self.search)

    def halves(self, rows: Sequence[RowT] | None = None) -> list[Part[RowT]]:
        """The two halves of the rows (or of some of them), the first knowing the second."""
        first, second = halves(self.rows if rows is None else rows)
        other = Part(second, self.search)
        return [Part(first, self.search, other), other]
