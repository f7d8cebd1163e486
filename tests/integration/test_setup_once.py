"""The model is loaded once in each process of the pool, on a device of its own, before that process takes work."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.support.worker_process import ROOT, WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

#: Pools, how many processes they are with two places for batches, how many GPUs there are, and what each process uses.
POOLS = [
    ("prefork", 2, 0, ["cpu", "cpu"]),
    ("prefork", 2, 2, ["cuda:0", "cuda:1"]),
    ("prefork", 2, 1, ["cuda:0", "cuda:0"]),
    ("threads", 1, 0, ["cpu"]),
    ("solo", 1, 2, ["cuda:0"]),
]


@pytest.mark.parametrize(("pool", "processes", "gpus", "devices"), POOLS)
def test_each_pool_process_sets_up_once(
    start_worker: WorkerFixture, pool: str, processes: int, gpus: int, devices: list[str]
) -> None:
    """Setup runs before the first call is made, in each process once, with its device, and never again."""
    worker = start_worker("loaded", pool=pool, concurrency=2, env=with_gpus(gpus))
    setups = worker.journal.wait_for("setup", processes, timeout=40)
    assert processes == len({setup.pid for setup in setups})
    assert devices == sorted(setup["device"] for setup in setups)

    results = [worker.task("double").delay(x) for x in range(40)]

    assert [2 * x for x in range(40)] == [one.get(timeout=30) for one in results]
    assert {entry.pid for entry in worker.journal.entries("run")} <= {setup.pid for setup in setups}
    assert processes == len(worker.journal.entries("setup"))


def test_a_new_process_sets_up_again(start_worker: WorkerFixture) -> None:
    """A pool process that takes the place of another loads the model for itself before its first batch."""
    worker = start_worker("loaded", extra=["--max-tasks-per-child=2"], env=with_gpus(0))

    assert [0, 2, 4] == [worker.task("double").delay(x).get(timeout=40) for x in range(3)]

    happened = [(entry.pid, entry.event) for entry in worker.journal.entries()]
    runners = {pid for pid, event in happened if event == "run"}
    assert 2 == len(runners)
    for runner in runners:
        events = [event for pid, event in happened if pid == runner]
        assert "setup" == events[0]
        assert 1 == events.count("setup")


def with_gpus(count: int) -> dict[str, str]:
    """The environment of a worker whose torch sees so many GPUs."""
    path = os.pathsep.join([str(ROOT / "tests" / "support" / "stand_ins"), str(ROOT)])
    return {"PYTHONPATH": path, "STAND_IN_GPUS": str(count)}
