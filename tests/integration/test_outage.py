"""The broker or the result backend is away for a while: every call is answered, and the model runs once for each."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from celery import Celery

from tests.integration.test_reconnect import lose_connection
from tests.support.apps.outage import QUORUM, SIZE
from tests.support.busy import busy, wait_for_waiting
from tests.support.leased import Record
from tests.support.missing import ServerMissingError, skip_or_fail
from tests.support.rabbitmq_server import RabbitMQServer
from tests.support.redis_server import RedisServer
from tests.support.sites import LiveSite, RabbitMQQueue
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]
RedisFixture = Callable[..., RedisServer]

#: Seconds for a worker to be back at work after an outage.
BACK_S = 40.0

#: A server that has after a restart what it had before.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")

#: How often the connection is cut while a worker's memory is watched.
CUTS = 30

#: MiB by which a worker may differ from itself after `CUTS` reconnects (it does by far less).
SAME_MIB = 8


def pause(seconds: float) -> None:
    """Let the time of an outage pass."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, "time passes", seconds + 5)


def runs_of(worker: WorkerProcess) -> Counter[int]:
    """How often each item has run."""
    return Counter(x for entry in worker.journal.entries("run") for x in entry["items"])


def assert_works_as_before(worker: WorkerProcess, pid: int) -> None:
    """It is the same process, and its timers and its prefetch are right."""
    assert worker.running
    assert pid == worker.pid
    with fresh_pool(worker.app):
        assert_answers(worker)


@contextmanager
def fresh_pool(app: Celery) -> Iterator[None]:
    """New connections for the client, whose own were broken too; remote control would stumble over them."""
    broken, app._pool = app.pool, app.connection_for_write().Pool(5)
    try:
        yield
    finally:
        app._pool.force_close_all()
        app._pool = broken


def assert_answers(worker: WorkerProcess) -> None:
    """A lone item leaves after `max_wait`, and the next batch fills while one runs."""
    wait_until(worker.ping, "the worker answers", BACK_S)
    assert 200 == worker.task("slow").delay(100).get(timeout=BACK_S)
    wait_until(lambda: "wait" in [line.reason for line in worker.batches()], "it has waited", saw=worker.batches)
    if worker.options.pool == "solo":
        return  # which answers nothing while a batch runs
    runs = len(worker.journal.entries("run"))
    double = worker.task("double")
    with worker.journal.closed_gate():
        items = [double.delay(200)]
        worker.journal.wait_for("run", runs + 1)
        items += [double.delay(x) for x in range(201, 201 + SIZE)]
        wait_for_waiting(worker, SIZE)
    assert [2 * x for x in range(200, 201 + SIZE)] == [item.get(timeout=BACK_S) for item in items]
    assert SIZE == len(worker.journal.entries("run")[-1]["items"])


@pytest.mark.parametrize(("pool", "away_s"), [("prefork", 10.0), ("threads", 2.0), ("solo", 2.0)])
def test_redis_is_away_in_the_middle_of_a_batch(
    start_redis: RedisFixture, open_site: SiteFixture, start_worker: WorkerFixture, pool: str, away_s: float
) -> None:
    """For longer than the lease: what runs and what waits runs once, and the worker goes on as before (38, 39)."""
    server = start_redis(*DURABLE)
    live = open_site(redis=server, settings={"batching_lease": 1.5})
    worker = start_worker("outage", site=live, pool=pool)
    pid, double = worker.pid, worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2, 3)]
        if pool != "solo":
            wait_for_waiting(worker, 3)
        server.stop()
        pause(away_s)
        server.start()
        if pool != "solo":
            worker.wait_for(lambda: worker.log().count("Connected to") > 1, "it connects again", BACK_S)

    assert [0, 2, 4, 6] == [item.get(timeout=BACK_S) for item in (running, *items)]
    assert {0: 1, 1: 1, 2: 1, 3: 1} == runs_of(worker)
    assert_works_as_before(worker, pid)


