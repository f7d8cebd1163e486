"""The scenarios on other pools and brokers: one of each kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.differential.scenarios import SCENARIOS
from tests.support.comparison import assert_same_as_plain
from tests.support.scenario import MODULE, Scenario
from tests.support.worker_process import WorkerProcess

#: Celery 5.6 calls what redis-py has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

WorkerFixture = Callable[..., WorkerProcess]

PLACES = [
    {"pool": "threads"},
    {"pool": "solo"},
    {"broker": "rabbitmq"},
]


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if not one.settings], ids=lambda one: one.name)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: next(iter(place.values())))
def test_a_batch_task_does_the_same_elsewhere(
    shared_worker: WorkerFixture, scenario: Scenario, place: dict[str, str]
) -> None:
    """On each pool and broker an item is treated like the same call of a plain task."""
    worker = shared_worker(MODULE, extra=["-E"], **place)
    assert_same_as_plain(worker, scenario)
