"""When a batch leaves: never before the pool is free, and then full, or exactly when its oldest item has waited."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.support.apps.forming import OPTIONS
from tests.support.batch_lines import batches_of, sizes_of
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.callers import answers_to, start_callers
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

#: Seconds by which most timers are late at most on a machine that has other things to do. It may stand still for
#: longer now and then, so no single batch is held to it.
LATE_S = 0.3


@pytest.mark.parametrize("name", ["greedy", "eager_timer"])
def test_a_batch_is_closed_when_the_pool_is_free(shared_worker: WorkerFixture, name: str) -> None:
    """Items gather while the model runs, however short their longest wait: the next batch is full (case 7)."""
    worker = shared_worker("forming")
    task = worker.task(name)

    with busy(worker, task) as running:
        items = []
        for x in (1, 2, 3, 4):
            items.append(task.delay(x))
            wait_for_waiting(worker, len(items))

    assert [0, 2, 4, 6, 8] == [one.get(timeout=30) for one in (running, *items)]
    assert [[1, 2, 3, 4]] == later_runs(worker)
    assert "full" == batches_of(worker, 5)[-1].reason


def test_batches_grow_while_the_model_is_busy(shared_worker: WorkerFixture) -> None:
    """What comes during one run is the next batch, run after run, though each item has waited enough (case 7)."""
    worker = shared_worker("forming")
    window = worker.task("window")
    sent = range(60)

    with busy(worker, window):
        results = []
        for round_ in range(3):
            results += [window.delay(x) for x in sent[20 * round_ : 20 * (round_ + 1)]]
            wait_for_waiting(worker, 20)
            worker.journal.let_through()
            worker.journal.wait_for("run", round_ + 2)

    assert [2 * x for x in sent] == [one.get(timeout=30) for one in results]
    assert [20, 20, 20] == [len(items) for items in later_runs(worker)]


def test_a_lone_caller_pays_nothing_by_default(shared_worker: WorkerFixture) -> None:
    """Without a longest wait, each call of a sequential client leaves at once, alone (case 2)."""
    worker = shared_worker("forming")

    for x in range(9):
        assert 2 * x == worker.task("greedy").delay(x).get(timeout=30)
        batches_of(worker, x + 1)  # the slot is free again, which it is only after the result has come

    batches = batches_of(worker, 9)
    assert [(1, "idle")] * 9 == [(batch.size, batch.reason) for batch in batches]
    assert statistics.median(batch.waited for batch in batches) < 0.02


def test_a_lone_caller_waits_no_longer_than_the_longest_wait(shared_worker: WorkerFixture) -> None:
    """A sequential client never has company, so that each of its calls waits the longest wait, not more (case 2)."""
    worker = shared_worker("forming")

    assert [2 * x for x in range(7)] == [worker.task("window").delay(x).get(timeout=30) for x in range(7)]

    waits = [batch.waited for batch in batches_of(worker, 7)]
    assert 7 == len(waits)
    assert min(waits) >= OPTIONS["window"]["max_wait"]
    assert statistics.median(waits) < OPTIONS["window"]["max_wait"] + LATE_S


def test_concurrent_callers_share_a_batch(shared_worker: WorkerFixture, tmp_path: Path) -> None:
    """Eight threads that call at once have company, though each waits for its own answer (case 2)."""
    worker = shared_worker("forming")

    with busy(worker, worker.task("greedy")):  # the threads of a new process may take long to come all
        callers = start_callers(worker.live, tmp_path, worker.task("burst"), calls=8, threads=8)
        wait_for_waiting(worker, 8)

    assert [2 * x for x in range(8)] == answers_to(callers)
    assert [1, 8] == sizes_of(worker, 9)


def test_the_wait_begins_anew_with_each_window(shared_worker: WorkerFixture) -> None:
    """An item that comes after a timed batch has left waits its own full time, not what is left (case 6)."""
    worker = shared_worker("forming")
    pair = worker.task("pair")

    assert [2, 4] == [pair.delay(x).get(timeout=30) for x in (1, 2)]

    batches = batches_of(worker, 2)
    assert [(1, "wait"), (1, "wait")] == [(batch.size, batch.reason) for batch in batches]
    assert all(batch.waited >= OPTIONS["pair"]["max_wait"] for batch in batches)


def test_a_burst_of_the_size_is_one_batch(shared_worker: WorkerFixture) -> None:
    """A burst of exactly the largest size leaves at once as one full batch (case 8)."""
    worker = shared_worker("forming")

    # In one round trip: on a busy machine eight calls, one by one, might take longer than the longest wait.
    results = worker.task("burst").delay_many(range(8))

    assert [2 * x for x in range(8)] == results.get(timeout=30)
    assert [(8, "full")] == [(batch.size, batch.reason) for batch in batches_of(worker, 8)]


def test_one_more_than_the_size_is_a_batch_of_its_own(shared_worker: WorkerFixture) -> None:
    """Of a burst that is one too large the first fill a batch, and the last waits for company (case 8)."""
    worker = shared_worker("forming")

    results = worker.task("burst").delay_many(range(9))

    assert [2 * x for x in range(9)] == results.get(timeout=30)
    full, rest = batches_of(worker, 9)
    assert [(8, "full"), (1, "wait")] == [(batch.size, batch.reason) for batch in (full, rest)]
    # Not a second time, which is what a timer that was set again too late would make of it.
    assert OPTIONS["burst"]["max_wait"] <= rest.waited < 2 * OPTIONS["burst"]["max_wait"]


def test_no_window_leaves_early_or_late(shared_worker: WorkerFixture) -> None:
    """Items that come at random moments leave when the oldest of them has waited exactly its time (case 10)."""
    worker = shared_worker("forming")
    window, now = worker.task("window"), datetime.now(timezone.utc)
    moments = [now + timedelta(seconds=random.uniform(0.3, 3.0)) for _ in range(100)]

    results = [window.apply_async((x,), eta=moment) for x, moment in enumerate(moments)]

    assert [2 * x for x in range(100)] == [one.get(timeout=30) for one in results]
    max_wait = OPTIONS["window"]["max_wait"]
    late = sorted(batch.waited - max_wait for batch in batches_of(worker, 100) if "wait" == batch.reason)
    assert len(late) > 5
    assert late[0] >= 0
    assert statistics.median(late) < max_wait  # they do not wait a second time
