"""Time limits and rate limits: enforced, or said not to be."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from tests.support.apps.control import LIMIT_S, RUN_S
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

#: What a worker says at start on a pool that has no clock for its jobs.
WARNING = "Time limits are not enforced on this pool"


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_the_soft_limit_interrupts_the_model(shared_worker: WorkerFixture, broker: str) -> None:
    """A model that takes longer than the soft limit gets SoftTimeLimitExceeded, and so does its caller (case 53)."""
    worker = shared_worker("control", broker=broker)
    limited = worker.task("soft_limited")

    with worker.journal.closed_gate():
        stuck = limited.delay(1)
        with pytest.raises(SoftTimeLimitExceeded):
            stuck.get(timeout=40)

    assert 4 == limited.delay(2).get(timeout=30)


def test_each_part_of_a_split_has_a_fresh_run_clock(shared_worker: WorkerFixture) -> None:
    """Runs that exceed the soft limit together, but none alone, cost only the bad item its result (case 53)."""
    worker = shared_worker("control")
    limited = worker.task("soft_limited")

    with busy(worker, worker.task("double")):
        items = [limited.delay(x) for x in (1, 2, 3, -4)]
        wait_for_waiting(worker, 4)

    assert [2, 4, 6] == [item.get(timeout=40) for item in items[:3]]
    with pytest.raises(ValueError, match="-4"):
        items[3].get(timeout=40)
    runs = later_runs(worker)
    assert [[1, 2, 3, -4], [1, 2], [3], [-4]] == runs
    assert len(runs) * RUN_S > LIMIT_S


def test_the_hard_limit_ends_only_the_item_that_is_stuck(shared_worker: WorkerFixture) -> None:
    """When the hard limit kills the process, the other items run on the fresh one and succeed (case 53)."""
    worker = shared_worker("control")
    limited = worker.task("hard_limited")

    worker.journal.close_gate("stuck")
    with busy(worker, worker.task("double")):
        items = [limited.delay(x) for x in (1, -2)]
        wait_for_waiting(worker, 2)

    assert 2 == items[0].get(timeout=30)
    with pytest.raises(TimeLimitExceeded):
        items[1].get(timeout=30)
    assert 6 == limited.delay(3).get(timeout=30)


@pytest.mark.parametrize("slow", [0, 5])
def test_a_hard_limit_beside_the_soft_one_costs_no_process(shared_worker: WorkerFixture, slow: int) -> None:
    """Parts for which the hard limit leaves no time get a clock of their own instead of being killed (case 53)."""
    worker = shared_worker("faulty")
    limited = worker.task("limited")

    with busy(worker, limited):
        items = [limited.delay(-1 if x == slow else x) for x in range(8)]
        wait_for_waiting(worker, 8)

    with pytest.raises(SoftTimeLimitExceeded):
        items[slow].get(timeout=30)
    assert [2 * x for x in range(8) if x != slow] == [items[x].get(timeout=30) for x in range(8) if x != slow]
    assert 1 == len({entry["pid"] for entry in worker.journal.entries("run")})
    assert "again" in worker.log()


def test_limits_of_the_message_are_kept(shared_worker: WorkerFixture) -> None:
    """A soft limit given by the caller holds for its item, and items with other limits run apart (case 53)."""
    worker = shared_worker("control")
    double = worker.task("double")

    with busy(worker, double):
        hasty = double.apply_async((1,), soft_time_limit=1)
        patient = double.delay(2)
        wait_for_waiting(worker, 2)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        with pytest.raises(SoftTimeLimitExceeded):
            hasty.get(timeout=40)

    assert 4 == patient.get(timeout=30)
    assert [[1], [2]] == later_runs(worker)


def test_a_limit_set_by_remote_control_holds(shared_worker: WorkerFixture) -> None:
    """A time limit that an operator sets while the worker runs holds for the next batch (case 53)."""
    worker = shared_worker("control")
    double = worker.task("double")

    def limit(soft: float | None, hard: float | None) -> None:
        assert "ok" in worker.control("time_limit", double.name, soft=soft, hard=hard)

    limit(soft=1, hard=60)
    try:
        with worker.journal.closed_gate(), pytest.raises(SoftTimeLimitExceeded):
            double.delay(1).get(timeout=40)
    finally:
        limit(soft=None, hard=None)

    assert 4 == double.delay(2).get(timeout=30)


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_pool_without_clocks_says_so(shared_worker: WorkerFixture, pool: str) -> None:
    """On threads and solo the worker warns at start and names the tasks whose limits it cannot enforce (case 53)."""
    worker = shared_worker("control", pool=pool)

    (warning,) = warnings_of(worker)

    assert "WARNING" in warning
    assert "control.soft_limited" in warning
    assert "control.hard_limited" in warning
    assert "control.double" not in warning
    assert 2 == worker.task("soft_limited").delay(1).get(timeout=30)


def test_the_workers_own_limits_are_warned_of(start_worker: WorkerFixture) -> None:
    """Limits from the command line concern every batch task, and are warned of in the same way (case 53)."""
    (warning,) = warnings_of(start_worker("control", pool="threads", extra=["--soft-time-limit=5"]))

    assert "control.double" in warning


def test_prefork_does_not_warn(shared_worker: WorkerFixture) -> None:
    """Where limits are enforced nothing is said (case 53)."""
    assert [] == warnings_of(shared_worker("control"))


def warnings_of(worker: WorkerProcess) -> list[str]:
    """The lines about limits in all that the worker has written, also before this test."""
    return [line for line in worker.log_path.read_text().splitlines() if WARNING in line]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_rate_limit_set_at_run_time_applies_to_each_item(shared_worker: WorkerFixture, pool: str) -> None:
    """A rate limit holds items back one by one before the buffer, and ends when remote control lifts it (case 58)."""
    worker = shared_worker("control", pool=pool)
    double = worker.task("double")

    def limit(rate: str) -> None:
        assert "ok" in worker.control("rate_limit", double.name, rate)

    limit("2/s")
    begun = time.monotonic()
    try:
        assert [2, 4, 6] == [item.get(timeout=40) for item in [double.delay(x) for x in (1, 2, 3)]]
    finally:
        limit("0")
    starts = [entry.at for entry in worker.journal.entries("run")]
    assert 3 == len(starts)
    # One every half second, the first of them not before we began: any run may be held up on its way.
    assert starts[2] - begun >= 0.9

    with worker.journal.closed_gate():
        running = double.delay(0)
        worker.journal.wait_for("run", 4)
        items = [double.delay(x) for x in (1, 2, 3, 4)]
        wait_for_waiting(worker, 4)

    assert [2, 4, 6, 8] == [item.get(timeout=30) for item in items]
    assert 0 == running.get(timeout=30)
    assert [[1, 2, 3, 4]] == later_runs(worker)[-1:]
