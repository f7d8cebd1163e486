"""The scenarios on the pool that Celery uses by default."""

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


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if not one.settings], ids=lambda one: one.name)
def test_a_batch_task_does_what_a_plain_task_does(shared_worker: WorkerFixture, scenario: Scenario) -> None:
    """Whatever can be seen of an item, alone in its batch or not, is what is seen of the same call of a plain task."""
    worker = shared_worker(MODULE, extra=["-E"])
    assert_same_as_plain(worker, scenario)
