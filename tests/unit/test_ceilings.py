"""core/ceilings: batches shrink to what fits, and grow back slowly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from celery_batching.core.ceilings import PATIENCE, Ceilings


class Memory:
    """Runs batches of one key, each as large as the ceiling allows; more than `room` items do not fit."""

    def __init__(self, room: int, most: int) -> None:
        self.room, self.most = room, most
        self.ceilings = Ceilings()
        self.sizes: list[int] = []

    def run(self, batches: int) -> None:
        for _ in range(batches):
            size = self.ceilings.cap("key", self.most)
            self.sizes.append(size)
            if size <= self.room:
                self.ceilings.did_fit("key", size, self.most)
            else:
                fitted = size
                while fitted > self.room:
                    fitted -= fitted // 2
                self.ceilings.did_not_fit("key", size, fitted)

    @property
    def failures(self) -> int:
        return sum(size > self.room for size in self.sizes)


def test_without_trouble_there_is_no_ceiling() -> None:
    """The option alone bounds the batches."""
    memory = Memory(room=100, most=32)
    memory.run(100)

    assert {32} == set(memory.sizes)


@given(st.integers(1, 64), st.integers(1, 64))
def test_batches_settle_below_what_fits(room: int, most: int) -> None:
    """Never above the option; and of a thousand batches few do not fit."""
    memory = Memory(room, most)
    memory.run(1000)

    assert max(memory.sizes) <= most
    assert memory.failures <= 12
    assert memory.sizes[-1] >= min(room, most) // 2


def test_growing_stops_at_what_fits() -> None:
    """A try of one more that does not fit goes back to the proven size, and the next waits longer."""
    memory = Memory(room=4, most=8)
    memory.run(1 + PATIENCE + 1 + 2 * PATIENCE + 1)

    assert [8, *[4] * PATIENCE, 5, *[4] * 2 * PATIENCE, 5] == memory.sizes


def test_the_ceiling_goes_when_the_trouble_does() -> None:
    """With room again, the full size comes back step by step and nothing is remembered."""
    memory = Memory(room=4, most=8)
    memory.run(1)
    memory.room = 100
    memory.run(5 * PATIENCE)

    assert sorted(memory.sizes[1:]) == memory.sizes[1:]
    assert 8 == memory.sizes[-1]
    assert 16 == memory.ceilings.cap("key", 16)


def test_keys_have_ceilings_of_their_own() -> None:
    """What does not fit for one key says nothing about another."""
    ceilings = Ceilings()
    ceilings.did_not_fit("large", 32, 4)

    assert [4, 32] == [ceilings.cap(key, 32) for key in ("large", "small")]


def test_smaller_batches_prove_nothing() -> None:
    """Only full batches count towards growing."""
    ceilings = Ceilings()
    ceilings.did_not_fit("key", 32, 4)
    for _ in range(10 * PATIENCE):
        ceilings.did_fit("key", 3, 32)

    assert 4 == ceilings.cap("key", 32)
