"""How a worker ends: what runs is settled, what waits is on its queue again, and no process stays behind."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from amqp.exceptions import ChannelError

from tests.support.apps.ending import SIZE
from tests.support.busy import busy, jobs_written, wait_for_waiting
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

BROKERS = ["redis", "rabbitmq"]
PLACES = [(pool, broker) for pool in ("prefork", "threads") for broker in BROKERS]

#: Seconds from the signal until what waited is on its queue again: 3 are promised, of a machine that is not busy.
RETURN_S = 15.0

#: Seconds from the end of the last batch until the worker is gone: 5 are promised.
END_S = 20.0

#: Seconds for what a test does not measure.
LONG_S = 40.0


def ready(worker: WorkerProcess) -> int:
    """How many messages are on the queue, for any worker to take."""
    with worker.app.connection_for_read() as connection, suppress(ChannelError):  # on Redis no list is an empty one
        count: int = connection.default_channel.queue_declare(worker.live.site.queue, passive=True).message_count
        return count
    return 0


def wait_for_ready(worker: WorkerProcess, count: int, timeout: float = RETURN_S) -> None:
    """Wait until so many messages are on the queue."""
    wait_until(lambda: ready(worker) == count, f"{count} messages are on the queue", timeout, saw=worker.log)


def wait_for_end(worker: WorkerProcess, timeout: float = END_S) -> int:
    """The exit status of a worker that ends in time and leaves no process."""
    processes = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    wait_until(lambda: not worker.running, "the worker ends", timeout, saw=worker.log)
    # A process that was killed takes a moment to go.
    wait_until(lambda: not any(map(lives, processes[1:])), "its processes have ended", END_S, saw=lambda: processes)
    return worker.wait()


def lives(process: psutil.Process) -> bool:
    """Whether a process, which may end at any moment, has not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def runs_of(worker: WorkerProcess) -> Counter[int]:
    """How often each item has run, on any worker."""
    return Counter(x for entry in worker.journal.entries("run") for x in entry["items"])


@pytest.mark.parametrize("how", ["signal", "control"])
@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_what_waits_is_back_while_the_batch_runs(start_worker: WorkerFixture, pool: str, broker: str, how: str) -> None:
    """The batch runs on and is settled, no other starts, and the next worker takes what waited (cases 43, 46, 47)."""
    worker = start_worker("ending", pool=pool, broker=broker, extra=["--without-heartbeat"])
    double = worker.task("double")

    with busy(worker, double) as running:
        waiting = [double.delay(x) for x in range(1, 7)]
        wait_for_waiting(worker, 6)
        if how == "signal":
            worker.signal(signal.SIGTERM)
        else:
            worker.app.control.shutdown(destination=[worker.node])
        wait_for_ready(worker, 6)
        assert worker.running
        assert not worker.journal.entries("ran")
    assert 0 == wait_for_end(worker)

    assert 0 == running.get(timeout=LONG_S)
    assert {0: 1} == runs_of(worker)
    wait_for_ready(worker, 6)
    start_worker("ending", site=worker.live)
    assert [2 * x for x in range(1, 7)] == [item.get(timeout=LONG_S) for item in waiting]
    assert dict.fromkeys(range(7), 1) == runs_of(worker)
    assert [0, 1, 2, 3, 4, 5, 6] == [x for entry in worker.journal.entries("run") for x in entry["items"]]


