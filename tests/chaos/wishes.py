"""What the environment wishes of the chaos tests; without wishes they are short."""

from __future__ import annotations

import os

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


def again(seed: int) -> str:
    """The command that runs one seed again."""
    same = {"CHAOS_POOL": POOL, "CHAOS_WITHOUT": ",".join(WITHOUT), "CHAOS_REVIVE": "1" if REVIVE else ""}
    wishes = {"CHAOS_SEEDS": f"{seed},", "CHAOS_ITEMS": str(ITEMS), **{k: v for k, v in same.items() if v}}
    return " ".join([*(f"{name}={value}" for name, value in wishes.items()), "make chaos PYTEST_ARGS=-ktest_chaos"])
