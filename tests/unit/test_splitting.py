"""core/splitting: bad items of a batch end up alone, and the search stays within its bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_batching.core.outcomes import Outcome, Raised, Returned
from celery_batching.core.splitting import halves, isolate


class Model:
    """Runs rows of numbers; raises when a bad one is among them, or too many at once."""

    def __init__(self, bad: set[int], most: int | None = None) -> None:
        self.bad = bad
        self.most = most
        self.runs: list[list[int]] = []

    def run(self, rows: Sequence[int]) -> list[Outcome] | Raised:
        self.runs.append(list(rows))
        guilty = sorted(self.bad.intersection(rows))
        if guilty:
            return Raised(ValueError(guilty[0]))
        if self.most is not None and len(rows) > self.most:
            return Raised(MemoryError(len(rows)))
        return [Returned(row * 2) for row in rows]


def isolated(model: Model, size: int) -> list[Outcome]:
    rows = list(range(size))
    whole = model.run(rows)
    assert isinstance(whole, Raised)
    return isolate(rows, whole, model.run)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
def test_one_bad_item_costs_at_most_twice_the_logarithm(case: tuple[int, int]) -> None:
    """A batch of n with one bad item costs at most 2 * log2(n) + 1 further runs."""
    size, bad = case
    model = Model({bad})

    isolated(model, size)

    assert len(model.runs) - 1 <= 2 * math.log2(size) + 1


@given(st.integers(1, 80).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_every_good_item_succeeds_and_every_bad_one_has_its_own_error(case: tuple[int, set[int]]) -> None:
    """Whatever the bad items are, each fails with the error it raised alone, and no other fails."""
    size, bad = case
    model = Model(bad)

    outcomes = isolated(model, size)

    assert size == len(outcomes)
    for row, outcome in enumerate(outcomes):
        if row in bad:
            assert isinstance(outcome, Raised)
            assert (row,) == outcome.error.args
        else:
            assert Returned(row * 2) == outcome


@given(st.integers(2, 64), st.integers(1, 8))
def test_a_batch_that_is_merely_too_large_succeeds_in_parts(size: int, most: int) -> None:
    """When only the size was at fault every item succeeds, although one half was taken for bad."""
    if size <= most:
        return
    model = Model(set(), most)

    outcomes = isolated(model, size)

    assert [Returned(row * 2) for row in range(size)] == outcomes


@pytest.mark.parametrize("size", [2, 3, 5, 64])
def test_halves_are_never_empty(size: int) -> None:
    """Both halves hold something, the first not more than the second, in order."""
    first, second = halves(range(size))

    assert list(range(size)) == [*first, *second]
    assert 1 <= len(first) <= len(second)
