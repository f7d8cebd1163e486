"""A worker that stood still for longer than its lease neither stores nor acks over the one that took over."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest

from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

#: A short lease, but longer than a busy machine lets a worker stand still, and results that tell who stored them.
SETTINGS = {"batching_lease": 4.0, "result_extended": True}

WAIT_S = 40.0


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_wakes_leaves_its_items_to_the_other(
    open_site: SiteFixture, start_worker: WorkerFixture, pool: str
) -> None:
    """Stopped in a batch, declared dead, continued: the other worker's results count, and the first works on."""
    site = open_site(settings=SETTINGS)
    first = start_worker("control", site=site, pool=pool)
    double = first.task("double")

    with first.journal.closed_gate():
        item = double.delay(1)
        first.journal.wait_for("run")
        psutil.Process(first.pid).send_signal(signal.SIGSTOP)
        other = start_worker("control", site=site, pool=pool)
        first.journal.wait_for("run", 2, timeout=WAIT_S)
        psutil.Process(first.pid).send_signal(signal.SIGCONT)
        first.wait_for(lambda: "was declared dead" in first.log(), "it knows that it was declared dead", WAIT_S)

    assert 2 == item.get(timeout=WAIT_S)
    assert other.node == item._get_task_meta()["worker"]
    first.wait_for(lambda: "is another worker's now" in first.log(), "it leaves the item to the other", WAIT_S)
    other.terminate()
    assert 6 == double.delay(3).get(timeout=WAIT_S)
    assert 2 == item.get(timeout=WAIT_S)


def test_an_item_that_comes_back_runs_again(open_site: SiteFixture, start_worker: WorkerFixture) -> None:
    """The worker that took over dies before it answers: the item returns to the first one, and is answered."""
    site = open_site(settings=SETTINGS)
    first = start_worker("control", site=site)
    double = first.task("double")

    with first.journal.closed_gate():
        item = double.delay(1)
        first.journal.wait_for("run")
        psutil.Process(first.pid).send_signal(signal.SIGSTOP)
        other = start_worker("control", site=site)
        first.journal.wait_for("run", 2, timeout=WAIT_S)
        psutil.Process(first.pid).send_signal(signal.SIGCONT)
        first.wait_for(lambda: "was declared dead" in first.log(), "it knows that it was declared dead", WAIT_S)
        other.kill()

    assert 2 == item.get(timeout=WAIT_S)
    wait_until(lambda: 6 == double.delay(3).get(timeout=WAIT_S), "the first works on")