@pytest.mark.parametrize("broker", BROKERS)
def test_a_solo_worker_ends_after_its_batch(start_worker: WorkerFixture, broker: str) -> None:
    """Where the loop stands still during a batch, all else is back on the queue when it ends (case 47)."""
    worker = start_worker("ending", pool="solo", broker=broker)
    double = worker.task("double")

    with busy(worker, double) as running:
        waiting = [double.delay(x) for x in range(1, 7)]
        worker.signal(signal.SIGTERM)
        worker.wait_for(lambda: "Warm shutdown" in worker.log(), "the shutdown begins")
    assert 0 == wait_for_end(worker)

    assert 0 == running.get(timeout=LONG_S)
    wait_for_ready(worker, 6)  # RabbitMQ puts back what a worker held as soon as it sees the connection end
    start_worker("ending", site=worker.live)
    assert [2 * x for x in range(1, 7)] == [item.get(timeout=LONG_S) for item in waiting]
    assert dict.fromkeys(range(7), 1) == runs_of(worker)


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_what_is_parked_is_back_too(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """So is what waits for its time, for a rate limit, or for company."""
    worker = start_worker("ending", pool=pool, broker=broker)
    double, slowed, patient = (worker.task(name) for name in ("double", "slowed", "patient"))

    assert 2 == slowed.delay(1).get(timeout=LONG_S)  # the one of this hour
    with busy(worker, double):
        double.apply_async((1,), countdown=600)
        slowed.delay(2)
        slowed.delay(3)
        for x in (4, 5, 6):
            patient.delay(x)
        wait_for_waiting(worker, 3)
        wait_until(lambda: worker.inspect("scheduled"), "one is parked")
        worker.signal(signal.SIGTERM)
        wait_for_ready(worker, 6)
    assert 0 == wait_for_end(worker)
    wait_for_ready(worker, 6)
    worker.live.purge()


@pytest.mark.parametrize("broker", BROKERS)
def test_what_waits_survives_a_kill(open_site: SiteFixture, start_worker: WorkerFixture, broker: str) -> None:
    """Items that wait for company when their worker is killed are on the queue again soon (case 43)."""
    site = open_site(broker=broker, settings={"batching_lease": 1.0})
    worker = start_worker("ending", site=site)
    patient = worker.task("patient")
    items = [patient.delay(x) for x in (1, 2, 3)]
    wait_for_waiting(worker, 3)

    worker.kill()

    other = start_worker("ending", site=site)
    wait_for_waiting(other, 3)
    items.append(patient.delay(4))
    assert [2, 4, 6, 8] == [item.get(timeout=LONG_S) for item in items]


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_a_worker_under_load_ends_in_time(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """A worker that is stopped amid a stream of batches is gone within 5 s, and each item runs once."""
    worker = start_worker("ending", pool=pool, concurrency=2, broker=broker)
    double = worker.task("double")
    items = [double.delay(x) for x in range(200)]
    worker.journal.wait_for("run", 5)

    worker.signal(signal.SIGTERM)
    assert 0 == wait_for_end(worker)
    start_worker("ending", site=worker.live)

    assert [2 * x for x in range(200)] == [item.get(timeout=LONG_S) for item in items]
    assert {1} == set(runs_of(worker).values())


@pytest.mark.parametrize("warm_first", [False, True])
@pytest.mark.parametrize("broker", BROKERS)
def test_a_cold_shutdown_returns_all(start_worker: WorkerFixture, broker: str, warm_first: bool) -> None:
    """SIGQUIT ends the running batch with its process, also after SIGTERM; all of it is back on the queue."""
    worker = start_worker("ending", broker=broker)
    double = worker.task("double")

    with busy(worker, double) as running:
        waiting = [double.delay(x) for x in range(1, 7)]
        wait_for_waiting(worker, 6)
        if warm_first:
            worker.signal(signal.SIGTERM)
            wait_for_ready(worker, 6)
        worker.signal(signal.SIGQUIT)
        wait_for_end(worker)
        wait_for_ready(worker, 7)

    start_worker("ending", site=worker.live)
    assert [2 * x for x in range(7)] == [item.get(timeout=LONG_S) for item in (running, *waiting)]
    assert {**dict.fromkeys(range(1, 7), 1), 0: 2} == runs_of(worker)


@pytest.mark.parametrize("pool", ["threads", "solo"])
@pytest.mark.parametrize("broker", BROKERS)
def test_a_batch_that_cannot_be_killed_ends_first(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """Where the model runs in the worker's own process a cold shutdown waits for the batch, and settles it."""
    worker = start_worker("ending", pool=pool, broker=broker)
    double = worker.task("double")

    with busy(worker, double) as running:
        waiting = [double.delay(x) for x in range(1, 7)]
        if pool == "threads":  # Celery talks to the broker in its signal handler, which must not fall into a read
            wait_for_waiting(worker, 6)
        worker.signal(signal.SIGQUIT)
        worker.wait_for(lambda: "runs to its end" in worker.log(), "the shutdown begins")
    wait_for_end(worker)

    assert 0 == running.get(timeout=LONG_S)
    wait_for_ready(worker, 6)  # RabbitMQ puts back what a worker held as soon as it sees the connection end
    start_worker("ending", site=worker.live)
    assert [2 * x for x in range(1, 7)] == [item.get(timeout=LONG_S) for item in waiting]
    assert dict.fromkeys(range(7), 1) == runs_of(worker)


@pytest.mark.parametrize("in_time", [True, False])
@pytest.mark.parametrize("broker", BROKERS)
def test_a_soft_shutdown_gives_the_batch_time(
    open_site: SiteFixture, start_worker: WorkerFixture, broker: str, in_time: bool
) -> None:
    """A batch that ends within `worker_soft_shutdown_timeout` is settled, another one is back on the queue."""
    # Celery always waits for all of it.
    soft_s = 6.0 if in_time else 1.5
    site = open_site(broker=broker, settings={"worker_soft_shutdown_timeout": soft_s})
    worker = start_worker("ending", site=site)
    double = worker.task("double")

    with busy(worker, double) as running:
        waiting = [double.delay(x) for x in range(1, 7)]
        wait_for_waiting(worker, 6)
        worker.signal(signal.SIGQUIT)
        worker.wait_for(lambda: "Initiating Soft Shutdown" in worker.log(), "the shutdown begins")
        if in_time:
            worker.journal.let_through()
        wait_for_end(worker, soft_s + END_S)
        wait_for_ready(worker, 7 - in_time)

    start_worker("ending", site=worker.live)
    assert [2 * x for x in range(7)] == [item.get(timeout=LONG_S) for item in (running, *waiting)]
    assert {**dict.fromkeys(range(1, 7), 1), 0: 2 - in_time} == runs_of(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_setup_does_not_delay_the_end(open_site: SiteFixture, start_worker: WorkerFixture, number: int) -> None:
    """A worker that still loads its model is gone within seconds, and has kept nothing."""
    site = open_site()
    with site.journal.closed_gate("setup"):
        worker = start_worker("ending", site=site, concurrency=2, wait_ready=False)
        site.journal.wait_for("setup", 2, timeout=LONG_S)
        item = worker.task("double").delay(1)
        worker.wait_for(worker.ping, "the worker answers", LONG_S)
        worker.signal(signal.Signals(number))
        wait_for_end(worker)
        wait_for_ready(worker, 1)
    start_worker("ending", site=site)
    assert 2 == item.get(timeout=LONG_S)


def test_a_setup_in_a_solo_worker_does_not_delay_its_end(open_site: SiteFixture, start_worker: WorkerFixture) -> None:
    """The solo pool loads the model before Celery handles signals: the first one ends the process."""
    site = open_site()
    with site.journal.closed_gate("setup"):
        worker = start_worker("ending", site=site, pool="solo", wait_ready=False)
        site.journal.wait_for("setup", timeout=LONG_S)
        worker.signal(signal.SIGTERM)
        assert -signal.SIGTERM == wait_for_end(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_second_signal_ends_a_setup_in_a_thread(
    open_site: SiteFixture, start_worker: WorkerFixture, number: int
) -> None:
    """A thread cannot be interrupted; the next signal ends the process, which holds nothing by then."""
    site = open_site()
    with site.journal.closed_gate("setup"):
        worker = start_worker("ending", site=site, pool="threads", wait_ready=False)
        site.journal.wait_for("setup", timeout=LONG_S)
        item = worker.task("double").delay(1)
        worker.wait_for(worker.ping, "the worker answers", LONG_S)
        worker.signal(signal.Signals(number))
        worker.wait_for(lambda: "or with the next signal" in worker.log(), "the worker waits for its setup")
        worker.signal(signal.Signals(number))
        wait_for_end(worker)
    start_worker("ending", site=site)
    assert 2 == item.get(timeout=LONG_S)


@pytest.mark.parametrize("task", ["double", "double_alone"])
def test_a_job_that_no_process_has_accepted_ends_with_the_worker(start_worker: WorkerFixture, task: str) -> None:
    """What was written to a process is run there and its result read, also of a plain task: the process waits for that.

    So it was with the worker's own first job, when the signal came just after "ready".
    """
    worker = start_worker("control", loglevel="DEBUG")
    (child,) = worker.children()
    assert 2 == worker.task(task).delay(1).get(timeout=LONG_S)  # else the process may stop before its setup is known
    wait_until(lambda: not worker.live.leftovers(), "it has told the end of that job, too")
    written = jobs_written(worker)

    os.kill(child, signal.SIGSTOP)
    try:
        result = worker.task(task).delay(3)
        wait_until(lambda: jobs_written(worker) > written, "the job is on its way to the process")
        worker.signal(signal.SIGTERM)
        wait_until(lambda: "Stopping Pool" in worker.log(), "the worker waits for its pool", saw=worker.log)
    finally:
        os.kill(child, signal.SIGCONT)

    assert 0 == wait_for_end(worker)
    assert 6 == result.get(timeout=LONG_S)


@pytest.mark.parametrize(("option", "most"), [("--max-tasks-per-child=2", 2), ("--max-memory-per-child=1", 1)])
def test_a_process_is_replaced_after_so_many_batches(start_worker: WorkerFixture, option: str, most: int) -> None:
    """Celery's limits of a pool process count a batch as one task; every item is answered all the same."""
    worker = start_worker("ending", extra=[option])
    double = worker.task("double")

    with busy(worker, double):
        items = [double.delay(x) for x in range(1, 2 * SIZE + 1)]
        wait_for_waiting(worker, 2 * SIZE)

    assert [2 * x for x in range(1, 2 * SIZE + 1)] == [item.get(timeout=LONG_S) for item in items]
    batches = Counter(entry["pid"] for entry in worker.journal.entries("run"))
    assert most >= max(batches.values())
    assert len(batches) > 1
    assert dict.fromkeys(range(2 * SIZE + 1), 1) == runs_of(worker)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_pool_restart_loses_nothing(open_site: SiteFixture, start_worker: WorkerFixture, broker: str) -> None:
    """`celery control pool_restart` during a batch: it ends, and fresh processes take what waits."""
    site = open_site(broker=broker, settings={"worker_pool_restarts": True})
    worker = start_worker("ending", site=site)
    double = worker.task("double")

    with busy(worker, double) as running:
        items = [double.delay(x) for x in range(1, 7)]
        wait_for_waiting(worker, 6)
        worker.app.control.broadcast("pool_restart", destination=[worker.node], reply=True, timeout=5.0)

    assert [2 * x for x in range(7)] == [item.get(timeout=LONG_S) for item in (running, *items)]
    wait_until(lambda: len({entry["pid"] for entry in worker.journal.entries("setup")}) == 2, "a fresh process")
    assert dict.fromkeys(range(7), 1) == runs_of(worker)
