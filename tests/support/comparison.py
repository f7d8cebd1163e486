"""The comparison of a scenario's batch tasks with its plain one, on one worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.scenario import PLAIN, Scenario
from tests.support.stage import Stage, open_stage
from tests.support.traces import Trace, difference, states
from tests.support.worker_process import WorkerProcess


def assert_same_as_plain(worker: WorkerProcess, scenario: Scenario) -> None:
    """Fail with the lines in which the trace of a batched item differs from that of the plain call."""
    with open_stage(worker) as stage:
        traces = stage.play(scenario)
    if problems := list(differences(scenario, traces)) + list(partings(scenario, stage)):
        pytest.fail("\n".join(problems), pytrace=False)


def differences(scenario: Scenario, traces: dict[str, Trace]) -> Iterator[str]:
    """What stock Celery does otherwise than the table says, and our tasks otherwise than stock Celery."""
    oracles = {role: traces[f"{PLAIN}:{role}"] for role in ("itself", "neighbour")}
    oracles["itself"] = scenario.amend(oracles["itself"])
    if scenario.states != (stored := states(oracles["itself"])):
        yield f"the states of the plain task: {stored!r}, in the table: {scenario.states!r}"
    for tag, trace in traces.items():
        kind, _, role = tag.partition(":")
        oracle = "neighbour" if role.startswith("neighbour") else "itself"
        if kind == PLAIN or (scenario.spreads and kind == "mixed_raising" and oracle == "neighbour"):
            continue
        names = {f"{PLAIN}:{oracle}": "TAG", tag: "TAG"}
        names |= {scenario.task_name(one): "TASK" for one in (PLAIN, kind)}
        if found := difference(oracles[oracle], scenario.adapt(trace), names):
            yield f"{tag}:\n{found}"


def partings(scenario: Scenario, stage: Stage) -> Iterator[str]:
    """Which items should have shared a batch but did not; a solo worker receives nothing while it is busy."""
    shares = scenario.shares and stage.worker.options.pool != "solo"
    for kind in scenario.kinds if shares else ():
        name = scenario.task_name(kind)
        if (waiting := stage.waiting[name]) != (size := stage.first_batch(name)):
            yield f"{waiting} calls of {name} waited, and its first batch had {size}"
