"""An item whose result is stored, or that still runs, is given out once more: it does not run again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from celery import chain

from tests.integration.test_outage import BACK_S, pause, runs_of
from tests.support.apps.outage import WAIT_S
from tests.support.busy import busy, wait_for_waiting
from tests.support.sites import LiveSite
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_stored_result_settles_what_is_delivered_again(
    open_site: SiteFixture, start_worker: WorkerFixture, broker: str, pool: str
) -> None:
    """The worker is killed between a result and its ack: with Celery's switch on, the item is not run again."""
    site = open_site(broker=broker, settings={"worker_deduplicate_successful_tasks": True, "batching_lease": 1.0})
    worker = start_worker("outage", site=site, pool=pool)
    told, add_one = worker.task("told"), worker.task("add_one")

    worker.journal.close_gate("stored")
    with busy(worker, worker.task("double")):
        items = [chain(told.s(x), add_one.s()).apply_async() for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
    worker.journal.wait_for("stored")
    worker.kill()
    worker.journal.open_gate("stored")
    start_worker("outage", site=site, pool=pool)

    assert [3, 5, 7] == [item.get(timeout=BACK_S) for item in items]
    assert [2, 4, 6] == [item.parent.get(timeout=BACK_S) for item in items]
    # The results of a batch are stored together, before any of them is told of.
    assert {1: 1, 2: 1, 3: 1} == {x: count for x, count in runs_of(worker).items() if x}


def test_a_stored_result_counts_when_the_process_dies_after_it(start_worker: WorkerFixture) -> None:
    """The pool process dies while it stores the results, one by one: what has one is done, the rest runs again."""
    worker = start_worker("outage", env={"CELERY_BATCHING_BULK": "0"})
    told, add_one = worker.task("told"), worker.task("add_one")

    worker.journal.close_gate("stored")
    with busy(worker, worker.task("double")):
        items = [chain(told.s(x), add_one.s()).apply_async() for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
    worker.journal.wait_for("stored")
    os.kill(worker.journal.entries("run")[-1].pid, signal.SIGKILL)
    worker.journal.open_gate("stored")

    assert [3, 5, 7] == [item.get(timeout=BACK_S) for item in items]
    assert [2, 4, 6] == [item.parent.get(timeout=BACK_S) for item in items]
    assert {0: 1, 1: 1, 2: 2, 3: 2} == runs_of(worker)
    assert [2, 4, 6] == sorted(entry["x"] for entry in worker.journal.entries("chained"))


def test_waiting_and_running_longer_than_the_visibility_timeout(
    open_site: SiteFixture, start_worker: WorkerFixture
) -> None:
    """`max_wait` and the run take 8 s together, the timeout is 5 s: of two workers one runs the item, once (36)."""
    options = {"visibility_timeout": 5, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    site = open_site(settings={"broker_transport_options": options})
    worker = start_worker("outage", site=site)
    start_worker("outage", site=site)

    with worker.journal.closed_gate():
        item = worker.task("slow").delay(1)
        worker.journal.wait_for("run")
        pause(8 - WAIT_S)

    assert 2 == item.get(timeout=BACK_S)
    assert {1: 1} == runs_of(worker)
