"""Batch tasks whose model dies, does not fit into memory or takes too long, each for the items that say so."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from celery import Celery

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site

#: The most items in a batch.
SIZE = 64

#: Seconds: the limits of `limited`. Two runs that the soft one cuts short fit into nine tenths of the hard one, a third
#: one does not, and the second may end a second late.
SOFT_S, HARD_S = 1.5, 4.5

#: Ways in which a process ends from inside.
ENDS: dict[str, Callable[[], Any]] = {
    "exit": lambda: os._exit(3),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


class TooLarge(Exception):
    """A library's own out-of-memory error."""


def make_app(site: Site) -> Celery:
    """An app whose models double numbers."""
    app = site.celery("faulty")
    journal = Journal(site)

    def enter(task: BatchTask, xs: list[int]) -> None:
        journal.record("run", task=task.name, items=xs, pid=os.getpid())
        journal.pass_gate()

    def deadly(task: BatchTask, xs: list[int], how: str) -> list[int]:
        enter(task, xs)
        if min(xs) < 0:
            ENDS[how]()
        return [2 * x for x in xs]

    @app.task(base=BatchTask, bind=True, name="faulty.exits", max_batch_size=SIZE)
    def exits(self: BatchTask, xs: list[int]) -> list[int]:
        return deadly(self, xs, "exit")

    @app.task(base=BatchTask, bind=True, name="faulty.segfaults", max_batch_size=SIZE)
    def segfaults(self: BatchTask, xs: list[int]) -> list[int]:
        return deadly(self, xs, "segfault")

    @app.task(base=BatchTask, bind=True, name="faulty.is_killed", max_batch_size=SIZE)
    def is_killed(self: BatchTask, xs: list[int]) -> list[int]:
        return deadly(self, xs, "kill")

    def with_room_for(task: BatchTask, xs: list[int], most: int, error: BaseException) -> list[int]:
        """Items count as many times as their tens; the most that fit together are given."""
        enter(task, xs)
        if sum(1 + x // 10 for x in xs) > most:
            raise error
        return [2 * x for x in xs]

    @app.task(base=BatchTask, bind=True, name="faulty.tight", max_batch_size=8)
    def tight(self: BatchTask, xs: list[int]) -> list[int]:
        """Room for four."""
        return with_room_for(self, xs, 4, MemoryError("no room"))

    @app.task(base=BatchTask, bind=True, name="faulty.tight_elsewhere", max_batch_size=8, oom_errors=[TooLarge])
    def tight_elsewhere(self: BatchTask, xs: list[int]) -> list[int]:
        """Room for four, with an error that the declaration names."""
        return with_room_for(self, xs, 4, TooLarge("no room"))

    @app.task(base=BatchTask, bind=True, name="faulty.tight_gpu", max_batch_size=8)
    def tight_gpu(self: BatchTask, xs: list[int]) -> list[int]:
        """Room for four, with torch's error."""
        import torch  # noqa: PLC0415  the client has no need of it

        return with_room_for(self, xs, 4, torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate"))

    @app.task(
        base=BatchTask, bind=True, name="faulty.limited", max_batch_size=8, soft_time_limit=SOFT_S, time_limit=HARD_S
    )
    def limited(self: BatchTask, xs: list[int]) -> list[int]:
        """Never end where an item is below zero, but listen to the soft limit."""
        enter(self, xs)
        while min(xs) < 0:
            time.sleep(0.05)  # noqa: TID251 - the clock under test counts real seconds
        return [2 * x for x in xs]

    return app


app = make_app(Site.from_environ())
