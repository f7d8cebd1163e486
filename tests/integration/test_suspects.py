"""Where a crash of the model ends the whole worker, what it held comes back one at a time: it may have done it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.test_reconnect import BACK_S, lose_connection
from tests.support.busy import busy, wait_for_waiting
from tests.support.sites import LiveSite
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

WAIT_S = 60.0

#: Each worker answers, on the average, half of the good items that are left before it meets the killer.
MOST_WORKERS = 20


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_an_item_that_ends_its_worker_takes_no_other_with_it_again(
    open_site: SiteFixture, start_worker: WorkerFixture, broker: str
) -> None:
    """On threads an item ends the worker; on the next ones each item runs alone until all others are answered."""
    site = open_site(broker=broker, settings={"batching_lease": 1.0})
    worker = start_worker("faulty", site=site, pool="threads")
    deadly = worker.task("exits")
    with busy(worker, deadly):
        items = [deadly.delay(-1 if x == 3 else x) for x in range(1, 9)]
        wait_for_waiting(worker, 8)
    good = [item for x, item in enumerate(items, 1) if x != 3]

    worker.wait(WAIT_S)
    seen = len(worker.journal.entries("run"))
    for _ in range(MOST_WORKERS):
        worker = start_worker("faulty", site=site, pool="threads", wait_ready=False)
        worker.wait(WAIT_S)
        if all(item.ready() for item in good):
            break

    assert [2 * x for x in range(1, 9) if x != 3] == [item.get(timeout=WAIT_S) for item in good]
    assert {1} == {len(entry["items"]) for entry in worker.journal.entries("run")[seen:]}
    site.purge()  # the killer would end any worker


def test_items_that_waited_through_a_reconnect_are_no_suspects(start_worker: WorkerFixture) -> None:
    """They are delivered again, but have ended nothing: they share a batch."""
    worker = start_worker("control", pool="threads", broker="rabbitmq")
    double = worker.task("double")

    with busy(worker, double):
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        lose_connection(worker)
        worker.wait_for(worker.ping, "the worker answers again")
        wait_for_waiting(worker, 3)

    assert [2, 4, 6] == [item.get(timeout=BACK_S) for item in items]
    assert [1, 2, 3] in [sorted(entry["items"]) for entry in worker.journal.entries("run")]
