"""Finding the bad items of a batch that raised: halves, run again, until the bad ones stand alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from .outcomes import Outcome, Raised

__all__ = ["halves", "isolate", "outcomes_of"]

RowT = TypeVar("RowT")


def halves(rows: Sequence[RowT]) -> tuple[Sequence[RowT], Sequence[RowT]]:
    """Two parts of at least one row each, the first not longer than the second."""
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]


def isolate(
    rows: Sequence[RowT],
    error: Raised,
    run: Callable[[Sequence[RowT]], list[Outcome] | Raised],
) -> list[Outcome]:
    """Outcomes of a batch that raised ``error`` as a whole, in order.

    ``run`` gives the outcomes of some rows, or how it raised. One bad row among n costs at most
    2 * log2(n) + 1 runs: when the first half runs well the fault must lie in the second, which is
    halved at once instead of being run as it is. (Group testing by binary splitting, as in
    Hwang, 1972, with this inference.)
    """
    if len(rows) == 1:
        return [error]
    first, second = halves(rows)
    done = run(first)
    if isinstance(done, Raised):
        return isolate(first, done, run) + outcomes_of(second, run)
    if len(second) == 1:
        return done + outcomes_of(second, run)
    return done + isolate(second, error, run)


def outcomes_of(rows: Sequence[RowT], run: Callable[[Sequence[RowT]], list[Outcome] | Raised]) -> list[Outcome]:
    """Outcomes of rows that may raise as a whole, in order."""
    done = run(rows)
    return isolate(rows, done, run) if isinstance(done, Raised) else done
