"""The journal: what happens in a worker, told to the test; and gates, where the model waits for the test.

A task (or signal handler) in the worker writes `journal.record("run", items=[...])` and
stops at `journal.pass_gate()`. The test closes the gate, sees in the entries that the model
is busy, sends what it likes meanwhile, and opens the gate: no sleep on either side.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from tests.support.site import Site
from tests.support.waiting import PATIENCE_S, wait_until

#: Seconds between two looks of a worker at a closed gate.
LOOK_S = 0.05

#: Seconds after which a worker gives up on a gate that nobody opens.
GATE_TIMEOUT_S = 100.0


@dataclass(frozen=True)
class Entry:
    """One thing that happened in a worker."""

    event: str
    #: The process it happened in.
    pid: int
    #: Seconds on the machine's monotonic clock, which all its processes share.
    at: float
    facts: dict[str, Any]

    def __getitem__(self, fact: str) -> Any:
        """A fact by its name: `entry["items"]`."""
        return self.facts[fact]


class Journal:
    """A list of entries and some gates in Redis, under names that only this site uses."""

    def __init__(self, site: Site) -> None:
        """Open the journal of a site, from the worker or from the test."""
        self._redis = redis.Redis.from_url(site.journal_url, decode_responses=True)
        self._prefix = f"journal:{site.queue}"

    # The worker's side

    def record(self, event: str, **facts: Any) -> None:
        """Write down what happened; the facts must be JSON."""
        entry = {"event": event, "pid": os.getpid(), "at": time.monotonic(), "facts": facts}
        self._redis.rpush(self._prefix, json.dumps(entry))

    def pass_gate(self, gate: str = "model") -> None:
        """Go on when the gate is open, or with one of the tickets that the test hands out."""
        deadline = time.monotonic() + GATE_TIMEOUT_S
        # Nothing is counted here: a worker that is killed while it waits leaves no trace.
        while self._redis.exists(self._closed(gate)):
            if self._redis.blpop([self._tickets(gate)], timeout=LOOK_S):
                return
            if time.monotonic() > deadline:
                message = f"nobody opened the gate {gate!r} within {GATE_TIMEOUT_S:g} s"
                raise TimeoutError(message)

    # The test's side

    def entries(self, event: str | None = None) -> list[Entry]:
        """What has happened so far, in order: all of it, or one kind."""
        entries = [Entry(**json.loads(line)) for line in self._redis.lrange(self._prefix, 0, -1)]
        return [entry for entry in entries if event in (None, entry.event)]

    def wait_for(self, event: str, count: int = 1, timeout: float = PATIENCE_S) -> list[Entry]:
        """The entries of one kind, as soon as there are `count` of them."""
        wait_until(
            lambda: len(self.entries(event)) >= count,
            f"{count} times {event!r} in the journal",
            timeout,
            saw=self.entries,
        )
        return self.entries(event)

    def close_gate(self, gate: str = "model") -> None:
        """Whoever comes to the gate from now on waits."""
        self._redis.delete(self._tickets(gate))
        self._redis.set(self._closed(gate), "closed")

    def open_gate(self, gate: str = "model") -> None:
        """Everybody goes on."""
        self._redis.delete(self._closed(gate), self._tickets(gate))

    def let_through(self, count: int = 1, gate: str = "model") -> None:
        """So many go on, now or when they come; the gate stays closed to the others."""
        self._redis.rpush(self._tickets(gate), *["ticket"] * count)

    @contextmanager
    def closed_gate(self, gate: str = "model") -> Iterator[None]:
        """Keep the gate closed for the length of a `with` block."""
        self.close_gate(gate)
        try:
            yield
        finally:
            self.open_gate(gate)

    def reset(self) -> None:
        """Open all gates and forget all entries."""
        if keys := list(self._redis.scan_iter(f"{self._prefix}*")):
            self._redis.delete(*keys)

    def close(self) -> None:
        """Leave nothing behind."""
        self.reset()
        self._redis.close()

    def _closed(self, gate: str) -> str:
        return f"{self._prefix}:gate:{gate}"

    def _tickets(self, gate: str) -> str:
        return f"{self._prefix}:tickets:{gate}"
