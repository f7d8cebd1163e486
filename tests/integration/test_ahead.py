"""One full batch is sent ahead, to a process that still runs another: when, and what then becomes of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from celery.result import AsyncResult

from celery_batching.consumer.ahead import SHORT_RUN_S
from tests.support.apps.control import SIZE
from tests.support.batch_lines import batches_of
from tests.support.busy import busy, jobs_written, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

#: Seconds for what a test does not measure.
LONG_S = 40.0


@contextmanager
def one_ahead(worker: WorkerProcess) -> Iterator[list[AsyncResult]]:
    """A batch of one at the gate and a full one behind it in the same process; their results."""
    double = worker.task("double")
    show_a_short_run(worker)
    with busy(worker, double) as running:
        written = jobs_written(worker)
        results = [running, *[double.delay(x) for x in range(1, SIZE + 1)]]
        wait_until(lambda: jobs_written(worker) == written + 1, "a batch was sent ahead", saw=worker.log)
        yield results


def show_a_short_run(worker: WorkerProcess) -> None:
    """Let the worker learn that the model is fast, which it may not be the first time on a busy machine."""
    seen = len(worker.batches())

    def last_was_short() -> bool:
        nonlocal seen
        seen += 1
        assert 2 == worker.task("double").delay(1).get(timeout=LONG_S)
        return batches_of(worker, seen)[-1].run < SHORT_RUN_S / 2

    wait_until(last_was_short, "a run is short", LONG_S, saw=worker.batches)
    worker.journal.reset()


def assert_answered(results: list[AsyncResult]) -> None:
    """Each has its own answer."""
    assert [2 * x for x in range(len(results))] == [one.get(timeout=LONG_S) for one in results]


def runs(worker: WorkerProcess) -> list[list[int]]:
    """The items of each run since the model was shown to be fast."""
    return [sorted(entry["items"]) for entry in worker.journal.entries("run")]


def test_a_full_batch_is_sent_ahead(start_worker: WorkerFixture) -> None:
    """It waits in the process, is shown as waiting, and runs next; a third stays with the worker."""
    worker = start_worker("control")
    double = worker.task("double")

    with one_ahead(worker) as results:
        written = jobs_written(worker)
        results += [double.delay(x) for x in range(SIZE + 1, 2 * SIZE + 1)]
        wait_for_waiting(worker, 2 * SIZE)
        assert jobs_written(worker) == written
        (running,) = worker.inspect("stats")["batching"]["running"]
        assert 1 == running["size"]

    assert_answered(results)
    assert [[0], [1, 2, 3, 4], [5, 6, 7, 8]] == runs(worker)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"concurrency": 2}, {}),
        ({"extra": ["--max-tasks-per-child=100"]}, {}),
        ({}, {"batching_bulk": False}),
    ],
)
def test_where_nothing_is_sent_ahead(
    start_worker: WorkerFixture, options: dict[str, object], settings: dict[str, object]
) -> None:
    """With several processes another one may be free earlier, a process may end, or it is not wanted."""
    worker = start_worker("control", settings=settings, **options)
    double = worker.task("double")
    show_a_short_run(worker)

    runs_before = len(worker.journal.entries("run"))
    with worker.journal.closed_gate():
        slots = worker.options.concurrency
        for slot in range(slots):
            double.delay(0)
            worker.journal.wait_for("run", runs_before + slot + 1)
        written = jobs_written(worker)
        results = [double.delay(x) for x in range(SIZE)]
        wait_for_waiting(worker, SIZE)
        assert jobs_written(worker) == written

    assert_answered(results)


def test_a_plain_task_that_waits_is_not_passed(start_worker: WorkerFixture) -> None:
    """While somebody else waits for the process, nothing is sent ahead."""
    worker = start_worker("control")
    double = worker.task("double")
    show_a_short_run(worker)

    with busy(worker, double) as running:
        alone = worker.task("double_alone").delay(7)
        wait_until(lambda: alone.id in str(worker.inspect("reserved")), "the plain task waits", saw=worker.log)
        written = jobs_written(worker)
        results = [running, *[double.delay(x) for x in range(1, SIZE + 1)]]
        wait_for_waiting(worker, SIZE)
        assert jobs_written(worker) == written

    assert_answered(results)
    assert 14 == alone.get(timeout=LONG_S)
    (entry,) = worker.journal.entries("alone")
    assert entry.at < worker.journal.entries("run")[-1].at, "the plain task came first"


def test_the_process_dies_before_it_comes_to_it(start_worker: WorkerFixture) -> None:
    """The batch that was sent ahead runs in the next process, and is not suspected."""
    worker = start_worker("control")

    with one_ahead(worker) as results:
        (child,) = worker.children()
        os.kill(child, signal.SIGKILL)
        worker.journal.wait_for("run", 2)  # at the gate again

    assert_answered(results)
    assert [1, 2, 3, 4] in runs(worker)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_the_connection_is_lost(start_worker: WorkerFixture, broker: str) -> None:
    """What was sent ahead runs nevertheless; its items come again and are answered all the same."""
    worker = start_worker("control", broker=broker)

    with one_ahead(worker) as results:
        worker.drop_broker_connections()
        wait_until(lambda: "onnection to broker lost" in worker.log(), "the loss is noticed", LONG_S, saw=worker.log)

    assert_answered(results)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_the_worker_is_stopped(start_worker: WorkerFixture, broker: str) -> None:
    """It runs before the worker ends."""
    worker = start_worker("control", broker=broker)

    with one_ahead(worker) as results:
        worker.signal(signal.SIGTERM)
        wait_until(lambda: "Warm shutdown" in worker.log(), "the worker stops", LONG_S, saw=worker.log)

    assert 0 == worker.wait(LONG_S)
    assert_answered(results)


def test_an_item_of_each_is_terminated(start_worker: WorkerFixture) -> None:
    """One process ends on account of two batches: the others of both run again, and no slot is lost."""
    worker = start_worker("control")

    with one_ahead(worker) as results:
        ended = [results[0].id, results[3].id]
        worker.control("revoke", ended, terminate=True, signal="SIGKILL")
        wait_until(lambda: {one.state for one in (results[0], results[3])} == {"REVOKED"}, "both end", LONG_S)

    assert [2, 4, 8] == [results[x].get(timeout=LONG_S) for x in (1, 2, 4)]
    assert 10 == worker.task("double").delay(5).get(timeout=LONG_S)


def test_a_batch_too_large_for_the_pipe_waits(start_worker: WorkerFixture) -> None:
    """A part of it in the pipe would keep the worker from its connection until the running batch ends."""
    worker = start_worker("control")
    double = worker.task("double")
    show_a_short_run(worker)

    with busy(worker, double) as running:
        written = jobs_written(worker)
        large = {"headers": {"note": "x" * 400_000}}
        results = [running, *[double.apply_async((x,), **large) for x in range(1, SIZE + 1)]]
        wait_for_waiting(worker, SIZE)
        assert jobs_written(worker) == written

    assert_answered(results)
    assert [[0], [1, 2, 3, 4]] == runs(worker)


def test_an_item_of_it_is_terminated(start_worker: WorkerFixture) -> None:
    """As soon as its batch begins; the others of that batch run again, and the batch before it ends in peace."""
    worker = start_worker("control")

    with one_ahead(worker) as results:
        results[2].revoke(terminate=True, signal="SIGKILL")
        wait_until(lambda: results[2].id in worker.inspect("revoked"), "the worker knows", saw=worker.log)

    assert 0 == results[0].get(timeout=LONG_S)
    assert [2, 6, 8] == [results[x].get(timeout=LONG_S) for x in (1, 3, 4)]
    wait_until(lambda: results[2].state == "REVOKED", "it is revoked", LONG_S, saw=worker.log)
