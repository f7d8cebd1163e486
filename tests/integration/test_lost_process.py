"""A pool process dies in a batch: the item that ends it fails alone, and all others are answered."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from billiard.exceptions import WorkerLostError

from tests.support.apps.faulty import SIZE
from tests.support.busy import busy, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

#: Seconds for the search in a whole batch, on a busy machine.
SEARCH_S = 40.0

#: Many tests share a worker, which is not to end itself for what they do to it within a minute.
PATIENT = {"batching_max_restarts_per_minute": 10_000}

#: Seconds for the search on a busy machine, where each of up to seven processes must be noticed at once: of itself
#: billiard looks every 5 s.
FOUND_S = 25.0

RESTARTS = "exited with"


@pytest.mark.parametrize("size", [8, SIZE])
@pytest.mark.parametrize("task", ["exits", "segfaults", "is_killed"])
def test_the_killer_fails_alone(shared_worker: WorkerFixture, task: str, size: int) -> None:
    """Of a full batch the item that ends its process fails, the others succeed, within seconds (cases 48, 49)."""
    worker = shared_worker("faulty", settings=PATIENT)
    deadly = worker.task(task)
    killer = size // 3

    with busy(worker, deadly):
        items = [deadly.delay(-1 if x == killer else x) for x in range(size)]
        wait_for_waiting(worker, size)
    started = time.monotonic()

    answers = {x: item.get(timeout=SEARCH_S) for x, item in enumerate(items) if x != killer}
    with pytest.raises(WorkerLostError):
        items[killer].get(timeout=SEARCH_S)
    assert time.monotonic() - started < FOUND_S
    assert {x: 2 * x for x in range(size) if x != killer} == answers
    assert worker.log().count(RESTARTS) <= size.bit_length() + 1


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_two_killers_are_found(shared_worker: WorkerFixture, broker: str) -> None:
    """Two items that end their process fail, each for itself (case 49)."""
    worker = shared_worker("faulty", broker=broker, settings=PATIENT)
    deadly = worker.task("exits")

    with busy(worker, deadly):
        items = [deadly.delay(-1 if x in (2, 13) else x) for x in range(16)]
        wait_for_waiting(worker, 16)

    for x, item in enumerate(items):
        if x in (2, 13):
            with pytest.raises(WorkerLostError, match="exited prematurely"):
                item.get(timeout=SEARCH_S)
        else:
            assert 2 * x == item.get(timeout=SEARCH_S)


def test_a_batch_of_killers_costs_a_bounded_number_of_processes(shared_worker: WorkerFixture) -> None:
    """After 2 log2(n) + 2 processes what is left of the batch fails and says so; the next batch is served."""
    worker = shared_worker("faulty", settings=PATIENT)
    deadly = worker.task("exits")

    with busy(worker, deadly):
        items = [deadly.delay(-1) for _ in range(16)]
        wait_for_waiting(worker, 16)
    errors = [item.get(timeout=SEARCH_S, propagate=False) for item in items]

    assert {WorkerLostError} == {type(error) for error in errors}
    given_up = [error for error in errors if "the search for the item that ends them is given up" in str(error)]
    assert given_up
    assert "10 pool processes were lost" in str(given_up[0])
    assert 2 == deadly.delay(1).get(timeout=SEARCH_S)
    assert worker.log().count(RESTARTS) == 10


def test_a_killer_in_every_batch_stops_nobody(shared_worker: WorkerFixture) -> None:
    """Batch after batch with a killer in it: every good item succeeds (case 49)."""
    worker = shared_worker("faulty", settings=PATIENT)
    deadly = worker.task("exits")
    items = {}

    for batch in range(4):
        with busy(worker, deadly):
            for x in range(4):
                number = 4 * batch + x
                items[number] = deadly.delay(-1 if x == batch else number)
            wait_for_waiting(worker, 4)
        for number in range(4 * batch, 4 * batch + 4):
            items[number].get(timeout=SEARCH_S, propagate=False)

    failed = {number for number, item in items.items() if item.failed()}
    assert {0, 5, 10, 15} == failed
    assert all(2 * number == item.get() for number, item in items.items() if number not in failed)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_death_from_outside_harms_nobody(shared_worker: WorkerFixture, broker: str) -> None:
    """The process is killed while eight items run: all succeed on the fresh one (case 48)."""
    worker = shared_worker("faulty", broker=broker, settings=PATIENT)
    deadly = worker.task("exits")

    with worker.journal.closed_gate():
        items = [deadly.delay(0)]
        worker.journal.wait_for("run")
        items += [deadly.delay(x) for x in range(1, 9)]
        wait_for_waiting(worker, 8)
        worker.journal.let_through()
        running = worker.journal.wait_for("run", 2)[1]
        os.kill(running["pid"], signal.SIGKILL)

    assert [2 * x for x in range(9)] == [item.get(timeout=SEARCH_S) for item in items]


def test_a_process_that_dies_while_idle_is_replaced(shared_worker: WorkerFixture) -> None:
    """Killed between two batches; the next call is served by another process."""
    worker = shared_worker("faulty", settings=PATIENT)
    deadly = worker.task("exits")
    deadly.delay(1).get(timeout=SEARCH_S)
    wait_until(lambda: not worker.live.leftovers(), "the process has told the end of its batch")
    (first,) = worker.journal.entries("run")
    os.kill(first["pid"], signal.SIGKILL)

    started = time.monotonic()
    assert 4 == deadly.delay(2).get(timeout=SEARCH_S)
    assert time.monotonic() - started < FOUND_S
    assert first["pid"] != worker.journal.entries("run")[1]["pid"]


def test_too_many_deaths_in_a_minute_end_the_worker(start_worker: WorkerFixture) -> None:
    """One process more than the setting allows ends the worker with its name; what has no end goes back."""
    worker = start_worker("faulty", settings={"batching_max_restarts_per_minute": 3})
    deadly = worker.task("exits")
    with busy(worker, deadly):
        items = [deadly.delay(-1) for _ in range(8)]
        wait_for_waiting(worker, 8)

    assert 0 != worker.wait(SEARCH_S)

    (line,) = [line for line in worker.log().splitlines() if "The worker ends" in line]
    assert "CRITICAL" in line
    assert "4 pool processes died within 60 s, the last one by exitcode 3" in line
    assert "batching_max_restarts_per_minute is 3" in line
    assert not all(item.ready() for item in items)
    worker.live.purge()


def test_an_item_whose_process_was_killed_from_outside_succeeds(shared_worker: WorkerFixture) -> None:
    """Also an item that was alone in its batch runs again: one death may be an accident."""
    worker = shared_worker("faulty", settings=PATIENT)

    with worker.journal.closed_gate():
        item = worker.task("exits").delay(1)
        (running,) = worker.journal.wait_for("run")
        os.kill(running["pid"], signal.SIGKILL)
        worker.journal.wait_for("run", 2, timeout=SEARCH_S)

    assert 2 == item.get(timeout=SEARCH_S)
