"""A backlog that a warm worker gets in one step, and how long it takes to answer it all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .clients import run_client
from .place import Place
from .results import Turn
from .systems import System
from .worker import Worker

__all__ = ["Drained", "drain"]

#: Seconds without any new answer after which a worker is taken for stuck.
PATIENCE_S = 60.0

#: Seconds for the last acknowledgements after the last answer.
SETTLE_S = 5.0

#: Seconds between two looks at them.
POLL_S = 0.05


@dataclass(frozen=True)
class Drained:
    """How a backlog went.

    Attributes:
        begin: when the workers got it, on the monotonic clock.
        end: when the last answer was stored.
        cpu_s: seconds of CPU of all workers, until the last message was acknowledged.
    """

    begin: float
    end: float
    cpu_s: float


def drain(
    turn: Turn,
    system: System,
    place: Place,
    workers: Sequence[Worker],
    items: int,
    look: Callable[[int], None] = lambda _stored: None,
) -> Drained:
    """Give the workers that many items at once, wait for all answers and check them."""
    run_client(system, place, "send", f"--items={items}", watched=workers)
    cpu_s = _cpu_s(workers)
    begin = place.server.release()
    end = place.server.wait_for_answers(items, workers[0], PATIENCE_S, look)
    while not place.server.is_settled() and time.monotonic() < end + SETTLE_S:
        time.sleep(POLL_S)
    drained = Drained(begin, end, _cpu_s(workers) - cpu_s)
    turn.add_wrong(run_client(system, place, "check", f"--items={items}", watched=workers)["wrong"])
    return drained


def _cpu_s(workers: Sequence[Worker]) -> float:
    return sum(worker.cpu_s() for worker in workers)
