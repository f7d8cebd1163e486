"""What the environment wishes of the chaos tests; without wishes they are short."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

#: CHAOS_SEEDS: so many seeds, from 1 on; or with a comma these ones, as in `3,7` or `7,`.
_seeds = os.environ.get("CHAOS_SEEDS") or "1"
SEEDS = [int(seed) for seed in _seeds.split(",") if seed] if "," in _seeds else list(range(1, int(_seeds) + 1))

#: CHAOS_ITEMS: items for each seed.
ITEMS = int(os.environ.get("CHAOS_ITEMS") or 300)

#: CHAOS_ROUNDS: how often the worker is sent a SIGTERM.
ROUNDS = int(os.environ.get("CHAOS_ROUNDS") or 5)

#: CHAOS_POOL: prefork, or threads, whose workers have no process to lose.
POOL = os.environ.get("CHAOS_POOL") or "prefork"

#: CHAOS_WITHOUT: kinds of events that are left out, with commas.
WITHOUT = [kind for kind in (os.environ.get("CHAOS_WITHOUT") or "").split(",") if kind]

#: CHAOS_REVIVE: a worker that ends by itself is counted and replaced, instead of being a failure.
REVIVE = bool(os.environ.get("CHAOS_REVIVE"))


@contextmanager
def repeatable(seed: int, test: str, done: Mapping[str, int]) -> Iterator[None]:
    """Let the failure of a test say after what it came, and how it is run again."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        events = ", ".join(f"{kind} {count}" for kind, count in sorted(done.items())) or "nothing"
        pytest.fail(f"seed {seed}, after {events}: {error}\nTo run it again: {again(seed, test)}")


def again(seed: int, test: str) -> str:
    """The command that runs one test with one seed again."""
    wished = {
        "CHAOS_SEEDS": f"{seed},",
        "CHAOS_ITEMS": ITEMS,
        "CHAOS_ROUNDS": ROUNDS,
        "CHAOS_POOL": POOL,
        "CHAOS_WITHOUT": ",".join(WITHOUT),
        "CHAOS_REVIVE": "1" if REVIVE else "",
    }
    return " ".join(
        [f"{name}={value}" for name, value in wished.items() if value] + [f"make chaos PYTEST_ARGS=-k{test}"]
    )
