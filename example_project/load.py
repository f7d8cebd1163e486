"""Concurrent callers of a task, and what they saw: times, and answers to be compared."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from example_project import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["TOLERANCE", "Answer", "Load", "call_concurrently"]

#: An answer is wrong when one of its numbers is further off than this. A batch adds its numbers up in
#: another order than a single run does, which moves the last digits (some 1e-7 on vectors of length 1).
TOLERANCE = 1e-4

#: Seconds between two looks at whether the worker is still there.
CHECK_INTERVAL = 0.5


@dataclass(frozen=True)
class Answer:
    """What one caller got for one text: a vector, or the error that was raised instead."""

    index: int
    seconds: float
    vector: list[float] | None = None
    error: str | None = None

    def matches(self, expected: NDArray[np.float32]) -> bool:
        """Whether this is the answer that the model gives when it is run on that text alone."""
        return self.vector is not None and np.allclose(self.vector, expected, rtol=0.0, atol=TOLERANCE)


@dataclass(frozen=True)
class Load:
    """All answers of one run of the callers, and how long it took as a whole."""

    answers: Sequence[Answer]
    seconds: float

    @property
    def rate(self) -> float:
        """Items per second."""
        return len(self.answers) / self.seconds

    @property
    def answered(self) -> int:
        """How many calls came back with a vector."""
        return sum(answer.vector is not None for answer in self.answers)

    def percentile_ms(self, percent: float) -> float:
        """How long a call takes from ``.delay()`` to its answer, in milliseconds."""
        return float(np.percentile([answer.seconds for answer in self.answers], percent)) * 1000

    def wrong(self, expected: NDArray[np.float32]) -> list[Answer]:
        """The answers that are errors or differ from the rows of ``expected``."""
        return [answer for answer in self.answers if not answer.matches(expected[answer.index])]


def call_concurrently(task: Any, texts: Sequence[str], callers: int, on_progress: Callable[[int], None]) -> Load:
    """Send every text once, from ``callers`` threads that each wait for an answer before the next call.

    ``on_progress`` is called with the number of answers so far, after each of them and at least every
    CHECK_INTERVAL; what it raises ends the run.
    """
    calls: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    for call in enumerate(texts):
        calls.put(call)
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    started = time.perf_counter()
    for _ in range(callers):
        # Daemons, so that Ctrl-C need not wait for the answers that are still out.
        threading.Thread(target=_caller, args=(task, calls, answers), daemon=True).start()
    received: list[Answer] = []
    while len(received) < len(texts):
        with suppress(queue.Empty):
            received.append(answers.get(timeout=CHECK_INTERVAL))
        on_progress(len(received))
    return Load(received, time.perf_counter() - started)


def _caller(task: Any, calls: queue.SimpleQueue[tuple[int, str]], answers: queue.SimpleQueue[Answer]) -> None:
    while True:
        try:
            index, text = calls.get_nowait()
        except queue.Empty:
            return
        answers.put(_call(task, index, text))


def _call(task: Any, index: int, text: str) -> Answer:
    started = time.perf_counter()
    try:
        result = task.delay(text)
        try:
            vector = result.get(timeout=settings.ANSWER_TIMEOUT)
            return Answer(index, time.perf_counter() - started, vector=vector)
        finally:
            result.forget()
    except Exception as error:  # whatever it was, this caller has no answer
        return Answer(index, time.perf_counter() - started, error=repr(error))
