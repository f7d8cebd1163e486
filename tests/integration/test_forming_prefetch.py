"""The worker takes as many messages as full batches need, with Celery's default settings, and says when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Task
from celery.result import AsyncResult

from tests.integration.test_delivered_again import AGAIN
from tests.support.batch_lines import batches_of
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

SIZE = 64
OF_64 = {"batching_max_batch_size": SIZE}

QUORUM = {"task_default_queue_type": "quorum", "broker_transport_options": {"confirm_publish": True}}
BROKERS = [
    pytest.param("redis", {}, id="redis"),
    pytest.param("rabbitmq", {}, id="classic queue"),
    pytest.param("rabbitmq", QUORUM, id="quorum queue"),
]


def test_a_backlog_leaves_in_full_batches(open_site: SiteFixture, start_worker: WorkerFixture) -> None:
    """Two hundred calls that waited for the worker leave in batches of 64, none of which waits (case 1)."""
    live = open_site(settings={**OF_64, "batching_max_wait": 60})
    double = live.app("single").tasks["single.double"]
    results = calls(double, 200)

    worker = start_worker("single", site=live)
    results += calls(double, 56)  # with these the last batch is full, too

    assert [2 * x for x in (*range(200), *range(56))] == [one.get(timeout=40) for one in results]
    assert [(SIZE, "full")] * 4 == [(batch.size, batch.reason) for batch in batches_of(worker, 256)]


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_what_comes_together_leaves_together(start_worker: WorkerFixture, pool: str) -> None:
    """Of ten calls that an idle worker gets in one answer of the broker, the first does not leave alone (case 1)."""
    worker = start_worker("single", pool=pool, settings=OF_64)
    double, broker = worker.task("double"), worker.live.broker.client
    assert 0 == double.delay(0).get(timeout=20)

    results = [double.apply_async((x,), queue="aside") for x in range(10)]
    messages = broker.lrange("aside", 0, -1)
    broker.delete("aside", "_kombu.binding.aside")
    broker.lpush(worker.live.site.queue, *reversed(messages))

    assert [2 * x for x in range(10)] == [one.get(timeout=20) for one in results]
    assert [(1, "idle"), (10, "idle")] == [(batch.size, batch.reason) for batch in batches_of(worker, 11)]


def test_a_batch_that_fills_does_not_send_another_that_grows(start_worker: WorkerFixture) -> None:
    """Of what solo reads after a run, a part is full before the older rest has come: that still leaves together."""
    worker = start_worker("forming", pool="solo")
    large, greedy = worker.task("large"), worker.task("greedy")
    assert 0 == large.delay(0).get(timeout=40)

    with busy(worker, large) as running:
        results = [large.delay(0), *[greedy.delay(x) for x in range(4)], *[large.delay(x) for x in range(1, 32)]]

    assert 0 == running.get(timeout=40)
    assert [0, 0, 2, 4, 6, *range(2, 64, 2)] == [one.get(timeout=40) for one in results]
    assert [1, 1, 4, 32] == sorted(batch.size for batch in batches_of(worker, 38))


@pytest.mark.parametrize(("broker", "settings"), BROKERS)
def test_the_next_batch_fills_while_one_runs(
    start_worker: WorkerFixture, broker: str, settings: dict[str, Any]
) -> None:
    """While 64 items run, 64 more come in; it is so again after the connection was lost (cases 1 and 40)."""
    worker = start_worker("single", pool="threads", broker=broker, settings={**OF_64, **settings})

    two_full_batches(worker)
    with busy(worker, worker.task("double")) as running:
        worker.journal.wait_for("run", 4)  # three of them by the batches above
        worker.drop_broker_connections()
        worker.wait_for(lambda: worker.log().count("Connected to ") > 1, "the worker is back")
    assert 0 == running.get(timeout=40)
    # The broker takes its time to give the lost call out again; until then it is nowhere to be seen.
    worker.wait_for(lambda: AGAIN in worker.log(), "the call that ran has come again", 30)
    wait_until(lambda: not worker.live.leftovers(), "the call that came back is settled", 20)
    two_full_batches(worker)


@pytest.mark.parametrize(
    ("settings", "extra", "words"),
    [
        ({"worker_prefetch_multiplier": 1}, [], "worker_prefetch_multiplier=1"),
        ({}, ["--disable-prefetch"], "worker_disable_prefetch (--disable-prefetch)"),
    ],
)
def test_a_setting_that_keeps_batches_small_is_named(
    start_worker: WorkerFixture, settings: dict[str, Any], extra: list[str], words: str
) -> None:
    """A setting with which full batches cannot form is the user's to choose; the worker says so once (case 1)."""
    worker = start_worker("single", pool="solo", settings={**OF_64, **settings}, extra=extra)

    assert 2 == worker.task("double").delay(1).get(timeout=30)

    warnings = [line for line in worker.log().splitlines() if "WARNING" in line and "cannot fill" in line]
    assert 1 == len(warnings)
    assert words in warnings[0]
    assert "batches of 64" in warnings[0]


def two_full_batches(worker: WorkerProcess) -> None:
    """Let a full batch form behind a busy model, and another one behind that."""
    worker.journal.reset()
    double = worker.task("double")
    with busy(worker, double):
        first = calls(double, SIZE)
        wait_for_waiting(worker, SIZE)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        second = calls(double, SIZE)
        wait_for_waiting(worker, SIZE)
    assert [2 * x for x in (*range(SIZE), *range(SIZE))] == [one.get(timeout=40) for one in (*first, *second)]
    assert [SIZE, SIZE] == [len(items) for items in later_runs(worker)]


def calls(task: Task, count: int) -> list[AsyncResult]:
    """The results of so many calls, of 0, 1, 2 and so on."""
    return [task.delay(x) for x in range(count)]
