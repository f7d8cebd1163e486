"""What goes wrong around a lean call, and what a stock one would do then."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult
from kombu import Queue

from celery_batching import BatchTask
from celery_batching.client.result import BatchResult
from tests.support.busy import busy
from tests.support.redis_server import RedisServer
from tests.support.site import OwnTasksCelery
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

#: Celery 5.6 calls what redis-py has deprecated.
pytestmark = [pytest.mark.any_celery, pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")]

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]
RedisFixture = Callable[..., RedisServer]


def test_a_result_is_waited_for_in_a_forked_process(start_worker: WorkerFixture) -> None:
    """The child has the parent's result and none of its threads."""
    worker = start_worker("lean")
    double = worker.task("double")
    double.delay(1).get(timeout=40)
    reading, writing = os.pipe()
    with busy(worker, double) as running:
        pid = os.fork()
        if pid == 0:
            try:
                os.write(writing, json.dumps(running.get(timeout=30)).encode())
            finally:
                os._exit(0)
    os.close(writing)
    assert 0 == json.loads(os.read(reading, 100))
    assert 0 == running.get(timeout=40)
    os.waitpid(pid, 0)
    os.close(reading)


def test_a_result_that_cannot_be_decoded_harms_no_other(start_worker: WorkerFixture) -> None:
    """Its caller gets the error, the others their answers, though all must be looked for."""
    worker = start_worker("lean", env={"CELERY_BATCHING_BULK": "0"})  # tells no process of results
    double = worker.task("double")
    double.delay(1).get(timeout=40)
    with busy(worker, double) as running:
        bad, good = double.delay(2), double.delay(3)
        bad_key = double.backend.get_key_for_task(bad.id)
        worker.live.backend.client.setex(bad_key, 60, "no JSON")
        with pytest.raises(Exception, match=r"Expecting value|JSON"):
            bad.get(timeout=30)
        worker.live.backend.client.delete(bad_key)
    assert [0, 6] == [running.get(timeout=30), good.get(timeout=30)]


def test_an_id_may_be_used_again_when_its_result_is_forgotten(start_worker: WorkerFixture) -> None:
    """The second call gets its own result, though the first one's is still at hand."""
    worker = start_worker("lean")
    double = worker.task("double")
    double.delay(0).get(timeout=40)
    first = double.apply_async((1,), task_id="again")
    assert 2 == first.get(timeout=30)
    first.forget()
    # Until then the worker takes another message of that id for the same call.
    wait_until(lambda: not worker.live.broker.leftovers(), "the worker is done with it")
    second = double.apply_async((2,), task_id="again")
    assert 4 == second.get(timeout=30)


def test_an_id_that_is_none_is_refused_at_the_call(open_site: SiteFixture) -> None:
    """As by a stock call, which fails before it sends."""
    live = open_site()
    double = live.app("lean").tasks["lean.double"]
    double.delay(0)
    waits = live.broker.client.llen(live.site.queue)
    with pytest.raises(TypeError):
        double.apply_async((1,), task_id=123)
    assert waits == live.broker.client.llen(live.site.queue)
    live.broker.client.delete(live.site.queue)


def test_calls_renew_the_life_of_a_queue_that_expires(open_site: SiteFixture) -> None:
    """Each message does, as stock ones do."""
    live = open_site()
    app = live.app("lean")
    double = app.tasks["lean.double"]
    double.delay(0)
    queue = Queue(f"{live.site.queue}.short", routing_key=f"{live.site.queue}.short", expires=100)
    for _ in range(3):
        double.apply_async((1,), queue=queue)
        live.broker.client.pexpire(queue.name, 1000)
        double.apply_async((1,), queue=queue)
        assert live.broker.client.pttl(queue.name) > 50_000
    live.broker.client.delete(live.site.queue, queue.name)


def test_a_result_class_of_ones_own_is_kept(open_site: SiteFixture) -> None:
    """Of an app, and of a task."""
    live = open_site()

    class Own(AsyncResult):
        def hello(self) -> str:
            return "hello"

    class OwnApp(OwnTasksCelery):
        AsyncResult = Own

    class Plain(BatchTask):
        name = "own.plain"

        def run(self, xs: list[int]) -> list[int]:
            return xs

    class OwnTask(Plain):
        name = "own.task"

        def AsyncResult(self, task_id: str, **kwargs: Any) -> Own:  # noqa: N802 - Celery's name
            return Own(task_id, app=self.app)

    place = {"broker": live.site.broker_url, "backend": live.site.backend_url, "set_as_current": False}
    for app, task in ((OwnApp("a", **place), Plain()), (Celery("b", **place), OwnTask())):
        app.conf.task_default_queue = live.site.queue
        own: Any = app.register_task(task)
        assert ["hello"] * 2 == [own.delay(1).hello() for _ in range(2)]
        app.close()
    live.broker.client.delete(live.site.queue)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_threads_may_share_a_backend(open_site: SiteFixture, start_worker: WorkerFixture, pool: str) -> None:
    """With `result_backend_thread_safe` the batches of all threads store by one object."""
    site = open_site(settings={"result_backend_thread_safe": True})
    worker = start_worker("lean", site=site, pool=pool, concurrency=4)
    double = worker.task("double")
    results = double.delay_many(range(600))
    assert [2 * x for x in range(600)] == results.get(timeout=60)


def test_calls_are_answered_soon_after_an_outage_of_the_backend(
    start_redis: RedisFixture, open_site: SiteFixture, start_worker: WorkerFixture
) -> None:
    """What comes back after some seconds is noticed within one."""
    server = start_redis("--appendonly", "yes")
    worker = start_worker("lean", site=open_site(redis=server))
    double = worker.task("double")
    assert 2 == double.delay(1).get(timeout=40)
    server.stop()
    server.start()
    policy = {"max_retries": 1000, "interval_start": 0.1, "interval_step": 0}
    assert 4 == double.apply_async((2,), retry_policy=policy).get(timeout=60)
    result = double.delay(3)
    assert isinstance(result, BatchResult)
    assert 6 == result.get(timeout=30)
    wait_until(lambda: double.delay(4).get(timeout=30) == 8, "calls are answered")
