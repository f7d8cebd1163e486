"""The states of a batch are read, written and acked in one round trip each; what Celery promises of them holds."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from celery.backends.redis import RedisBackend

from celery_batching._celery_internals import let_wait
from tests.support.busy import busy, wait_for_waiting
from tests.support.leased import Record
from tests.support.redis_server import RedisServer
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]
RedisFixture = Callable[..., RedisServer]

#: Items of a batch in these tests.
COUNT = 10

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

POOLS = pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])


class Calls:
    """How often a server has run each command since a moment."""

    def __init__(self, client: Any) -> None:
        """Begin now."""
        self._client = client
        self._before = self._counts()

    def now(self) -> Counter[str]:
        """Since then."""
        return self._counts() - self._before

    def _counts(self) -> Counter[str]:
        stats = self._client.info("commandstats")
        return Counter({name.removeprefix("cmdstat_"): int(entry["calls"]) for name, entry in stats.items()})


def with_backend(live: LiveSite, other: LiveSite) -> LiveSite:
    """The first site, whose results are stored at the second."""
    return LiveSite(dataclasses.replace(live.site, backend_url=other.site.backend_url), live.broker, other.backend)


@pytest.mark.parametrize("name", ["double", "tracked"])
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_batch_costs_a_round_trip_for_each_kind_of_work(
    start_redis: RedisFixture, open_site: SiteFixture, start_worker: WorkerFixture, pool: str, name: str
) -> None:
    """The old states are read at once, the new ones written at once, the acks sent at once.

    Where nobody would notice Celery's tracer, the server looks for old states while it writes.
    """
    live = open_site(redis=start_redis(), settings={"batching_lease": 1000})  # its renewals would count
    live = with_backend(live, open_site(redis=start_redis()))
    worker = start_worker("lean", site=live, pool=pool)
    task = worker.task(name)
    record = Record(live.broker.client)

    with busy(worker, task):
        items = [task.delay(x) for x in range(COUNT)]
        wait_for_waiting(worker, COUNT)
        stored, acked = Calls(live.backend.client), Calls(live.broker.client)
    wait_until(lambda: not record.unacked, "all are acked")
    calls = stored.now()

    assert 0 == calls["get"]
    assert calls["mget"] <= (4 if name == "tracked" else 1)  # a look of this process
    writes = {"double": {"set": COUNT + 1}, "tracked": {"setex": 2 * COUNT + 1}}[name]
    assert writes == {kind: calls[kind] for kind in ("set", "setex") if calls[kind]}
    assert calls["evalsha"] <= 3 + (name == "tracked")  # the first finds the script unknown
    assert acked.now()["evalsha"] <= 6  # two times acks, and pops
    assert [2 * x for x in range(COUNT)] == [item.get(timeout=30) for item in items]
    record.close()


@POOLS
def test_a_stored_success_stays(start_worker: WorkerFixture, pool: str) -> None:
    """An item whose id has a success already does not change it; its neighbours are stored."""
    worker = start_worker("lean", pool=pool)
    double = worker.task("double")
    double.backend.store_result("known", "stored before", "SUCCESS")
    with busy(worker, double):
        items = [double.apply_async((x,), task_id="known" if x == 1 else None) for x in range(3)]
    assert 4 == items[2].get(timeout=30)
    assert "stored before" == worker.app.AsyncResult("known").get(timeout=30)


@POOLS
def test_handlers_may_hold_a_lock_while_they_store(start_worker: WorkerFixture, pool: str) -> None:
    """Only Celery's own states wait for each other: a handler that waited under its lock would stop the others."""
    worker = start_worker("lean", pool=pool)
    locking = worker.task("locking")
    with busy(worker, locking):
        items = [locking.delay(x) for x in range(3)]
    assert [0, 2, 4] == [item.get(timeout=30) for item in items]
    told = [worker.app.AsyncResult(f"{item.id}.told").get(timeout=30) for item in items]
    assert [0, 2, 4] == told


def test_a_backend_without_scripts_stores_one_by_one(
    start_redis: RedisFixture, open_site: SiteFixture, start_worker: WorkerFixture
) -> None:
    """Where the results cannot be written at once, each is written as Celery does it."""
    server = start_redis("--rename-command", "EVALSHA", "HIDDEN", "--rename-command", "SCRIPT", "HIDDEN2")
    live = with_backend(open_site(), open_site(redis=server))
    worker = start_worker("lean", site=live)
    double = worker.task("double")
    with busy(worker, double):
        items = [double.delay(x) for x in range(COUNT)]
    assert [2 * x for x in range(COUNT)] == [item.get(timeout=30) for item in items]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_bulk_may_be_turned_off(
    start_redis: RedisFixture, open_site: SiteFixture, start_worker: WorkerFixture, pool: str
) -> None:
    """With `batching_bulk=False` Celery reads and writes each state, takes each message, and holds it for an hour."""
    live = open_site(settings={"batching_bulk": False})
    live = with_backend(live, open_site(redis=start_redis()))
    worker = start_worker("lean", site=live, pool=pool)
    double = worker.task("double")
    record = Record(live.broker.client)
    stored = Calls(live.backend.client)
    with busy(worker, double) as first:
        items = [double.delay(x) for x in (1, 2, -3)]
        wait_for_waiting(worker, 3)
        assert not record.living
    assert [0, 2, 4] == [item.get(timeout=30) for item in (first, *items[:2])]
    with pytest.raises(ValueError, match="-3"):
        items[2].get(timeout=30)
    assert 4 == stored.now()["setex"]
    assert 4 <= stored.now()["get"]
    wait_until(lambda: not record.unacked, "all are acked")
    record.close()


def test_backends_of_users_are_left_alone(open_site: SiteFixture) -> None:
    """A subclass may store in another way, so nothing of it is changed."""

    class Own(RedisBackend):
        pass

    app = open_site().app("lean")
    own = Own(app=app, url=app.conf.result_backend)
    assert not let_wait(own, lambda: None)
    assert Own is type(own)
