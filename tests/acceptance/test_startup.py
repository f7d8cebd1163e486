"""How a worker starts when all is well, and how it ends when it cannot do its work."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from tests.support.apps import options, startup
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

POOLS = [("prefork", 1), ("prefork", 2), ("threads", 2), ("solo", 1)]

#: Seconds from the command to the end of a worker that cannot work, on a busy machine: the promise is 20 from the
#: failure.
END_S = 60.0

ENDS = "The worker ends"


def end_of(worker: WorkerProcess) -> str:
    """The log of a worker that must end by itself with a failure."""
    assert 0 != worker.wait(END_S)
    return worker.log()


@pytest.mark.parametrize(("pool", "concurrency"), POOLS)
def test_a_failing_setup_ends_the_worker(start_worker: WorkerFixture, pool: str, concurrency: int) -> None:
    """A setup that raises ends the worker with one clear message and a failure status, and is not tried in a loop."""
    worker = start_worker(
        "startup", pool=pool, concurrency=concurrency, env={startup.SETUP: "raises"}, wait_ready=False
    )

    log = end_of(worker)

    assert 1 == log.count(ENDS)
    (message,) = [line for line in log.splitlines() if ENDS in line]
    assert "CRITICAL" in message
    assert "startup.embed.setup()" in message
    assert startup.TROUBLE in message
    assert len(worker.journal.entries("setup")) <= concurrency


def test_calls_stay_in_the_queue_when_the_setup_fails(start_worker: WorkerFixture) -> None:
    """Nothing is lost with a worker that cannot load its model: the next one answers the calls."""
    broken = start_worker("startup", env={startup.SETUP: "raises"}, wait_ready=False)
    waiting = [broken.task("embed").delay(x) for x in range(6)]
    end_of(broken)

    start_worker("startup", site=broken.live, pool="threads")

    assert [[2 * x, "cpu"] for x in range(6)] == [one.get(timeout=40) for one in waiting]


def test_a_setup_that_fails_in_a_replacement_ends_the_worker(start_worker: WorkerFixture) -> None:
    """Also when only a later pool process cannot set up, the worker ends with the message and loses nothing."""
    worker = start_worker(
        "startup", env={startup.SETUP: "raises in a replacement"}, extra=["--max-tasks-per-child=1"], wait_ready=False
    )
    waiting = [worker.task("embed").delay(x) for x in range(12)]

    log = end_of(worker)

    assert 1 == log.count(ENDS)
    assert startup.TROUBLE in log
    assert len(worker.journal.entries("setup")) <= 3
    start_worker("startup", site=worker.live, pool="threads")
    assert [[2 * x, "cpu"] for x in range(12)] == [one.get(timeout=40) for one in waiting]


@pytest.mark.parametrize(
    ("pool", "way"),
    [("prefork", "exits"), ("prefork", "exits late"), ("threads", "exits late"), ("solo", "exits late")],
)
def test_a_setup_that_exits_is_a_setup_that_fails(start_worker: WorkerFixture, pool: str, way: str) -> None:
    """A setup that calls `sys.exit` ends the worker with its message and a failure status, not in a restart loop."""
    worker = start_worker("startup", pool=pool, env={startup.SETUP: way}, wait_ready=False)

    log = end_of(worker)

    assert 1 == log.count(ENDS)
    assert startup.TROUBLE in log
    assert 1 == len(worker.journal.entries("setup"))


@pytest.mark.parametrize("way", ["dies late", "dies in a replacement"])
def test_a_setup_that_ends_its_process_ends_the_worker(start_worker: WorkerFixture, way: str) -> None:
    """Processes that die in setup without a word are started three times, not for ever, and nothing is lost."""
    worker = start_worker("startup", env={startup.SETUP: way}, extra=["--max-tasks-per-child=1"], wait_ready=False)
    waiting = [worker.task("embed").delay(x) for x in range(6)]

    log = end_of(worker)

    (message,) = [line for line in log.splitlines() if ENDS in line]
    assert "CRITICAL" in message
    assert "3 pool processes in a row died during setup(), the last one by exitcode 7" in message
    start_worker("startup", site=worker.live, pool="threads")
    assert [[2 * x, "cpu"] for x in range(6)] == [one.get(timeout=40) for one in waiting]


def test_a_slow_setup_loses_nothing(start_worker: WorkerFixture) -> None:
    """A setup that takes longer than Celery's patience with new processes runs once; early calls are answered."""
    worker = start_worker("startup", env={startup.SETUP: "is slow"}, wait_ready=False)
    early = [worker.task("embed").delay(x) for x in range(5)]

    assert [[2 * x, "cpu"] for x in range(5)] == [one.get(timeout=40) for one in early]
    assert 1 == len(worker.journal.entries("setup"))
    assert "Timed out" not in worker.log()


@pytest.mark.parametrize(
    ("place", "env", "settings", "named"),
    [
        ("class", {}, {}, ("options.embed.max_batch_size", "got 0")),
        ("decorator", {}, {}, ("options.embed.max_batch_size", "got 0")),
        ("shared_task", {}, {}, ("options.shared.max_wait", "got 'soon'")),
        ("environment", {"CELERY_BATCHING_MAX_WAIT": "soon"}, {}, ("CELERY_BATCHING_MAX_WAIT", "got 'soon'")),
        ("settings", {}, {"batching_on_error": "ignore"}, ("batching_on_error", "got 'ignore'")),
        ("annotations", {}, {"task_annotations": {"options.embed": {"max_wait": -1}}}, ("max_wait", "got -1")),
    ],
)
def test_a_bad_option_stops_the_worker(
    start_worker: WorkerFixture, place: str, env: dict[str, str], settings: dict[str, object], named: tuple[str, str]
) -> None:
    """Wherever a bad value or name stands, the worker does not start and says which option and value it was."""
    worker = start_worker(
        "options", pool="solo", env={options.PLACE: place, **env}, settings=settings, wait_ready=False
    )

    log = end_of(worker)

    (message,) = {line for line in log.splitlines() if "OptionError: " in line}
    for words in named:
        assert words in message
    assert " ready." not in log


def test_cuda_before_the_fork_is_refused(start_worker: WorkerFixture) -> None:
    """With CUDA initialised in the parent, prefork is refused at start with the way out (case 69)."""
    worker = start_worker("startup", env={startup.FAKE_CUDA: "1"}, wait_ready=False)

    log = end_of(worker)

    assert "CUDA was initialised in the worker's main process" in log
    assert "setup()" in log
    assert [] == worker.journal.entries("setup")


def test_cuda_in_a_process_that_does_not_fork_is_fine(start_worker: WorkerFixture) -> None:
    """On threads CUDA may be initialised in the main process, and the task gets its device (case 69)."""
    worker = start_worker("startup", pool="threads", env={startup.FAKE_CUDA: "1"})

    assert [8, "cuda:0"] == worker.task("embed").delay(4).get(timeout=30)


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_a_green_pool_is_refused(start_worker: WorkerFixture, pool: str) -> None:
    """A model would block a green pool, so the worker does not start and names the pools that work."""
    if find_spec(pool) is None:
        pytest.skip(f"{pool} is not installed")
    worker = start_worker("startup", pool=pool, wait_ready=False)

    log = end_of(worker)

    (message,) = {line for line in log.splitlines() if "celery_batching does not run on" in line}
    assert pool in message
    assert "--pool=prefork, threads or solo" in message
