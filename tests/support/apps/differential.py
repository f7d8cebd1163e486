"""For each scenario a plain task and its batched twins, which do the same with an item; and their helpers."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

from celery import Celery, Task

from celery_batching import BatchTask
from tests.integration.differential.scenarios import SCENARIOS
from tests.support.deeds import DEEDS, Call
from tests.support.journal import Journal
from tests.support.recorder import OF_TRACER, RecordedEnds, RecordedHandlers, Recorder
from tests.support.scenario import MODULE, PLAIN, RAISING, Scenario
from tests.support.site import VARIABLE, Site

#: Set in the environment of a worker where nothing shows that Celery's tracer is at work.
UNOBSERVED = "DIFFERENTIAL_UNOBSERVED"

_unobserved = UNOBSERVED in os.environ
_Recorded: Any = RecordedEnds if _unobserved else RecordedHandlers


def make_app(site: Site, recorder: Recorder | None = None) -> Celery:
    """An app with all scenarios, recorded in the site's journal or elsewhere."""
    app = site.celery(MODULE, result_extended=True, task_track_started=not _unobserved)
    journal = Journal(site)
    recorder = recorder or Recorder(journal.record, but=OF_TRACER if _unobserved else ())
    app.recorder = recorder  # type: ignore[attr-defined]
    add_helpers(app, journal, recorder)
    for scenario in SCENARIOS:
        add_plain_task(app, scenario, recorder)
        for kind in scenario.kinds:
            add_batch_task(app, scenario, kind, recorder)
    return app


def add_plain_task(app: Celery, scenario: Scenario, recorder: Recorder) -> None:
    """The oracle: a task of stock Celery that takes one item, with late acks like a batch task."""

    class PlainTask(_Recorded, Task):
        abstract = True

    def one(self: Task, given: Any = None, do: str = "answer", tag: str = "") -> Any:
        return DEEDS[do](Call(self.request, given, self.retry, self.update_state))

    options = {"acks_late": True, **scenario.options}
    declare(app, scenario, PLAIN, recorder, PlainTask, options)(one)


def add_batch_task(app: Celery, scenario: Scenario, kind: str, recorder: Recorder) -> None:
    """The same as a batch task, whose `run` raises or returns what befalls an item."""

    class Batched(_Recorded, BatchTask):
        abstract = True

    def entries(self: BatchTask, given: Any = None, do: str = "answer", tag: str = "") -> list[Any]:
        return [entry(DEEDS[deed], call) for deed, call in zip(do, calls(self, given, self.batch.retry), strict=True)]

    def raising(self: BatchTask, given: Any = None, do: str = "answer", tag: str = "") -> list[Any]:
        return [DEEDS[deed](call) for deed, call in zip(do, calls(self, given, self.retry), strict=True)]

    declare(app, scenario, kind, recorder, Batched, scenario.options)(raising if kind in RAISING else entries)


def declare(
    app: Celery, scenario: Scenario, kind: str, recorder: Recorder, base: type[Task], options: Any
) -> Callable[..., Any]:
    """The decorator that makes a function the scenario's task of that kind."""
    base.recorder, base.handlers = recorder, scenario.handlers  # type: ignore[attr-defined]
    return app.task(base=base, bind=True, name=scenario.task_name(kind), **options)


def calls(task: BatchTask, given: Any, retry: Callable[..., Exception]) -> list[Call]:
    """The items of the running batch."""
    return [
        Call(request, one, retry, functools.partial(task.update_state, task_id=request.id))
        for request, one in zip(task.batch.requests, given, strict=True)
    ]


def entry(deed: Callable[[Call], Any], call: Call) -> Any:
    """What a careful model returns for an item: its result or its exception."""
    try:
        return deed(call)
    except Exception as error:
        return error


def add_helpers(app: Celery, journal: Journal, recorder: Recorder) -> None:
    """Plain tasks around those of the scenarios, and a batch task that keeps the worker busy."""

    @app.task(name=f"{MODULE}.note", bind=True)
    def note(self: Task, *given: Any, tag: str = "", **more: Any) -> Any:
        recorder.note("noted", self.request.id, given=given, more=more)
        return given

    @app.task(name=f"{MODULE}.old_errback", bind=True)
    def old_errback(self: Task, task_id: str, tag: str = "") -> None:
        recorder.note("old errback", task_id)

    @app.task(name=f"{MODULE}.new_errback")
    def new_errback(request: Any, exc: Any, traceback: Any, tag: str = "") -> None:
        recorder.note("new errback", request.id, request=request, exc=exc, traceback_is_there=bool(traceback))

    @app.task(name=f"{MODULE}.swap", bind=True)
    def swap(self: Task, into: str, do: str, tag: str = "") -> Any:
        return self.replace(app.tasks[into].s(1, do=do, tag=tag))

    @app.task(name=f"{MODULE}.fence", acks_late=True)
    def fence() -> None:
        pass

    def wait_at_gate(nothing: Any = None) -> Any:
        recorder.write("held")
        journal.pass_gate()
        return nothing

    app.task(name=f"{MODULE}.hold", base=BatchTask)(wait_at_gate)
    for when, acks_late in {"early": False, "late": True}.items():
        app.task(name=f"{MODULE}.hold.plain.{when}", acks_late=acks_late)(wait_at_gate)
        app.task(name=f"{MODULE}.hold.batched.{when}", acks_late=acks_late, base=BatchTask)(wait_at_gate)


def middle(stop: int) -> int:
    """A number in place of a random one below the end, so that the jitter of all kinds is the same."""
    return stop // 2


app = make_app(Site.from_environ())

if VARIABLE in os.environ:  # a worker
    app.recorder.listen()
    random.randrange = middle  # type: ignore[assignment]
