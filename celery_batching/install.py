"""Wires the rooms together: called when a batch task is bound to its app, in every process that has it.

Everything is named by string or imported in a handler, so that a process that only sends calls
loads no worker code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.signals import worker_init, worker_process_init

if TYPE_CHECKING:
    from celery import Celery

__all__ = ["install"]


def install(app: Celery) -> None:
    """Let every worker of ``app`` batch. Calling it again changes nothing."""
    app.steps["consumer"].add("celery_batching.consumer.bootstep:BatchingStep")


@worker_init.connect(weak=False)
def _before_the_pool(sender: Any, **_: Any) -> None:
    from .consumer.startup import before_the_pool  # noqa: PLC0415

    before_the_pool(sender)


@worker_process_init.connect(weak=False)
def _in_the_pool_process(**_: Any) -> None:
    from .pool.setup import prepare_process  # noqa: PLC0415

    if prepare_process():
        from .pool.run_batch import employ_clerk  # noqa: PLC0415  which a worker of other queues need not load

        employ_clerk()
