"""The scenarios without a worker: direct calls, `apply()` and `task_always_eager`, in this process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from celery.result import EagerResult

from tests.integration.differential.scenarios import ACKS, CALLBACKS, HANDLERS, HEADERS, RESULTS, RETRIES
from tests.support.apps.differential import make_app, middle
from tests.support.recorder import FAILED, Recorder, describe
from tests.support.scenario import PLAIN, Kit, Scenario
from tests.support.site import Site
from tests.support.traces import POOL, Seen, Trace, difference, stream_of

Call = Callable[[Kit], Any]

#: How a task may be called without a worker.
WAYS: dict[str, Call] = {
    "direct call": lambda kit: kit.item(1)(),
    "apply": lambda kit: kit.item(1).apply(throw=True),
    "always eager": lambda kit: kit.scenario.send(kit),
}

#: Nothing waits here, and nothing could be killed.
EAGER = [one for one in RESULTS + ACKS + RETRIES + HEADERS + CALLBACKS + HANDLERS if one.entries]


class Notebook(list[Seen]):
    """What a recorder writes in this process."""

    def write(self, what: str, **entry: Any) -> None:
        """Take an entry of the recorder."""
        self.append(Seen(entry.get("id", ""), stream_of(what), what, entry))


@pytest.fixture(scope="module")
def notebook() -> Notebook:
    """Where the module's app is recorded."""
    return Notebook()


@pytest.fixture(scope="module")
def app(notebook: Notebook) -> Iterator[Celery]:
    """An app that needs no servers."""
    recorder = Recorder(notebook.write)
    app = make_app(Site(), recorder)
    app.conf.update(task_always_eager=True, task_store_eager_result=True)
    with pytest.MonkeyPatch.context() as patch, recorder.listening():
        patch.setattr(random, "randrange", middle)
        yield app


@pytest.mark.parametrize("scenario", EAGER, ids=lambda one: one.name)
@pytest.mark.parametrize("way", WAYS)
def test_without_a_worker(app: Celery, notebook: Notebook, way: str, scenario: Scenario) -> None:
    """Called in the same process a batch task gives the same value or error, with the same signals and handlers."""

    def trace(kind: str) -> Trace:
        notebook.clear()
        outcome = outcome_of(WAYS[way], Kit(app, scenario, kind, "the tag"))
        assert FAILED not in [one.what for one in notebook]
        return [Seen("the call", POOL, "its outcome", outcome), *notebook]

    plain = trace(PLAIN)
    for kind in scenario.kinds:
        if kind.startswith("alone"):
            names = {scenario.task_name(one): "TASK" for one in (PLAIN, kind)}
            assert "" == difference(plain, trace(kind), names)


def outcome_of(call: Call, kit: Kit) -> Any:
    """What the caller gets: a value, an error, or a result with its state and what is stored of it."""
    try:
        given = call(kit)
    except Exception as error:
        return {"raised": describe(error)}
    if not isinstance(given, EagerResult):
        return {"returned": describe(given)}
    result = {"state": given.state, "result": describe(given.result), "traceback": given.traceback}
    return {**result, "stored": describe(kit.app.backend.get_task_meta(given.id, cache=False))}
