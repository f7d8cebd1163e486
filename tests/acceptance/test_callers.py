"""Many callers at once, as from the threads of web processes: each waits for its own answer and gets it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.batch_lines import batches_of
from tests.support.callers import call_from_threads
from tests.support.worker_process import BatchLine, WorkerProcess

pytestmark = pytest.mark.alone

WorkerFixture = Callable[..., WorkerProcess]

#: In the first rounds the callers' threads still start and open their connections, and offer less.
CALLERS, ROUNDS = 256, 6

#: The options of the test about waiting, and the seconds that its model takes.
SIZE, MAX_WAIT_S, MODEL_S = 16, 0.05, 0.3

#: When the worker logged a batch, to the millisecond.
LOGGED = re.compile(r"\[(\S+ \S+): INFO/MainProcess\] Batch ")


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_many_callers_get_their_own_answers(shared_worker: WorkerFixture, pool: str, tmp_path: Path) -> None:
    """256 callers, several calls each, get their own answers, in batches of more than 8 with a model of 50 ms."""
    worker = shared_worker("timed", pool=pool)
    first = worker.task("first")

    answers = call_from_threads(worker.live, tmp_path, first, calls=CALLERS * ROUNDS, threads=CALLERS)

    assert [2 * x for x in range(CALLERS * ROUNDS)] == answers
    batches = batches_of(worker, CALLERS * ROUNDS)
    assert CALLERS * ROUNDS == sum(batch.succeeded for batch in batches)
    assert statistics.mean(batch.size for batch in batches) > 8


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_nobody_waits_longer_than_two_runs(shared_worker: WorkerFixture, pool: str, tmp_path: Path) -> None:
    """With no more callers than a batch holds, a call takes at most the longest wait and two runs of the model."""
    settings = {"batching_max_batch_size": SIZE, "batching_max_wait": MAX_WAIT_S, "model_s": MODEL_S}
    worker = shared_worker("timed", pool=pool, settings=settings)
    first = worker.task("first")

    answers = call_from_threads(worker.live, tmp_path, first, calls=SIZE * ROUNDS, threads=SIZE)

    assert [2 * x for x in range(SIZE * ROUNDS)] == answers
    batches = batches_of(worker, SIZE * ROUNDS)
    longest_run = max(batch.run for batch in batches)
    # Before the run that it waits for and before its own, a call also waits for the worker's own work.
    overhead = 2 * longest_gap(worker, batches) + 0.05
    assert max(batch.waited + batch.run for batch in batches) <= MAX_WAIT_S + 2 * longest_run + overhead


def longest_gap(worker: WorkerProcess, batches: list[BatchLine]) -> float:
    """The most seconds between two batches in which the model did not run."""
    found = LOGGED.findall(worker.log())
    ends = [datetime.strptime(moment, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp() for moment in found]
    return max(end - begin - batch.run for (begin, end), batch in zip(pairwise(ends), batches[1:], strict=True))
