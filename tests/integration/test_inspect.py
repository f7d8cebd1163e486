"""What remote control sees of a worker that batches: its items, wherever they are, and its own voice meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.busy import busy, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

POOLS = ["prefork", "threads"]

#: Seconds between two heartbeats of the broker, which closes a connection after two or three without any.
HEARTBEAT_S = 2


def ids(entries: list[dict[str, str]]) -> set[str]:
    return {entry["id"] for entry in entries}


@pytest.mark.parametrize("pool", POOLS)
def test_inspect_finds_every_item(shared_worker: WorkerFixture, pool: str) -> None:
    """With four items running, three waiting and one parked, each is listed where it is, and counted once (case 65)."""
    worker = shared_worker("control", pool=pool)
    double = worker.task("double")
    total = worker.inspect("stats")["total"].get(double.name, 0)

    with busy(worker, double) as first:
        running = [double.delay(x) for x in (1, 2, 3, 4)]
        wait_for_waiting(worker, 4)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        waiting = [double.delay(x) for x in (5, 6, 7)]
        # Long enough for all that is asked below, on a busy machine.
        parked = double.apply_async((8,), countdown=12)
        wait_for_waiting(worker, 3)
        wait_until(lambda: worker.inspect("scheduled"), "the parked item is seen")

        assert {item.id for item in running} == ids(worker.inspect("active"))
        assert {item.id for item in waiting} == ids(worker.inspect("reserved"))
        assert {parked.id} == ids([entry["request"] for entry in worker.inspect("scheduled")])
        (batch,) = worker.inspect("stats")["batching"]["running"]
        assert (double.name, 4, "full") == (batch["task"], batch["size"], batch["reason"])

    assert [0, 2, 4, 6, 8, 10, 12, 14] == [item.get(timeout=30) for item in (first, *running, *waiting)]
    assert 16 == parked.get(timeout=40)
    # A result is there before its item is settled.
    kinds = ("active", "reserved", "scheduled")
    wait_until(lambda: not any(worker.inspect(kind) for kind in kinds), "no item is left", saw=worker.batches)
    assert total + 9 == worker.inspect("stats")["total"][double.name]
    assert {"waiting": 0, "running": []} == worker.inspect("stats")["batching"]


@pytest.mark.parametrize("pool", POOLS)
def test_query_task_tells_where_an_item_is(shared_worker: WorkerFixture, pool: str) -> None:
    """Asked for single ids, the worker says which is active and which is reserved (case 65)."""
    worker = shared_worker("control", pool=pool)
    double = worker.task("double")

    with busy(worker, double) as running:
        waiting = double.delay(1)
        wait_for_waiting(worker, 1)
        found = worker.inspect("query_task", ids=[running.id, waiting.id])

    assert ("active", "reserved") == (found[running.id][0], found[waiting.id][0])
    assert 2 == waiting.get(timeout=30)


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_answers_and_keeps_its_connection_during_a_long_batch(start_worker: WorkerFixture, pool: str) -> None:
    """While a batch outlasts several heartbeats the worker answers pings and stays connected (case 66)."""
    worker = start_worker("control", pool=pool, broker="rabbitmq", settings={"broker_heartbeat": HEARTBEAT_S})

    with busy(worker, worker.task("double")) as running:
        started = time.monotonic()
        while time.monotonic() < started + 2.5 * HEARTBEAT_S:
            # Far sooner than the batch ends, which stands at its gate for as long as this takes.
            assert worker.ping()

    assert 0 == running.get(timeout=30)
    assert "Connection to broker lost" not in worker.log()
    assert 1 == len(worker.journal.entries("run"))
