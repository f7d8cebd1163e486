"""The worker's main process: its requests, its books, its end."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import celery
from billiard.common import TERM_SIGNAME
from celery import platforms, states
from celery.platforms import EX_FAILURE
from celery.utils.objects import Bunch
from celery.worker import state as worker_state
from celery.worker.request import Request
from celery.worker.strategy import default as default_strategy

from .processes import jobs_of

__all__ = [
    "HARD_LIMIT_CLOSES_IN_ON_TIMEOUT",
    "Bunch",
    "Request",
    "acquire_slot",
    "before_end",
    "decoded_call",
    "default_strategy",
    "end_on_signal",
    "end_worker",
    "forget_request",
    "free_lost_slot",
    "has_semaphore",
    "in_loop_thread",
    "is_cancelled",
    "is_stopping",
    "keep_prefetch",
    "let_terminate",
    "needs_ack",
    "others_wait_for_a_slot",
    "recycles_processes",
    "release_slot",
    "signal_number",
    "stored_successes",
    "task_queue",
]


logger = logging.getLogger(__name__)


#: From 5.7 on, ``Request.on_timeout`` closes an item by itself (hook, signal, event); before, only
#: ``on_failure`` sends the event.
HARD_LIMIT_CLOSES_IN_ON_TIMEOUT = celery.VERSION >= (5, 7)


def in_loop_thread(hub: Any) -> bool:
    """Whether the caller runs in the thread of kombu's event loop."""
    return hub is None or hub._loop_thread in (None, threading.get_ident())


def task_queue(task: Any) -> str | None:
    """The queue a plain ``.delay()`` of the task goes to; None where the routing depends on the call."""
    app = task.app
    try:
        route = app.amqp.router.route(dict(task._get_exec_options()), task.name, (), {}, task_type=task)
    except Exception:  # a router of the user's own that wants a real call
        logger.debug("Cannot tell the queue of %s without a call", task.name, exc_info=True)
        return None
    queue: Any = route.get("queue")
    name: str | None = getattr(queue, "name", queue)
    return name


def signal_number(signal: Any) -> int:
    """The number of a signal that remote control named."""
    return int(platforms.signals.signum(signal or TERM_SIGNAME))


def is_stopping() -> bool:
    """Whether somebody asked the worker to stop; a status of 0 asks too."""
    stop, terminate = worker_state.should_stop, worker_state.should_terminate
    return (stop is not None and stop is not False) or (terminate is not None and terminate is not False)


def before_end(consumer: Any, act: Callable[[], None]) -> None:
    """Call ``act`` when the consumer stops for good, before it forgets what is parked in it.

    The state's flags do not tell: remote control ends a worker without setting them.
    """
    forget = consumer.blueprint.on_close

    def act_and_forget() -> None:
        act()
        forget()

    consumer.blueprint.on_close = act_and_forget


def end_worker() -> None:
    """End the worker with a failure status as soon as its loop comes round."""
    worker_state.should_stop = EX_FAILURE  # type: ignore[assignment]  # the stubs know its default only


def end_on_signal() -> None:
    """Let the next signal that asks the worker to end do so at once, whatever its threads do."""
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGINT", "SIGQUIT"):
            platforms.signals[name] = lambda *_: os._exit(EX_FAILURE)


def needs_ack(message: Any) -> bool:
    """Whether its queue is consumed with acks; else it stays unacknowledged for kombu."""
    return message.delivery_info.get("consumer_tag") not in (message.channel.no_ack_consumers or ())


def is_cancelled(request: Any) -> bool:
    """Whether the request has already got its end by remote control or a lost connection."""
    return bool(request._already_revoked or request._already_cancelled)


def forget_request(request: Any, other: Any) -> None:
    """Take a received request out of the worker's books; its id stands for the other, if any."""
    worker_state.reserved_requests.discard(request)
    worker_state.active_requests.discard(request)
    if other is None:
        worker_state.requests.pop(request.id, None)
    else:
        worker_state.requests[request.id] = other


def stored_successes(requests: Iterable[Any]) -> dict[str, Any]:
    """The results, by task id, of those that have stored their success, as Celery 5.7 asks for a lost task.

    Not of the header of a chord: that its result is stored does not say that it was counted.
    """
    results: dict[str, Any] = {}
    for request in requests:
        try:
            if request.ignore_result or request.chord or request.task.backend.as_uri() == "rpc://":
                continue  # there is nothing to be found
            meta = request.task.backend._get_task_meta_for(request.id)
        except Exception as exc:  # the backend is away or has no results; asking for all may take long
            logger.debug("Cannot ask for the result of %s: %r", request.id, exc)
            break
        if meta["status"] == states.SUCCESS:
            results[request.id] = meta.get("result")
    return results


def keep_prefetch(consumer: Any) -> None:
    """Undo that Celery 5.6 lowers the prefetch when a connection is lost: with quorum queues it stays low."""
    if celery.VERSION < (5, 7) and consumer.qos is not None:  # it has consumed
        consumer.initial_prefetch_count = consumer.max_prefetch_count
        consumer._maximum_prefetch_restored = True


def decoded_call(request: Any) -> tuple[Any, ...]:
    """The arguments and the embedded part of a request's message."""
    call: tuple[Any, ...] = request._Request__payload
    return call


def has_semaphore(worker: Any) -> bool:
    """Whether the worker counts the slots of its pool, as it does for prefork on an event loop."""
    return bool(worker.process_task == worker._process_task_sem)


def others_wait_for_a_slot(worker: Any) -> bool:
    """Whether somebody waits for a slot of the pool; only where ``has_semaphore``."""
    return bool(worker.semaphore._waiting)


def free_lost_slot(worker: Any) -> None:
    """Let somebody who waits for a slot have one, while the pool has no job that would give one back at its end.

    The pool gives back one slot for a process that dies, which may have had two jobs.
    """
    if has_semaphore(worker) and not jobs_of(worker.pool) and others_wait_for_a_slot(worker):
        release_slot(worker)


def recycles_processes(worker: Any) -> bool:
    """Whether a pool process ends after so many jobs or with so much memory."""
    return bool(worker.max_tasks_per_child or worker.max_memory_per_child)


def acquire_slot(worker: Any, use: Callable[[], None]) -> None:
    """Call ``use`` when a slot is free; the pool releases it when a job ends."""
    worker._quick_acquire(use)


def release_slot(worker: Any) -> None:
    """Give back a slot that no job was started for."""
    worker._quick_release()


def let_terminate(request: Any, job: Any) -> None:
    """Let remote control terminate the request by way of the job, where the pool can terminate one."""
    if hasattr(job, "terminate"):
        request._apply_result = weakref.ref(job)
