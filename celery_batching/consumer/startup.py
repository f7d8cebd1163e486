"""What a worker checks and prepares before it consumes: pools, CUDA, setup, prefetch."""

from __future__ import annotations

import logging
import math
import os
from typing import Any

from .._celery_internals import PreforkPool, loaded_torch, task_queue
from ..errors import BatchingError
from ..pool.setup import SETUP_VARIABLE
from ..task import BatchTask

__all__ = ["batch_tasks", "before_the_pool", "check_pool", "raise_prefetch"]

logger = logging.getLogger(__name__)

#: Seconds a new pool process may take for its setup before Celery kills it as stuck. Celery's
#: default of 4 s is less than most models take to load.
SETUP_TIMEOUT_S = 1800.0

#: Celery's default of ``worker_prefetch_multiplier``: any other value is the user's wish.
DEFAULT_PREFETCH_MULTIPLIER = 4


def batch_tasks(app: Any) -> list[BatchTask]:
    """Every batch task of the app, wherever its calls are routed to."""
    return [task for task in app.tasks.values() if isinstance(task, BatchTask)]


def consumed_tasks(app: Any) -> list[BatchTask]:
    """The batch tasks whose queue this worker consumes."""
    return [task for task in batch_tasks(app) if task_queue(task) in app.amqp.queues.consume_from]


def before_the_pool(worker: Any) -> None:
    """On Celery's ``worker_init``: tell the pool processes what to set up, and give them time for it."""
    tasks = consumed_tasks(worker.app)
    os.environ[SETUP_VARIABLE] = " ".join(task.name for task in tasks)
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


def raise_prefetch(consumer: Any, tasks: list[BatchTask]) -> None:
    """Let the consumer hold one full batch per slot and the next batch of each task, not more.

    It is the multiplier that is raised, so that what Celery derives from it (after a reconnect,
    when the pool grows, with quorum queues) stays right.
    """
    sizes = [task.batch_options.max_batch_size for task in tasks]
    if not sizes or not consumer.prefetch_multiplier:
        return  # nothing to batch, or a prefetch without bound
    # The pool has not started yet; this is how many slots Celery reckoned with (autoscale: the most).
    slots = consumer.initial_prefetch_count // consumer.prefetch_multiplier
    wanted = math.ceil((slots * max(sizes) + sum(sizes)) / slots)
    least = math.ceil((slots + 1) * max(sizes) / slots)
    if consumer.prefetch_multiplier == DEFAULT_PREFETCH_MULTIPLIER:
        consumer.prefetch_multiplier = max(wanted, DEFAULT_PREFETCH_MULTIPLIER)
        consumer.initial_prefetch_count = slots * consumer.prefetch_multiplier
    elif consumer.prefetch_multiplier < least:
        logger.warning(
            "worker_prefetch_multiplier=%s lets this worker hold %s messages, so batches of %s cannot fill while "
            "one runs; leave the setting out (celery_batching raises Celery's default as needed) or set it to %s",
            consumer.prefetch_multiplier,
            slots * consumer.prefetch_multiplier,
            max(sizes),
            wanted,
        )
    if consumer.app.conf.worker_disable_prefetch and max(sizes) > 1:
        logger.warning(
            "worker_disable_prefetch (--disable-prefetch) lets this worker hold %s messages, so batches of %s "
            "cannot fill; leave it out for the queues of batch tasks",
            slots,
            max(sizes),
        )
