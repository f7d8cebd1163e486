"""Every form of declaration is the same task: to its callers in a worker, in eager mode, and called directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Task

from tests.support.apps.declared import FORMS
from tests.support.sites import LiveSite
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

#: Ways to run one call in the caller's own process; each returns the value or raises.
HERE: dict[str, Callable[..., Any]] = {
    "direct": lambda task, *args, **kwargs: task(*args, **kwargs),
    "apply": lambda task, *args, **kwargs: task.apply(args, kwargs).get(),
    "eager": lambda task, *args, **kwargs: task.delay(*args, **kwargs).get(),
}

WRONG_CALLS = [((), {}), ((1, 2, 3), {}), ((1,), {"weight": 2}), ((1,), {"xs": 2})]


@pytest.mark.parametrize("form", FORMS)
def test_arguments_become_columns(shared_worker: WorkerFixture, form: str) -> None:
    """Callers pass one item, by position, by name or not at all; `run` gets a full column of each (case 30)."""
    worker = shared_worker("declared")
    task = worker.task(form)

    calls = [task.delay(3), task.delay(4, 5), task.delay(4, offset=1), task.delay(xs=5, scale=2)]

    assert [[2, 30], [2, 20], [2, 41], [2, 10]] == [call.get(timeout=30) for call in calls]


@pytest.mark.parametrize("form", FORMS)
def test_a_signature_is_called_like_the_task(shared_worker: WorkerFixture, form: str) -> None:
    """Signatures and `apply_async` reach `run` as `delay` does."""
    worker = shared_worker("declared")
    task = worker.task(form)

    calls = [task.s(4, offset=1).apply_async(), task.apply_async((4,), {"scale": 5})]

    assert [[2, 41], [2, 20]] == [call.get(timeout=30) for call in calls]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("args", "kwargs"), WRONG_CALLS)
def test_a_wrong_call_fails_at_the_caller(
    open_site: SiteFixture, form: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Arguments that do not fit raise TypeError where the call is made, and nothing is sent (case 30)."""
    live = open_site()
    task = live.app("declared").tasks[f"declared.{form}"]

    for call in (task.delay, lambda *args, **kwargs: task.apply_async(args, kwargs), task):
        with pytest.raises(TypeError):
            call(*args, **kwargs)

    assert [] == live.leftovers()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", HERE)
def test_a_call_in_process_is_a_batch_of_one(open_site: SiteFixture, form: str, way: str) -> None:
    """Called directly, by `apply` and in eager mode, one call is a batch of one with its one result (case 31)."""
    task = task_here(open_site(), form, eager=way == "eager")

    assert [1, 30] == HERE[way](task, 3)
    assert [1, 21] == HERE[way](task, 4, scale=5, offset=1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", HERE)
def test_an_error_in_process_is_that_of_a_worker(
    shared_worker: WorkerFixture, open_site: SiteFixture, form: str, way: str
) -> None:
    """A failing call raises the same error in every way as its caller gets from a worker (case 31)."""
    worker = shared_worker("declared")
    bad, good = worker.task(form).delay(3, 0), worker.task(form).delay(3)
    assert [2, 30] == good.get(timeout=30)
    expected = bad.get(timeout=10, propagate=False)

    with pytest.raises(ZeroDivisionError) as caught:
        HERE[way](task_here(open_site(), form, eager=way == "eager"), 3, 0)

    assert repr(expected) == repr(caught.value)


def test_the_first_call_in_process_sets_up_once(open_site: SiteFixture) -> None:
    """A process that calls directly or eagerly loads the model with the first call, and not again."""
    task = task_here(open_site(), "ClassForm", eager=True)
    assert 0 == task.loads

    assert [[1, 10], [1, 20], [1, 30]] == [task(1), task.delay(2).get(), task.apply((3,)).get()]

    assert 1 == task.loads


def test_run_is_the_plain_list_function(open_site: SiteFixture) -> None:
    """`run` can be called with lists, as a unit test does."""
    task = task_here(open_site(), "decorated")

    assert [[2, 3], [2, 8]] == task.run([1, 2], [3, 4], offset=[0, 0])


def task_here(live: LiveSite, form: str, *, eager: bool = False) -> Task:
    """A task of a client's app, which may be told to run everything at once."""
    app = live.app("declared")
    app.conf.task_always_eager = app.conf.task_eager_propagates = eager
    return app.tasks[f"declared.{form}"]
