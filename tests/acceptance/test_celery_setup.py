"""A worker as pytest-celery sets it up: from the command line, in a folder that holds only the app."""

from __future__ import annotations

from pytest_celery import CeleryTestSetup

from tests.support.waiting import wait_until


def test_the_worker_answers(celery_setup: CeleryTestSetup) -> None:
    """The worker runs tasks and answers remote control."""
    assert celery_setup.ready(ping=True, control=True, docker=True)


def test_the_worker_comes_back_after_a_kill(celery_setup: CeleryTestSetup) -> None:
    """A call that was made while the worker was dead is answered when it is back."""
    worker = celery_setup.worker
    worker.kill()
    wait_until(lambda: "exited" == worker.container.status, "the worker has ended")

    waiting = celery_setup.ping.s().apply_async(queue=worker.worker_queue)
    worker.restart()

    assert "pong" == waiting.get(timeout=40)
