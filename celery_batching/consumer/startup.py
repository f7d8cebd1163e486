"""What a worker checks and prepares before it takes work: which tasks, which pool, CUDA, setup."""

from __future__ import annotations

import logging
import os
from typing import Any

from .._celery_internals import PreforkPool, loaded_torch, task_queue
from ..errors import BatchingError
from ..pool.setup import NAME_SEPARATOR, SETUP_VARIABLE
from ..task import BatchTask

__all__ = ["before_the_pool", "check_pool", "consumed_tasks", "warn_of_limits"]

logger = logging.getLogger(__name__)

#: Seconds a new pool process may take for its setup before Celery kills it as stuck. Celery's
#: default of 4 s is less than most models take to load.
SETUP_TIMEOUT_S = 1800.0


def consumed_tasks(app: Any) -> list[BatchTask]:
    """The batch tasks whose queue this worker consumes."""
    queues = app.amqp.queues.consume_from
    return [task for task in app.tasks.values() if isinstance(task, BatchTask) and task_queue(task) in queues]


def before_the_pool(worker: Any) -> None:
    """On Celery's ``worker_init``: tell the pool processes what to set up, and give them time for it."""
    tasks = consumed_tasks(worker.app)
    os.environ[SETUP_VARIABLE] = NAME_SEPARATOR.join(task.name for task in tasks)
    if tasks:
        conf = worker.app.conf
        conf.worker_proc_alive_timeout = max(conf.worker_proc_alive_timeout, SETUP_TIMEOUT_S)


def check_pool(pool: Any, forks: bool) -> None:
    """Refuse the pools that cannot run batches.

    Raises:
        BatchingError: says which pools can, or how to keep CUDA out of the parent.
    """
    if pool.is_green:
        raise BatchingError(
            f"celery_batching does not run on {type(pool).__module__}: a model blocks a green pool; "
            f"use --pool=prefork, threads or solo for the queues of batch tasks"
        )
    torch = loaded_torch()
    if forks and isinstance(pool, PreforkPool) and torch is not None and torch.cuda.is_initialized():
        raise BatchingError(
            "CUDA was initialised in the worker's main process, before the pool forks, and cannot be used "
            "in a forked process after that; load the model in setup(), not at import, or use "
            "--pool=threads, --pool=solo or (Celery 5.7) --pool-start-method=spawn"
        )


def warn_of_limits(pool: Any, tasks: list[BatchTask], worker: Any) -> None:
    """Say so when time limits are set that this pool cannot enforce."""
    if isinstance(pool, PreforkPool):
        return
    limited = [task.name for task in tasks if task.time_limit or task.soft_time_limit]
    if worker.time_limit or worker.soft_time_limit:
        limited = [task.name for task in tasks]
    if limited:
        logger.warning(
            "Time limits are not enforced on this pool (%s), only on --pool=prefork: %s",
            type(pool).__module__.rpartition(".")[2],
            ", ".join(limited),
        )
