"""Waiting for something to become true: the only place in the tests where time may pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_S", "NotInTimeError", "wait_until"]

Seen = TypeVar("Seen")

#: Seconds between two looks.
POLL_S = 0.02

#: Seconds to wait where a test does not say. Only a failing test takes them, and a busy machine may stand still.
PATIENCE_S = 30.0


class NotInTimeError(AssertionError):
    """What a test waits for has not come. Not one of pytest, which is slow to import: workers wait, too."""


def wait_until(
    predicate: Callable[[], Seen],
    description: str,
    timeout: float = PATIENCE_S,
    *,
    saw: Callable[[], object] | None = None,
) -> Seen:
    """Return the predicate's first true value, or raise NotInTimeError after `timeout` seconds with what was seen.

    What was seen is the predicate's last value, or what `saw` returns when that says more.
    """
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        if time.monotonic() >= deadline:
            last = saw() if saw else value
            raise NotInTimeError(f"{description}: not within {timeout:g} s; last seen: {last!r}")
        time.sleep(POLL_S)  # noqa: TID251 - the pause between two looks, not a guess at a duration
    return value
