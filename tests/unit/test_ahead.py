"""When a full batch may be sent ahead of the end of the one that runs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from celery_batching._celery_internals import PreforkPool
from celery_batching.consumer.ahead import SHORT_RUN_S, Ahead
from celery_batching.core.items import Reason

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much room a pipe has")


def a_worker(*, processes: int = 1, waiting: int = 0, recycled: int | None = None) -> Any:
    pool = PreforkPool.__new__(PreforkPool)
    pool._pool = SimpleNamespace(_processes=processes)
    worker = SimpleNamespace(
        pool=pool,
        semaphore=SimpleNamespace(_waiting=[None] * waiting),
        max_tasks_per_child=recycled,
        max_memory_per_child=None,
        _process_task_sem=print,
    )
    worker.process_task = worker._process_task_sem
    return worker


def a_batch(**differently: Any) -> Any:
    usual = {
        "task": SimpleNamespace(name="t"),
        "began": True,
        "limited": False,
        "fits": True,
        "reason": Reason.IDLE,
    }
    return SimpleNamespace(**usual | differently)


def ahead_on(worker: Any, *, wanted: bool = True, run_s: float = 0.01, fits: bool = True) -> Ahead:
    ahead = Ahead(SimpleNamespace(controller=worker), wanted=wanted)
    ahead.learn(a_batch(fits=fits), run_s)
    return ahead


def test_behind_a_short_run_that_has_begun() -> None:
    """The usual case, with a backlog."""
    assert ahead_on(a_worker()).fits([a_batch()])


@pytest.mark.parametrize(
    "differently",
    [{"began": False}, {"limited": True}, {"reason": Reason.SPLIT}, {"task": SimpleNamespace(name="another")}],
)
def test_not_behind_such_a_batch(differently: dict[str, Any]) -> None:
    """One that may not be read yet, that a signal may strike late, that looks for a killer, or of unknown length."""
    assert not ahead_on(a_worker()).fits([a_batch(**differently)])


def test_only_one() -> None:
    """Never behind another that was sent ahead, and not on an idle process."""
    ahead = ahead_on(a_worker())
    assert not ahead.fits([])
    assert not ahead.fits([a_batch(), a_batch(began=False)])


@pytest.mark.parametrize("worker", [{"processes": 2}, {"waiting": 1}, {"recycled": 100}])
def test_not_on_such_a_worker(worker: dict[str, int]) -> None:
    """Where another process may be free earlier, somebody waits for the slot, or processes end by themselves."""
    assert not ahead_on(a_worker(**worker)).fits([a_batch()])


def test_not_where_it_is_not_wanted() -> None:
    """With `batching_bulk=False`."""
    assert not ahead_on(a_worker(), wanted=False).fits([a_batch()])


def test_what_was_learned_counts() -> None:
    """The last run was long; one that never ran tells nothing; the batch found no room in the pipe."""
    assert not ahead_on(a_worker(), run_s=SHORT_RUN_S).fits([a_batch()])
    assert not ahead_on(a_worker(), run_s=0.0).fits([a_batch()])
    assert not ahead_on(a_worker(), fits=False).fits([a_batch()])
