"""The plan of one chaos run: which items are sent when, and what is done to the workers and to Redis; from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: The kinds of items that are not good, and which part of all items each is; there is at least one of each.
#: `raises`: fails the whole batch it is in; `ends`: ends its process; `entry`: fails alone; `slow`: takes long.
PARTS = {"raises": 0.015, "ends": 0.006, "entry": 0.02, "slow": 0.02}

#: What is done: `kill_child` and `kill_worker` with SIGKILL, `terminate` with SIGTERM, `pause` with SIGSTOP for a
#: moment; `cut` ends some of a worker's connections to Redis, `restart_redis` kills it and starts it with what it kept.
EVENTS = ("kill_child", "kill_worker", "terminate", "pause", "cut", "restart_redis")

#: Workers that take the items.
WORKERS = 2

#: Items sent in a second, on the average; the most that are sent at the same moment.
RATE, MOST_AT_ONCE = 25.0, 40

#: Items for each event; seconds at least between two events.
ITEMS_PER_EVENT, APART_S = 40, 0.5


@dataclass(frozen=True)
class Item:
    """One call: sent so many seconds after the beginning."""

    number: int
    at: float
    kind: str


@dataclass(frozen=True)
class Event:
    """One thing that is done, so many seconds after the beginning or as soon after as it can be.

    `share`, from 0 to 1, says which one or how many: of the children, of the connections, of a second.
    """

    at: float
    kind: str
    worker: int
    share: float


@dataclass(frozen=True)
class Plan:
    """What happens in a run."""

    seed: int
    items: tuple[Item, ...]
    events: tuple[Event, ...]


def make_plan(seed: int, count: int, *, kinds: tuple[str, ...] = EVENTS, deadly: bool = True) -> Plan:
    """The plan of a seed with so many items and these kinds of events, each at least once.

    Without `deadly` items where they would end a whole worker, again and again.
    """
    chance = random.Random(seed)
    duration = count / RATE
    items = tuple(map(Item, range(count), moments(chance, count, duration), kinds_of(chance, count, deadly=deadly)))
    return Plan(seed, items, tuple(events(chance, max(len(kinds), count // ITEMS_PER_EVENT), duration, kinds)))


def moments(chance: random.Random, count: int, duration: float) -> list[float]:
    """When the items are sent: in groups of all sizes, so that there are full batches and lone items."""
    times: list[float] = []
    while len(times) < count:
        together = min(chance.randint(1, MOST_AT_ONCE), count - len(times))
        times += [chance.uniform(0, duration)] * together
    return sorted(times)


def kinds_of(chance: random.Random, count: int, *, deadly: bool) -> list[str]:
    """The kinds of the items, in order."""
    parts = {kind: part for kind, part in PARTS.items() if deadly or kind != "ends"}
    kinds = [kind for kind, part in parts.items() for _ in range(max(1, round(count * part)))]
    kinds += ["good"] * (count - len(kinds))
    chance.shuffle(kinds)
    return kinds


def events(chance: random.Random, count: int, duration: float, kinds: tuple[str, ...]) -> list[Event]:
    """So many events, in order, `APART_S` apart at least."""
    chosen = [*kinds, *chance.choices(kinds, k=count - len(kinds))]
    chance.shuffle(chosen)
    free = duration - APART_S * count
    times = [APART_S * (n + 1) + time for n, time in enumerate(sorted(chance.uniform(0, free) for _ in chosen))]
    return [
        Event(time, kind, chance.randrange(WORKERS), chance.random()) for time, kind in zip(times, chosen, strict=True)
    ]
