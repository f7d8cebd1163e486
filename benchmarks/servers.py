"""The private Redis of the benchmarks, and what is looked at in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from example_project.local_redis import LocalRedis
from example_project.processes import ChildProcess

from .apps.common import QUEUE, STAGED

__all__ = ["Server"]

#: Seconds between two looks at how many answers are stored: this is how exact the time of a drain is.
POLL_S = 0.01

#: kombu's hash of messages that are delivered and not acknowledged.
UNACKED = "unacked"


class Server:
    """A Redis server: the queue in database 0, the answers in database 1.

    Attributes:
        url: without the number of a database.
    """

    def __init__(self, local: LocalRedis) -> None:
        self.url = local.url.rpartition("/")[0]
        self._broker: Any = redis.Redis.from_url(f"{self.url}/0")
        self._backend: Any = redis.Redis.from_url(f"{self.url}/1")

    def clear(self) -> None:
        """Forget everything, between two workers."""
        self._broker.flushall()

    def release(self) -> float:
        """Give the staged backlog to the workers, in one step, and return the moment."""
        self._backend.flushdb()  # the answers to earlier calls, so that those to come can be counted
        self._broker.rename(STAGED, QUEUE)
        return time.monotonic()

    def stored(self) -> int:
        """How many answers are stored."""
        return int(self._backend.dbsize())

    def wait_for_answers(
        self, items: int, worker: ChildProcess, patience: float, look: Callable[[int], None] = lambda _stored: None
    ) -> float:
        """Return the moment at which that many answers are stored.

        Args:
            items: how many.
            worker: who stores them.
            patience: seconds in which some more answer must come.
            look: called with the number so far at each look.

        Raises:
            ProcessDiedError: the worker ended meanwhile.
            TimeoutError: no answer came for too long.
        """
        before, since = -1, time.monotonic()
        while True:
            stored, now = self.stored(), time.monotonic()
            look(stored)
            if stored >= items:
                return now
            if stored != before:
                before, since = stored, now
            if now - since > patience:
                raise TimeoutError(f"{stored} of {items} answers, and no more for {patience:.0f} s")
            worker.check()
            time.sleep(POLL_S)

    def is_settled(self) -> bool:
        """Whether every message that was delivered is acknowledged."""
        return int(self._broker.hlen(UNACKED)) == 0

    def commands(self, seconds: float) -> int:
        """How many commands others send in that time; a script is one, whatever it does."""
        count, end = 0, time.monotonic() + seconds
        with self._broker.monitor() as monitor:
            while (left := end - time.monotonic()) > 0:
                if monitor.connection.can_read(timeout=left):
                    count += monitor.next_command()["client_type"] != "lua"
        return count

    def connections(self) -> int:
        """How many connections are open, ours included."""
        return int(self._broker.info("clients")["connected_clients"])

    def close(self) -> None:
        """Close our own connections."""
        self._broker.close()
        self._backend.close()
