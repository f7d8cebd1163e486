"""From a batch to one job of the pool: its payload, its time limits, and all ways in which it can end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._celery_internals import (
    PreforkPool,
    decoded_call,
    exception_info,
    on_escape,
    uses_fast_trace,
    write_ahead,
    write_now,
)
from ..pool.messages import BatchPayload, ItemPayload
from ..pool.run_batch import run_batch
from ..transport.redis import fence_of
from .settle import RunningBatch

__all__ = ["send_to_pool"]

#: Seconds that a prefork pool without an event loop waits, after a process is gone, for a result
#: that may still be in the pipe (billiard's default is 10).
LOST_S = 1.0

HandOver = Callable[[Callable[[], None]], None]


def send_to_pool(
    batch: RunningBatch,
    consumer: Any,
    hand_over: HandOver,
    on_accepted: Callable[[], None],
    on_report: Callable[[Any], None],
    on_lost: Callable[[Any], None],
    *,
    ahead: bool,
    more: bool,
    bulk: bool,
) -> None:
    """Send the batch; exactly one of ``on_report`` and ``on_lost`` is called, in the event loop's thread.

    ``on_accepted`` may be called before.
    ``on_lost`` gets the ExceptionInfo with which the pool gave the batch up.
    ``ahead``: the process still runs another batch, and begins with this one right after.
    ``more``: there will be one that is sent ahead of the end of this one.

    Raises:
        Exception: the pool did not take it, such as a message that cannot be pickled.
    """
    message_hard, message_soft = batch.requests[0].time_limits
    # The pool falls back to the worker's own limits; the pool process has to know them, too.
    hard = message_hard or batch.task.time_limit or consumer.controller.time_limit
    soft = message_soft or batch.task.soft_time_limit or consumer.controller.soft_time_limit
    batch.limited = bool(hard or soft)

    def accepted(pid: int, at: float) -> None:
        batch.accepted(pid, at)
        on_accepted()

    def on_timeout(soft: bool, timeout: float) -> None:
        if soft:  # a hard one comes as the loss of the batch
            hand_over(lambda: batch.soft_timeout(timeout))

    job = consumer.pool.apply_async(
        run_batch,
        args=(_payload(batch, consumer, soft, hard, more=more and not batch.limited, bulk=bulk),),
        accept_callback=lambda pid, at: hand_over(lambda: accepted(pid, at)),
        timeout_callback=on_timeout,
        callback=lambda report: hand_over(lambda: on_report(report)),
        error_callback=lambda info, **_: hand_over(lambda: on_lost(info)),
        soft_timeout=soft,
        timeout=hard,
        lost_worker_timeout=LOST_S,
        correlation_id=batch.id,
    )
    on_escape(job, lambda exc: hand_over(lambda: on_lost(exception_info(exc))))
    if ahead:
        batch.fits = write_ahead(consumer.pool, consumer.hub)
    else:
        write_now(consumer.pool, consumer.hub)  # settling the batch before costs time, in which the model would wait
    batch.sent(job)


def _payload(
    batch: RunningBatch, consumer: Any, soft: float | None, hard: float | None, *, more: bool, bulk: bool
) -> BatchPayload:
    items = [ItemPayload(request.id, request.request_dict, decoded_call(request)) for request in batch.requests]
    return BatchPayload(
        task_name=batch.task.name,
        batch_id=batch.id,
        reason=batch.reason.value,
        items=items,
        soft_time_limit=soft,
        hard_time_limit=hard if isinstance(consumer.pool, PreforkPool) else None,
        fence=fence_of(consumer),
        bulk=bulk,
        more=more,
        fast_trace=uses_fast_trace(consumer.app),
    )
