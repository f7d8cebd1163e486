"""The same scenario on every pool, broker and result backend: each pair of them occurs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.batch_lines import batches_of
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

PLACES = [
    ("prefork", "redis", "redis"),
    ("prefork", "rabbitmq", "rpc"),
    ("prefork", "redis", "sqlite"),
    ("threads", "rabbitmq", "redis"),
    ("threads", "redis", "rpc"),
    ("threads", "rabbitmq", "sqlite"),
    ("solo", "redis", "redis"),
    ("solo", "rabbitmq", "rpc"),
    ("solo", "rabbitmq", "sqlite"),
]

#: Eight calls, which are one batch: the fourth fails, and the sixth cannot be encoded.
ITEMS = (0, 1, 2, -3, 4, None, 6, 7)


@pytest.mark.parametrize(("pool", "broker", "backend"), PLACES)
def test_each_caller_gets_its_end(shared_worker: WorkerFixture, pool: str, broker: str, backend: str) -> None:
    """Items that succeed, fail and cannot be encoded share a batch, and each caller gets its own end of it."""
    worker = shared_worker("outcomes", pool=pool, broker=broker, backend=backend)
    entries = worker.task("entries")

    results = [entries.delay(x) for x in ITEMS]

    ends = [one.get(timeout=15, propagate=False) for one in results]
    assert [[0], [2], [4], [8], [12], [14]] == [ends[i] for i in (0, 1, 2, 4, 6, 7)]
    assert "ValueError('bad -3')" == repr(ends[3])
    assert "lock" in str(ends[5])  # in the words of the backend's own encoder
    assert ["SUCCESS"] * 3 + ["FAILURE", "SUCCESS"] * 2 + ["SUCCESS"] == [one.state for one in results]
    assert [(8, "full", 6, 2)] == [
        (batch.size, batch.reason, batch.succeeded, batch.failed) for batch in batches_of(worker, 8)
    ]
