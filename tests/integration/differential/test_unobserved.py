"""The scenarios in a worker where nobody would notice Celery's tracer: its items are spared it when they succeed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.integration.differential.scenarios import SCENARIOS
from tests.support.apps.differential import UNOBSERVED
from tests.support.comparison import assert_same_as_plain
from tests.support.scenario import MODULE, Scenario
from tests.support.worker_process import WorkerProcess

#: Celery 5.6 calls what redis-py has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

WorkerFixture = Callable[..., WorkerProcess]

#: Handlers that such a worker must not have.
OBSERVING = {"before_start", "on_success", "after_return"}


def without_started(scenario: Scenario) -> Scenario:
    """The same where it is not stored that a task has started."""
    of_tasks = [[state for state in of_task.split() if state != "STARTED"] for of_task in scenario.states.split(" / ")]
    return dataclasses.replace(scenario, states=" / ".join(" ".join(states) for states in of_tasks))


@pytest.mark.parametrize(
    "scenario",
    [without_started(one) for one in SCENARIOS if not one.settings and not OBSERVING & one.handlers.keys()],
    ids=lambda one: one.name,
)
def test_an_item_without_its_tracer_does_what_a_plain_task_does(
    shared_worker: WorkerFixture, scenario: Scenario
) -> None:
    """All that can be seen of an item all the same is what is seen of the same call of a plain task."""
    worker = shared_worker(MODULE, extra=["-E"], env={UNOBSERVED: "1"})
    assert_same_as_plain(worker, scenario)