def test_a_batch_ends_while_redis_is_away(
    start_redis: RedisFixture, open_site: SiteFixture, start_worker: WorkerFixture
) -> None:
    """Its results are stored and its messages acked when the server is back, and nothing runs twice (case 39)."""
    server = start_redis(*DURABLE)
    live = open_site(redis=server, settings={"result_backend_always_retry": True})
    worker = start_worker("outage", site=live)
    pid, double = worker.pid, worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        server.stop()
    worker.journal.wait_for("ran")
    pause(1.0)
    server.start()

    assert [0, 2, 4, 6] == [item.get(timeout=BACK_S) for item in (running, *items)]
    assert {0: 1, 1: 1, 2: 1, 3: 1} == runs_of(worker)
    assert_works_as_before(worker, pid)


@pytest.fixture(scope="module")
def own_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQServer]:
    """A node to restart: the other tests' clients keep connections to theirs."""
    if os.environ.get("BATCHING_RABBITMQ_URL"):
        pytest.skip("a node that the environment names is not restarted")
    try:
        node = RabbitMQServer(tmp_path_factory.mktemp("rabbitmq"))
    except ServerMissingError as error:
        skip_or_fail(str(error))
    with node:
        yield node


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_rabbitmq_restarts_in_the_middle_of_a_batch(
    own_rabbitmq: RabbitMQServer, open_site: SiteFixture, start_worker: WorkerFixture, pool: str
) -> None:
    """The broker stops and starts: what runs and what waits runs once, and the worker goes on as before (38, 39)."""
    live = open_site()
    queue = RabbitMQQueue(own_rabbitmq, live.site.queue)
    site = dataclasses.replace(live.site, broker_url=own_rabbitmq.url)
    worker = start_worker("outage", pool=pool, site=LiveSite(site, queue, live.backend))
    pid, double = worker.pid, worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        own_rabbitmq.restart_broker()
        worker.wait_for(lambda: worker.log().count("Connected to") > 1, "it connects again", BACK_S)

    assert [0, 2, 4, 6] == [item.get(timeout=BACK_S) for item in (running, *items)]
    assert {0: 1, 1: 1, 2: 1, 3: 1} == runs_of(worker)
    assert_works_as_before(worker, pid)
    wait_until(lambda: not queue.leftovers(), "all are acked", saw=queue.leftovers)


@pytest.mark.parametrize(("broker", "quorum"), [("redis", False), ("rabbitmq", False), ("rabbitmq", True)])
def test_the_prefetch_is_whole_after_a_reconnect_in_a_batch(
    start_worker: WorkerFixture, broker: str, quorum: bool
) -> None:
    """Celery lowers it while the items of the lost connection run, and then holds as many as before (case 40)."""
    worker = start_worker("outage", broker=broker, concurrency=2, settings={QUORUM: quorum})
    double, most = worker.task("double"), worker.inspect("stats")["prefetch_count"]
    with worker.journal.closed_gate():
        items = [double.delay(x) for x in range(2 * SIZE)]
        worker.journal.wait_for("run", 2)
        lose_connection(worker)
    assert [2 * x for x in range(2 * SIZE)] == [item.get(timeout=BACK_S) for item in items]
    wait_until(lambda: not worker.live.leftovers(), "all are acked", saw=worker.live.leftovers)

    runs = len(worker.journal.entries("run"))
    with worker.journal.closed_gate():
        items = [double.delay(x) for x in range(most + SIZE)]
        worker.journal.wait_for("run", runs + 2)
        running = sum(len(entry["items"]) for entry in worker.journal.entries("run")[runs:])
        wait_for_waiting(worker, most - running)
    assert [2 * x for x in range(most + SIZE)] == [item.get(timeout=BACK_S) for item in items]


@dataclasses.dataclass
class Apart:
    """A site whose result backend is a server of its own."""

    live: LiveSite
    backend: RedisServer


