"""core/parts: items that end their process end up alone, and one batch costs a bounded number of processes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from celery_batching.consumer.reruns import Reruns
from celery_batching.core.parts import Part, restart_bound


class Pool:
    """Runs parts until none is left; a process dies when a killer is among the rows."""

    def __init__(self, size: int, killers: set[int], deaths_from_outside: set[int] = frozenset()) -> None:
        self.killers, self.deaths_from_outside = killers, deaths_from_outside
        self.cleared: list[int] = []
        self.failed: list[int] = []
        self.given_up: list[int] = []
        self.runs = self.restarts = 0
        self.reruns = Reruns()
        self.reruns.add([Part.whole(list(range(size)))])
        while (part := self.reruns.pop()) is not None:
            self.run(part)

    def run(self, part: Part[int]) -> None:
        self.runs += 1
        if not self.killers.intersection(part.rows) and self.runs not in self.deaths_from_outside:
            self.cleared += part.rows
            self.reruns.accuse(part.sibling)
            return
        self.restarts += 1
        part.search.restarts += 1
        if len(part.rows) == 1:
            self.failed += part.rows
        elif part.search.exhausted:
            self.given_up += part.rows
        else:
            self.reruns.add(part.halves())
        if part.search.exhausted:
            while (left := self.reruns.pop()) is not None:
                self.given_up += left.rows


@given(st.integers(2, 300).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))))
def test_one_killer_fails_alone(case: tuple[int, int]) -> None:
    """Whatever its place, it alone fails, for at most log2(n) + 1 processes (rounded up)."""
    size, killer = case
    pool = Pool(size, {killer})

    assert [killer] == pool.failed
    assert sorted(pool.cleared) == [one for one in range(size) if one != killer]
    assert [] == pool.given_up
    assert pool.restarts <= math.ceil(math.log2(size)) + 1


@given(st.integers(2, 64).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1)))))
def test_no_row_is_lost_or_blamed_for_another(case: tuple[int, set[int]]) -> None:
    """Every row is cleared, fails, or is given up; only killers fail; the bound holds."""
    size, killers = case
    pool = Pool(size, killers)

    assert list(range(size)) == sorted(pool.cleared + pool.failed + pool.given_up)
    assert set(pool.failed) <= killers
    assert not killers.intersection(pool.cleared)
    assert pool.restarts <= restart_bound(size)
    assert not pool.given_up or len(killers) > 1


@given(st.integers(2, 64).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1), max_size=2))))
def test_two_killers_among_many_are_found(case: tuple[int, set[int]]) -> None:
    """The bound leaves room for two."""
    size, killers = case
    pool = Pool(size, killers)

    assert killers == set(pool.failed)
    assert [] == pool.given_up


@given(st.integers(2, 64), st.integers(1, 2))
def test_a_death_from_outside_harms_nobody(size: int, run: int) -> None:
    """A process killed in a batch without a killer costs nobody a result, unless an item ran alone."""
    pool = Pool(size, set(), {run})

    assert size == len(pool.cleared) + len(pool.failed)
    assert [] == pool.failed or size == 2


def test_the_bound_is_the_designs() -> None:
    """2 log2(n) + 2 processes (DESIGN, section 5)."""
    assert [2, 4, 8, 12, 14] == [restart_bound(size) for size in (1, 2, 8, 32, 64)]
