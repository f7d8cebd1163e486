"""pool/run_clock: the pool signals once per job, and yet every run has its own limit."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celery_batching.pool.run_clock import RunClock

#: Seconds; what stays below it is "at once", what waits for a signal waits at most this long.
LONG_S = 10.0


def strike() -> None:
    """What the pool does to its process when the clock of the job strikes."""
    signal.raise_signal(signal.SIGUSR1)


def wait_for_a_signal() -> None:
    signal.sigtimedwait([], LONG_S)  # interrupted by any handler that raises
    pytest.fail("no soft limit struck")


def test_a_run_that_exceeds_its_limit_is_interrupted() -> None:
    """When the clock of the job strikes a run that has used its time up, the exception is raised at once."""
    clock = RunClock(0.001)
    with clock.batch(), pytest.raises(SoftTimeLimitExceeded), clock.run():
        busy_until(time.monotonic() + 0.002)
        strike()


def test_a_fresh_run_gets_the_rest_of_its_own_time() -> None:
    """Struck by the clock of the job, a run that has just begun goes on until its own limit."""
    clock = RunClock(0.05)
    before = time.monotonic()  # of the run, whose clock may be ahead of ours if we are held up after it began
    with clock.batch(), pytest.raises(SoftTimeLimitExceeded), clock.run():
        strike()
        wait_for_a_signal()
    assert time.monotonic() - before >= 0.04


def test_later_runs_have_clocks_of_their_own() -> None:
    """The pool signals once only; the runs after that are limited all the same."""
    clock = RunClock(0.05)
    with clock.batch():
        strike()
        for _ in range(2):
            with pytest.raises(SoftTimeLimitExceeded), clock.run():
                wait_for_a_signal()


def test_nothing_is_raised_between_runs() -> None:
    """While results are stored no limit strikes, neither the pool's nor one left from a run."""
    clock = RunClock(0.3)  # more than the run below takes, also where it is held up
    with clock.batch():
        strike()
        with clock.run():
            pass
        busy_until(time.monotonic() + 0.4)


def test_the_handlers_of_the_process_come_back() -> None:
    """After the batch the pool's own handler is in place again, for tasks that are not batched."""
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGALRM)
    with RunClock(1.0).batch():
        pass

    assert before == (signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGALRM))


def test_other_threads_and_unlimited_batches_touch_no_handler() -> None:
    """Where the pool sends no signal, as on the threads pool, nothing is installed."""
    before = signal.getsignal(signal.SIGUSR1)
    seen = []

    def batch(limit: float | None) -> None:
        with RunClock(limit).batch():
            seen.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=batch, args=(1.0,))
    thread.start()
    thread.join()
    batch(None)

    assert [before, before] == seen


def busy_until(moment: float) -> None:
    while time.monotonic() < moment:
        pass
