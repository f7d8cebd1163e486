"""Errors reach the callers they belong to, and nobody else: an entry's, an encoder's, and what `run` raises."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from celery.exceptions import WorkerLostError

from tests.support.apps.outcomes import NOTE_SIGNALS
from tests.support.batch_lines import batches_of
from tests.support.task_events import Events, monitor
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

#: Pools, and whether handlers of signals look on.
PLACES = [("prefork", True), ("prefork", False), ("threads", False), ("solo", True)]


def test_an_exception_entry_fails_its_item_alone(shared_worker: WorkerFixture) -> None:
    """Of eight items one is answered with an error: it fails with that error, seven succeed (case 20)."""
    worker = shared_worker("outcomes")

    results = [worker.task("entries").delay(x) for x in (0, 1, 2, -3, 4, 5, 6, 7)]

    bad = results.pop(3)
    assert [[2 * x] for x in (0, 1, 2, 4, 5, 6, 7)] == [one.get(timeout=30) for one in results]
    with pytest.raises(ValueError, match="bad -3"):
        bad.get(timeout=30)
    batch = batches_of(worker, 8)[0]
    assert (8, 7, 1) == (batch.size, batch.succeeded, batch.failed)


def test_an_entry_that_cannot_be_encoded_fails_its_item_alone(shared_worker: WorkerFixture) -> None:
    """Of eight items one is answered with a lock: it fails with the encoder's error, seven succeed (case 25)."""
    worker = shared_worker("outcomes")

    results = [worker.task("entries").delay(x) for x in (0, 1, 2, None, 4, 5, 6, 7)]

    bad = results.pop(3)
    assert [[2 * x] for x in (0, 1, 2, 4, 5, 6, 7)] == [one.get(timeout=30) for one in results]
    error = bad.get(timeout=10, propagate=False)
    assert "FAILURE" == bad.state
    assert "EncodeError" == type(error).__name__
    assert "lock is not JSON serializable" in str(error)


def test_one_bad_item_costs_few_more_runs(shared_worker: WorkerFixture) -> None:
    """When `run` raises, the batch is halved until the bad item stands alone, in at most 2 log2(n) + 1 more runs."""
    worker = shared_worker("outcomes")

    results = [worker.task("split").delay(x) for x in (0, 1, 2, 3, 4, -5, 6, 7)]

    bad = results.pop(5)
    assert [2 * x for x in (0, 1, 2, 3, 4, 6, 7)] == [one.get(timeout=30) for one in results]
    with pytest.raises(ValueError, match=r"bad \[-5\]"):
        bad.get(timeout=30)
    runs = [entry["items"] for entry in worker.journal.entries("run")]
    assert [0, 1, 2, 3, 4, -5, 6, 7] == runs[0]
    assert [-5] in runs
    assert len(runs) - 1 <= 2 * math.log2(8) + 1


def test_on_error_fail_fails_all_without_another_run(shared_worker: WorkerFixture) -> None:
    """With `on_error="fail"` one run is all there is: every item fails with what it raised."""
    worker = shared_worker("outcomes")

    results = [worker.task("together").delay(x) for x in (0, 1, 2, 3, 4, -5, 6, 7)]

    errors = [one.get(timeout=10, propagate=False) for one in results]
    assert ["ValueError('bad [-5]')"] * 8 == [repr(error) for error in errors]
    assert 1 == len(worker.journal.entries("run"))


def test_a_failure_is_told_once_for_each_item(shared_worker: WorkerFixture) -> None:
    """When every item fails, each has type, message and traceback, one signal and one event (case 22)."""
    worker = shared_worker("outcomes", env={NOTE_SIGNALS: "1"}, extra=["-E"])

    with monitor(worker.app) as events:
        results = [worker.task("fail").delay(x, kind="ValueError") for x in range(4)]
        errors = [one.get(timeout=10, propagate=False) for one in results]
        wait_until(lambda: len(failures(events())) >= 4, "four failures are told", saw=events)
        worker.wait_for(worker.ping, "the worker answers")  # what comes after the fourth is there, too
        told = failures(events())

    ids = sorted(one.id for one in results)
    assert ["ValueError('no model for 1')"] * 4 == [repr(error) for error in errors]
    assert all("in fail\n    raise ERRORS[kind[0]]" in one.traceback for one in results)
    assert ids == sorted(entry["id"] for entry in worker.journal.entries("task_failure"))
    assert ids == sorted(event["uuid"] for event in told)
    assert {"ValueError('no model for 1')"} == {event["exception"] for event in told}


def failures(events: Events) -> Events:
    """The events about failures."""
    return [event for event in events if event["type"] == "task-failed"]


@pytest.mark.parametrize(("pool", "noted"), PLACES)
@pytest.mark.parametrize(("kind", "words"), [("exit", "exitcode 1"), ("interrupt", "KeyboardInterrupt")])
def test_no_exception_ends_the_worker(
    shared_worker: WorkerFixture, pool: str, noted: bool, kind: str, words: str
) -> None:
    """A model that exits or interrupts itself fails its items, with handlers or without, and work goes on (case 23)."""
    watched = {"env": {NOTE_SIGNALS: "1"}, "extra": ["-E"]} if noted else {}
    worker = shared_worker("outcomes", pool=pool, **watched)
    pids = worker.children()

    results = [worker.task("fail").delay(x, kind=kind) for x in range(4)]

    errors = [one.get(timeout=10, propagate=False) for one in results]
    assert ["FAILURE"] * 4 == [one.state for one in results]
    assert [WorkerLostError] * 4 == [type(error) for error in errors]
    assert all(words in str(error) for error in errors), errors
    good = [worker.task("entries").delay(x) for x in range(8)]
    assert [[2 * x] for x in range(8)] == [one.get(timeout=30) for one in good]
    assert pids == worker.children()
