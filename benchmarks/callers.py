"""Threads of a client process that call a task and wait for the answers, in a closed or an open loop.

Standard library only, for the environments of all systems.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .payload import answer, payload

__all__ = ["RAMP_S", "Callers", "poisson"]

#: Seconds for which a caller waits for one answer.
ANSWER_S = 60.0

#: Seconds of load before the part that is measured, which starts in the stride of the system.
RAMP_S = 0.5

#: How many errors are told one by one.
SHOWN = 3


def poisson(rate: float, seed: int) -> Iterator[float]:
    """The moments, in seconds from the begin, of calls that come by chance, ``rate`` of them per second."""
    chance = random.Random(seed)
    return itertools.accumulate(chance.expovariate(rate) for _ in itertools.count())


class Callers:
    """Threads that each make a call, wait for its answer, and make the next.

    Args:
        task: what they call.
        number: of threads.
        seconds: for how long calls are made after the ramp.
        arrivals: the moments at which calls are due, from the begin; without them each caller
            makes its next call when it has the answer to the last (a closed loop).
    """

    def __init__(self, task: Any, number: int, seconds: float, arrivals: Iterator[float] | None = None) -> None:
        self._task = task
        self._arrivals = arrivals
        self._seconds = RAMP_S + seconds
        self._indexes = itertools.count()
        self._lock = threading.Lock()
        self._connected = threading.Barrier(number + 1)
        self._go = threading.Event()
        self._start = 0.0
        self._threads = [threading.Thread(target=self._caller, daemon=True) for _ in range(number)]
        self._calls: list[tuple[float, float]] = []
        self._wrong = 0
        self._errors: list[str] = []

    def connect(self) -> None:
        """Let each thread make one call, so that no measured call pays for its connections."""
        for thread in self._threads:
            thread.start()
        self._connected.wait()

    def call(self, start: float) -> dict[str, Any]:
        """Make calls from that moment on, and return what came of them.

        Returns:
            The moments at which each call was due and answered, the CPU of this process while the
            measured part lasted, how many answers were wrong, and the first errors.
        """
        self._start = start
        _sleep_until(start)
        self._go.set()
        _sleep_until(start + RAMP_S)
        before = time.process_time()
        _sleep_until(start + self._seconds)
        cpu_s = time.process_time() - before
        for thread in self._threads:
            thread.join()
        return {"calls": self._calls, "cpu_s": cpu_s, "wrong": self._wrong, "errors": self._errors[:SHOWN]}

    def _caller(self) -> None:
        self._ask()
        self._connected.wait()
        self._go.wait()
        next_due: Callable[[], float] = time.monotonic if self._arrivals is None else self._next_arrival
        while (due := next_due()) < self._start + self._seconds:
            _sleep_until(due)
            self._ask()
            self._calls.append((due, time.monotonic()))

    def _next_arrival(self) -> float:
        # A call counts from when it was due: where all callers are busy, its wait for one is part of its time.
        assert self._arrivals is not None
        with self._lock:
            return self._start + next(self._arrivals)

    def _ask(self) -> None:
        text = payload(next(self._indexes))
        try:
            if self._task.delay(text).get(timeout=ANSWER_S) == answer(text):
                return
        except Exception as error:  # whatever it was, this caller has no answer
            self._errors.append(repr(error))
        with self._lock:
            self._wrong += 1


def _sleep_until(moment: float) -> None:
    rest = moment - time.monotonic()
    if rest > 0:
        time.sleep(rest)
