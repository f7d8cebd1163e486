"""The scenarios that need settings of the app, and so workers of their own."""

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


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.settings], ids=lambda one: one.name)
def test_the_settings_mean_the_same_to_a_batch_task(shared_worker: WorkerFixture, scenario: Scenario) -> None:
    """With other settings, too, an item is treated like the same call of a plain task."""
    worker = shared_worker(MODULE, extra=["-E"], settings=dict(scenario.settings))
    assert_same_as_plain(worker, scenario)
