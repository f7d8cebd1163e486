"""A real Flower beside a real worker: what an operator sees of the items of a batch (case 63)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.busy import busy, wait_for_waiting
from tests.support.flower import FlowerProcess
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]


def assert_events(flower: FlowerProcess, worker: WorkerProcess, task: str, **wanted: int) -> None:
    """Flower gets exactly so many events of each type about the task, and then counts none as prefetched."""
    types = ("received", "started", "succeeded", "failed", "retried", "revoked", "rejected")
    labels = {"worker": worker.node, "task": task}

    def counts() -> dict[str, int]:
        found = {one: flower.metric("flower_events_total", type=f"task-{one}", **labels) for one in types}
        return {one: int(count) for one, count in found.items() if count}

    wait_until(lambda: counts() == wanted, f"each event of {task} has come once", saw=counts)
    assert 0 == flower.metric("flower_worker_prefetched_tasks", **labels)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_flower_sees_each_item_once(start_worker: WorkerFixture, tmp_path: Path, pool: str) -> None:
    """Each item is received, started and closed once, whatever its end, also when its batch is split (case 63)."""
    worker = start_worker("control", pool=pool, extra=["-E"])
    double, flaky, split = (worker.task(name) for name in ("double", "flaky", "soft_limited"))
    with FlowerProcess(worker, tmp_path) as flower:
        with busy(worker, double) as running:
            good = [double.delay(x) for x in (1, 2, 3)]
            bad, revoked = double.delay(-4), double.delay(5)
            retried, exhausted = flaky.delay(6, 1), flaky.delay(7, 99)
            parts = [split.delay(x) for x in (1, 2, 3, -4)]
            wait_for_waiting(worker, 11)
            worker.control("revoke", revoked.id)
            # Also on its page of the worker, beside Celery's own numbers:
            shown = {"waiting": 11, "running": [{"task": double.name, "size": 1, "reason": "idle"}]}
            wait_until(lambda: flower.batching() == shown, "Flower shows what waits and runs", saw=flower.batching)
        assert [0, 2, 4, 6, 12] == [item.get(timeout=40) for item in (running, *good, retried)]
        assert [2, 4, 6] == [item.get(timeout=40) for item in parts[:3]]
        for failed in (bad, exhausted, parts[3]):
            with pytest.raises(ValueError, match="zero|failed|-4"):
                failed.get(timeout=40)

        assert_events(flower, worker, double.name, received=6, started=5, succeeded=4, failed=1, revoked=1)
        assert_events(flower, worker, flaky.name, received=6, started=6, succeeded=1, failed=1, retried=4)
        assert_events(flower, worker, split.name, received=4, started=4, succeeded=3, failed=1)
        seen, retries = flower.tasks(double.name), flower.tasks(flaky.name)

    assert {item.id for item in (running, *good, bad, revoked)} == set(seen)
    for item, x in zip(good, (1, 2, 3), strict=True):
        row = seen[item.id]
        assert ("SUCCESS", f"({x},)", str(2 * x)) == (row["state"], row["args"], row["result"])
        assert worker.node == row["worker"]
        assert row["runtime"] > 0
        assert row["received"] <= row["started"] <= row["succeeded"]
    assert "FAILURE" == seen[bad.id]["state"]
    assert "-4 is below zero" in seen[bad.id]["exception"]
    assert "REVOKED" == seen[revoked.id]["state"]
    assert {retried.id: "SUCCESS", exhausted.id: "FAILURE"} == {one: row["state"] for one, row in retries.items()}


def test_an_item_whose_process_dies_starts_once(start_worker: WorkerFixture, tmp_path: Path) -> None:
    """When a process dies, those who run again on the fresh one are not started twice (case 63)."""
    worker = start_worker("control", extra=["-E"])
    kill = worker.task("kill")
    with FlowerProcess(worker, tmp_path) as flower:
        with busy(worker, worker.task("double")):
            items = [kill.delay(x) for x in (1, 2, -3)]
            wait_for_waiting(worker, 3)
        assert [1, 2] == [item.get(timeout=30) for item in items[:2]]
        wait_until(items[2].ready, "the item that kills its process fails", 30)

        assert "FAILURE" == items[2].state
        assert_events(flower, worker, kill.name, received=3, started=3, succeeded=2, failed=1)