@pytest.fixture
def apart(start_redis: RedisFixture, open_site: SiteFixture) -> Callable[..., Apart]:
    """`apart({"result_backend_always_retry": True})`: a site with these settings."""

    def make(settings: dict[str, Any]) -> Apart:
        server = start_redis(*DURABLE)
        live, other = open_site(settings=settings), open_site(redis=server)
        site = dataclasses.replace(live.site, backend_url=other.site.backend_url)
        return Apart(LiveSite(site, live.broker, other.backend), server)

    return make


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_the_backend_is_away_when_the_model_has_run(
    apart: Callable[..., Apart], start_worker: WorkerFixture, pool: str
) -> None:
    """A batch and a plain task wait until their results can be stored; nothing is acked before, or runs again."""
    place = apart({"result_backend_always_retry": True})
    worker = start_worker("outage", site=place.live, pool=pool, concurrency=2)
    record = Record(place.live.broker.client)
    double, alone = worker.task("double"), worker.task("double_alone")
    with worker.journal.closed_gate():
        plain = alone.delay(10)
        worker.journal.wait_for("run")
        items = [double.delay(x) for x in range(3)]
        worker.journal.wait_for("run", 2)
        place.backend.stop()
    worker.journal.wait_for("ran", 2)
    pause(3.0)
    assert 4 == len(record.unacked)
    place.backend.start()

    assert 20 == plain.get(timeout=BACK_S)
    assert [0, 2, 4] == [item.get(timeout=BACK_S) for item in items]
    assert {10: 1, 0: 1, 1: 1, 2: 1} == runs_of(worker)
    wait_until(lambda: not record.unacked, "all are acked")
    record.close()


def test_without_retries_a_result_is_lost_as_that_of_a_plain_task(
    apart: Callable[..., Apart], start_worker: WorkerFixture
) -> None:
    """By default Celery does not try again: items end as the plain task does, and the next batch is answered."""
    place = apart({})
    worker = start_worker("outage", site=place.live, concurrency=2)
    record = Record(place.live.broker.client)
    double, alone = worker.task("double"), worker.task("double_alone")
    with worker.journal.closed_gate():
        plain = alone.delay(10)
        worker.journal.wait_for("run")
        items = [double.delay(x) for x in range(3)]
        worker.journal.wait_for("run", 2)
        place.backend.stop()
    wait_until(lambda: not record.unacked, "all are acked", BACK_S, saw=worker.log)
    place.backend.start()

    assert {"PENDING"} == {item.state for item in (plain, *items)}
    assert {10: 1, 0: 1, 1: 1, 2: 1} == runs_of(worker)
    assert 8 == double.delay(4).get(timeout=BACK_S)
    record.close()


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What a worker's main process has of the machine."""

    mib: float
    threads: int
    files: int

    @classmethod
    def of(cls, worker: WorkerProcess) -> Footprint:
        """Now."""
        process = psutil.Process(worker.pid)
        return cls(process.memory_info().rss / 2**20, process.num_threads(), process.num_fds())


@pytest.mark.any_celery
@pytest.mark.parametrize(("pool", "broker"), [("prefork", "redis"), ("threads", "rabbitmq")])
def test_a_worker_does_not_grow_with_its_reconnects(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """After many lost connections its memory, threads and files are what they were after the first few."""
    worker = start_worker("outage", pool=pool, broker=broker)
    double = worker.task("double")

    def reconnect_and_work() -> None:
        lose_connection(worker)
        assert 2 == double.delay(1).get(timeout=BACK_S)

    for _ in range(5):
        reconnect_and_work()
    before = Footprint.of(worker)
    for _ in range(CUTS):
        reconnect_and_work()

    def same() -> bool:
        after = Footprint.of(worker)
        grown = after.mib - before.mib
        return grown < SAME_MIB and after.threads <= before.threads + 1 and after.files <= before.files + 2

    wait_until(same, f"as small as {before}", saw=lambda: Footprint.of(worker))
