"""Carries out a plan: does to the workers and to Redis what it says, and sees to it that there are always workers."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

import psutil
import pytest

from tests.chaos import wishes
from tests.chaos.plan import WORKERS, Event
from tests.support.redis_server import RedisServer
from tests.support.sites import LiveSite
from tests.support.waiting import NotInTimeError, wait_until
from tests.support.worker_process import START_S, WorkerProcess

#: Seconds that a worker is stopped by `pause`, and at most without Redis by `restart_redis`.
PAUSE_S, DOWN_S = 1.0, 1.0

#: Seconds for a worker to end after SIGTERM, with a batch that it searches.
END_S = 25.0

#: Characters of the log of a worker that has ended by itself, or does not end.
SHOWN_LOG = 8000


@dataclass
class Slot:
    """The place of a worker; when it has ended, the next one takes it."""

    worker: WorkerProcess
    #: When it was told to end, in seconds of the monotonic clock.
    leaving: float | None = None
    ready: bool = False

    @property
    def up(self) -> bool:
        """Whether it takes items."""
        self.ready = self.ready or " ready." in self.worker.log()
        return self.ready and self.leaving is None and self.worker.running


@dataclass
class Havoc:
    """Two workers at a site on a Redis of their own, and what has happened to them."""

    live: LiveSite
    redis: RedisServer
    start_worker: Callable[[], WorkerProcess]
    done: Counter[str] = field(default_factory=Counter)
    #: The pool processes that were killed alone.
    killed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start the workers."""
        self._slots = [Slot(self.start_worker()) for _ in range(WORKERS)]
        self.until(lambda: all(slot.up for slot in self._slots), "the workers are ready", START_S)

    def perform(self, event: Event, began: float) -> None:
        """Do it at its time, or as soon after as its worker is up, and the other one too when this one has to go."""
        self.until(lambda: time.monotonic() >= began + event.at, f"{event}", event.at + 1)
        slot = self._slots[event.worker]
        needed = {"restart_redis": [], "kill_worker": self._slots, "terminate": self._slots}.get(event.kind, [slot])
        self.until(lambda: all(one.up for one in needed), f"the workers are up for {event}", END_S + START_S)
        getattr(self, f"_{event.kind}")(slot, event)
        self.done[event.kind] += 1

    def until(self, condition: Callable[[], bool], description: str, timeout: float) -> None:
        """Wait for something, and replace meanwhile the workers that end."""

        def look() -> bool:
            for slot in self._slots:
                self._tend(slot)
            return condition()

        wait_until(look, description, timeout, saw=lambda: "\n".join(slot.worker.log()[-2000:] for slot in self._slots))

    def end(self) -> None:
        """End the workers as a deployment would; no process of theirs may stay behind."""
        for slot in self._slots:
            if slot.leaving is None:  # a second signal would meet a Python that has put its handlers away
                slot.worker.signal(signal.SIGTERM)
        for slot in self._slots:
            see_off(slot.worker)

    def _tend(self, slot: Slot) -> None:
        if slot.leaving is not None:
            if not slot.worker.running:
                see_off(slot.worker)
                self._replace(slot)
            elif time.monotonic() > slot.leaving + END_S:
                fail_as_stuck(slot.worker)
        elif not slot.worker.running:
            code, log = slot.worker.wait(), slot.worker.log()[-SHOWN_LOG:]
            if not wishes.REVIVE:
                pytest.fail(f"{slot.worker.node} has ended by itself with {code}\n{log}")
            self.done["ended_by_itself"] += 1
            self._replace(slot)

    def _replace(self, slot: Slot) -> None:
        slot.worker, slot.leaving, slot.ready = self.start_worker(), None, False

    def _kill_child(self, slot: Slot, event: Event) -> None:
        children = slot.worker.children()
        if children:  # else its process has just died, and the next is not there yet
            pid = children[int(event.share * len(children))]
            self.killed.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_worker(self, slot: Slot, event: Event) -> None:
        slot.worker.kill()
        self._replace(slot)

    def _terminate(self, slot: Slot, event: Event) -> None:
        slot.leaving = time.monotonic()
        slot.worker.signal(signal.SIGTERM)

    def _pause(self, slot: Slot, event: Event) -> None:
        slot.worker.signal(signal.SIGSTOP)
        try:
            self._pass(PAUSE_S)
        finally:
            slot.worker.signal(signal.SIGCONT)

    def _cut(self, slot: Slot, event: Event) -> None:
        ports = sorted(ports_of(slot.worker))
        some = random.Random(event.share).sample(ports, max(1, round(event.share * len(ports))))
        self.live.broker.drop_connections(some)
        self.live.backend.drop_connections(some)

    def _restart_redis(self, slot: Slot, event: Event) -> None:
        self.redis.stop()
        try:
            self._pass(event.share * DOWN_S)
        finally:
            self.redis.start()

    def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, "time passes", seconds + 1)


def ports_of(worker: WorkerProcess) -> set[int]:
    """The ports of the connections of a worker and its pool processes."""
    ports = set()
    for pid in (worker.pid, *worker.children()):
        with suppress(psutil.NoSuchProcess):
            ports |= {one.laddr.port for one in psutil.Process(pid).net_connections("tcp")}
    return ports


def see_off(worker: WorkerProcess) -> None:
    """A worker was told to end: it ends with 0, and so do the processes of its session."""
    try:
        wait_until(lambda: not worker.running, f"{worker.node} ends", END_S)
    except NotInTimeError:
        fail_as_stuck(worker)
    wait_until(lambda: not others_in_session(worker.pid), f"no process of {worker.node} stays behind", 5.0)
    code = worker.wait()
    assert 0 == code, f"{worker.node} ended with {code}\n{worker.log()[-SHOWN_LOG:]}"


def fail_as_stuck(worker: WorkerProcess) -> NoReturn:
    """Say where a worker stands that does not end: on SIGUSR1 Celery logs the stacks of its threads."""
    before = len(worker.log())
    worker.signal(signal.SIGUSR1)
    with suppress(NotInTimeError):
        wait_until(lambda: "MainThread" in worker.log()[before:], "the stacks", 5.0)
    pytest.fail(f"{worker.node} does not end after SIGTERM\n{worker.log()[-SHOWN_LOG:]}")


def others_in_session(leader: int) -> list[int]:
    """The processes in the session of a worker but itself, by their ids."""
    found = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if pid != leader and os.getsid(pid) == leader:
                found.append(pid)
    return found
