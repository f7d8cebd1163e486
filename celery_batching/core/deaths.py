"""How many pool processes may die before the worker gives up: each costs a load of the model."""

from __future__ import annotations

from collections import deque

__all__ = ["Deaths"]

#: Processes that may die one after the other before any has finished its setup.
MOST_IN_SETUP = 3

WINDOW_S = 60.0


class Deaths:
    """Counts the deaths of pool processes, and says when it is enough.

    Args:
        most_in_a_minute: how many may die within 60 s, for whatever reason.
    """

    def __init__(self, most_in_a_minute: int) -> None:
        self._most_in_a_minute = most_in_a_minute
        self._recent: deque[float] = deque()
        self._in_setup = 0

    def came_up(self) -> None:
        """A process has finished its setup."""
        self._in_setup = 0

    def died(self, now: float, status: str, in_setup: bool) -> str | None:
        """A process has died; why the worker has to end, if it has to.

        Args:
            now: seconds of a monotonic clock.
            status: how the process ended, for people.
            in_setup: whether it had not finished its setup.
        """
        self._in_setup += in_setup
        self._recent.append(now)
        while self._recent[0] <= now - WINDOW_S:
            self._recent.popleft()
        if self._in_setup >= MOST_IN_SETUP:
            return f"{self._in_setup} pool processes in a row died during setup(), the last one by {status}"
        if len(self._recent) > self._most_in_a_minute:
            return (
                f"{len(self._recent)} pool processes died within {WINDOW_S:.0f} s, the last one by {status}; "
                f"batching_max_restarts_per_minute is {self._most_in_a_minute}"
            )
        return None
