"""The clerk: while the model runs, a second thread reads the next batch, and stores the results of the one before."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from celery.result import AsyncResult

from tests.integration.test_ahead import LONG_S, assert_answered, one_ahead, runs
from tests.integration.test_bulk import with_backend
from tests.support.apps.control import SIZE
from tests.support.bounds import ALL_LONG
from tests.support.busy import jobs_written
from tests.support.redis_server import RedisServer
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]
RedisFixture = Callable[..., RedisServer]


@contextmanager
def one_read(worker: WorkerProcess) -> Iterator[list[AsyncResult]]:
    """A full batch (of 1 to 4) at the gate, and another one (of 5 to 8) that the clerk has read; all results."""
    with one_ahead(worker) as results:
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        written = jobs_written(worker)
        results += [worker.task("double").delay(x) for x in range(SIZE + 1, 2 * SIZE + 1)]
        wait_until(lambda: jobs_written(worker) == written + 1, "a second batch was sent ahead", saw=worker.log)
        yield results


def assert_a_clerk_worked(worker: WorkerProcess) -> None:
    """Fail where no second thread was there: then the test has shown nothing."""
    assert "batching-clerk" in worker.journal.entries("run")[-1]["threads"]


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_batches_run_one_after_the_other(start_worker: WorkerFixture, broker: str) -> None:
    """Each with its own items and results, and no more than one is read."""
    worker = start_worker("control", broker=broker, env=ALL_LONG)

    with one_read(worker) as results:
        results += [worker.task("double").delay(x) for x in range(2 * SIZE + 1, 4 * SIZE + 1)]

    assert_answered(results)
    assert [[0], [1, 2, 3, 4], [5, 6, 7, 8]] == runs(worker)[:3]
    assert_a_clerk_worked(worker)
    assert 2 == worker.task("double").delay(1).get(timeout=LONG_S)


def test_bad_items_have_their_errors(start_worker: WorkerFixture) -> None:
    """A batch that has some is ended by the thread of the model, with Celery's tracers."""
    worker = start_worker("control", env=ALL_LONG)
    double = worker.task("double")

    with one_read(worker) as results:
        bad = [double.delay(-x) for x in range(1, 2 * SIZE + 1)]
        alone = worker.task("double_alone").delay(7)

    assert_answered(results)
    for x, one in enumerate(bad, 1):
        with pytest.raises(ValueError, match=f"-{x} is below zero"):
            one.get(timeout=LONG_S)
    assert 14 == alone.get(timeout=LONG_S)
    assert_a_clerk_worked(worker)


def test_the_process_dies(start_worker: WorkerFixture) -> None:
    """Both batches run in the next process, and nobody is suspected in the end."""
    worker = start_worker("control", env=ALL_LONG)

    with one_read(worker) as results:
        assert_a_clerk_worked(worker)
        (child,) = worker.children()
        os.kill(child, signal.SIGKILL)
        worker.journal.wait_for("run", 3)  # at the gate again

    assert_answered(results)


@pytest.mark.parametrize("number", [2, 6], ids=["that runs", "that was read"])
def test_an_item_is_terminated(start_worker: WorkerFixture, number: int) -> None:
    """Its process ends, at once or as soon as its batch begins; all others are answered."""
    worker = start_worker("control", env=ALL_LONG)

    with one_read(worker) as results:
        assert_a_clerk_worked(worker)
        results[number].revoke(terminate=True, signal="SIGKILL")
        wait_until(lambda: results[number].id in worker.inspect("revoked"), "the worker knows", saw=worker.log)

    wait_until(lambda: results[number].state == "REVOKED", "it is revoked", LONG_S, saw=worker.log)
    others = [one for one in results if one is not results[number]]
    assert [2 * x for x in range(len(results)) if x != number] == [one.get(timeout=LONG_S) for one in others]


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_the_connection_is_lost(start_worker: WorkerFixture, broker: str) -> None:
    """What was read runs nevertheless; its items come again and are answered all the same."""
    worker = start_worker("control", broker=broker, env=ALL_LONG)

    with one_read(worker) as results:
        worker.drop_broker_connections()
        wait_until(lambda: "onnection to broker lost" in worker.log(), "the loss is noticed", LONG_S, saw=worker.log)

    assert_answered(results)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_the_worker_is_stopped(start_worker: WorkerFixture, broker: str) -> None:
    """Both batches run before the worker ends, and all results are told."""
    worker = start_worker("control", broker=broker, env=ALL_LONG)

    with one_read(worker) as results:
        worker.signal(signal.SIGTERM)
        wait_until(lambda: "Warm shutdown" in worker.log(), "the worker stops", LONG_S, saw=worker.log)

    assert 0 == worker.wait(LONG_S)
    assert "could not ensure all messages were consumed" not in worker.log()  # for which the process waits 30 s
    assert_answered(results)


def test_the_process_dies_while_results_are_stored(
    start_redis: RedisFixture, open_site: SiteFixture, start_worker: WorkerFixture
) -> None:
    """The next model runs already; what was not stored by then runs again, with what ran."""
    live = with_backend(open_site(), open_site(redis=start_redis()))
    worker = start_worker("control", site=live, env=ALL_LONG)
    backend = worker.live.backend.client

    with one_read(worker) as results:
        backend.client_pause(int(LONG_S * 1000), all=False)  # who writes waits
        try:
            worker.journal.let_through()
            worker.journal.wait_for("run", 3)  # the clerk is at the results
            assert_a_clerk_worked(worker)
            (child,) = worker.children()
            os.kill(child, signal.SIGKILL)
        finally:
            backend.client_unpause()
        worker.journal.wait_for("run", 4)

    assert_answered(results)
