"""The scenarios on other pools and brokers: one of each kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.differential.scenarios import SCENARIOS
from tests.support.comparison import assert_same_as_plain
from tests.support.scenario import MODULE, Scenario
from tests.support.worker_process import WorkerProcess

#: Celery 5.6 calls what redis-py has deprecated.
pytestmark = [pytest.mark.any_celery, pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")]

WorkerFixture = Callable[..., WorkerProcess]

#: One scenario of each kind; none that a pool without processes cannot do in stock Celery, such as time limits.
CORE = {
    *("all fates in one batch", "an item is answered", "an item fails", "a result cannot be encoded"),
    *("the call ignores its error", "early ack", "no ack on failure", "Reject", "Reject puts back", "retry"),
    *("autoretry is used up", "countdown", "expired on arrival", "rate limit", "headers", "stamps", "several links"),
    *("old errback", "new errback", "chain", "chord with a failing member", "replaces a plain task in a chord"),
    *("before_start calls a task", "before_start retries", "on_success fails"),
}

PLACES = [{"pool": "solo"}, {"pool": "threads"}, {"broker": "rabbitmq"}]


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.name in CORE], ids=lambda one: one.name)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: next(iter(place.values())))
def test_a_batch_task_does_the_same_elsewhere(
    shared_worker: WorkerFixture, scenario: Scenario, place: dict[str, str]
) -> None:
    """On each pool and broker an item is treated like the same call of a plain task."""
    worker = shared_worker(MODULE, extra=["-E"], **place)
    assert_same_as_plain(worker, scenario)
