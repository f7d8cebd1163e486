"""The only door to names of Celery, kombu and billiard that are not public.

Checked on Celery 5.6.3 and 5.7.0 with kombu 5.7.0 and billiard 4.3.2.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import celery
from billiard.common import TERM_SIGNAME, human_status, terminate_handler_fired  # type: ignore[attr-defined]
from billiard.einfo import ExceptionInfo, ExceptionWithTraceback  # type: ignore[attr-defined]
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from billiard.pool import EX_OK, EX_RECYCLE, SIG_SOFT_TIMEOUT
from billiard.process import current_process
from celery import _state, platforms
from celery.app import trace
from celery.app.autoretry import add_autoretry_behaviour
from celery.app.task import Context
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.platforms import EX_FAILURE
from celery.utils import threads as celery_threads
from celery.utils.objects import Bunch
from celery.utils.serialization import UnpickleableExceptionWrapper
from celery.utils.text import truncate
from celery.worker import state as worker_state
from celery.worker.request import Request
from celery.worker.strategy import default as default_strategy
from greenlet import GreenletExit
from kombu.utils.encoding import safe_repr

if TYPE_CHECKING:
    from .pool.messages import BatchPayload, ItemPayload

__all__ = [
    "HARD_LIMIT_CLOSES_IN_ON_TIMEOUT",
    "SIG_SOFT_TIMEOUT",
    "Bunch",
    "Context",
    "ExceptionInfo",
    "PoolProcess",
    "PreforkPool",
    "Request",
    "Terminated",
    "TimeLimitExceeded",
    "WorkerLostError",
    "add_autoretry_behaviour",
    "check_request_stack",
    "current_app",
    "default_strategy",
    "end_worker",
    "ends_process",
    "exception_info",
    "exit_status",
    "find_task",
    "forget_request",
    "forks",
    "in_loop_thread",
    "is_cancelled",
    "is_discarded",
    "is_solo",
    "is_stopping",
    "loaded_torch",
    "on_escape",
    "pool_process_index",
    "pool_processes",
    "raised",
    "reap",
    "shielded",
    "shown",
    "signal_number",
    "success_line",
    "task_queue",
    "task_stack",
    "trace_item",
    "trace_with_item_clock",
    "uses_fast_trace",
    "worker_lost_info",
]

logger = logging.getLogger(__name__)

#: The stack behind ``celery.current_task``.
task_stack: Any = _state._task_stack  # type: ignore[attr-defined]

#: From 5.7 on, ``Request.on_timeout`` closes an item by itself (hook, signal, event); before, only
#: ``on_failure`` sends the event.
HARD_LIMIT_CLOSES_IN_ON_TIMEOUT = celery.VERSION >= (5, 7)


def current_app() -> Any:
    """The app itself, not the proxy."""
    app: Any = celery.current_app
    return app._get_current_object()


def find_task(name: str) -> Any:
    """The task of that name, in a pool process.

    A spawned process has the app of its task module and a second one, unpickled, which is the
    current one and has no class-based tasks: Celery 5.7 does not find them there.

    Raises:
        celery.exceptions.NotRegistered: no app of this process has it.
    """
    app = current_app()
    if name not in app.tasks:
        for other in tuple(_state._get_active_apps()):  # type: ignore[attr-defined]
            if name in other.tasks:
                app.tasks[name] = other.tasks[name]
    return app.tasks[name]


def check_request_stack() -> None:
    """Refuse USE_FAST_LOCALS, with which Celery keys its stacks by thread instead of by greenlet."""
    if celery_threads.LocalStack is not celery_threads._LocalStack:
        raise RuntimeError("celery_batching does not work with USE_FAST_LOCALS; unset that variable")


def trace_item(batch: BatchPayload, item: ItemPayload) -> tuple[int, Any, float]:
    """Decode and trace one item with the function Celery would give to its pool."""
    function = trace.fast_trace_task if batch.fast_trace else trace.trace_task_ret
    result: tuple[int, Any, float] = function(
        batch.task_name, item.id, item.request, item.body, item.content_type, item.content_encoding
    )
    return result


def trace_with_item_clock(task: Any, clock: Callable[[], float]) -> None:
    """Give the task a tracer of Celery's that reads our clock; Celery rebuilds it on reconnect."""
    if getattr(task.__trace__, "item_clock", None) is not clock:
        # Called through its module: monitoring libraries replace it there.
        tracer: Any = trace.build_tracer(task.name, task, app=task.app, hostname=_hostname(), monotonic=clock)
        tracer.item_clock = clock
        task.__trace__ = tracer


def _hostname() -> str | None:
    """The worker's node name where Celery noted it for its trace functions."""
    localized: Any = trace._localized  # type: ignore[attr-defined]
    return localized[2] if localized else None


def success_line(record: logging.LogRecord, task_id: str) -> bool:
    """Whether this is the tracer's line about the success of this task."""
    context = record.args
    return record.msg == trace.LOG_SUCCESS and isinstance(context, dict) and context.get("id") == task_id


def exception_info(exc: BaseException) -> ExceptionInfo:
    """What Celery sends around in place of a raised exception; one that was not raised yet is raised here."""
    if exc.__traceback__ is None:
        with contextlib.suppress(type(exc)):
            raise exc
    return ExceptionInfo((type(exc), exc, exc.__traceback__))


def worker_lost_info(exc: BaseException) -> ExceptionInfo:
    """As the pool reports an exception that leaves the trace function of a task alone in its process.

    An Exception as itself; SystemExit and its like, which would have ended the process, as
    WorkerLostError.
    """
    if isinstance(exc, Exception):
        return exception_info(exc)
    status = type(exc).__name__
    if isinstance(exc, SystemExit):
        code = 0 if exc.code is None else exc.code
        status = human_status(code if isinstance(code, int) else 1)  # text is a message, and status 1
    return exception_info(WorkerLostError(f"Worker exited prematurely: {status}.").with_traceback(exc.__traceback__))


def raised(info: ExceptionInfo) -> BaseException:
    """The exception in it, which billiard wraps until it has crossed to another process."""
    exc: Any = info.exception
    return exc.exc if isinstance(exc, ExceptionWithTraceback) else exc  # type: ignore[no-any-return]


def shielded(info: ExceptionInfo) -> ExceptionInfo:
    """The same for ``Request.on_failure``, which lets a MemoryError fly into the event loop.

    The wrapper is Celery's own for exceptions that cannot be pickled; it unwraps it for events.
    """
    exc = raised(info)
    if isinstance(exc, MemoryError):
        info.exception = UnpickleableExceptionWrapper.from_exception(exc)
    return info


def ends_process(exc: BaseException) -> bool:
    """Whether this exception carries the end of the process, and not the end of an item.

    billiard turns SIGTERM in a pool process into SystemExit; a user's own ``sys.exit()`` is none.
    """
    if isinstance(exc, (WorkerShutdown, WorkerTerminate, GreenletExit)):
        return True
    return isinstance(exc, SystemExit) and bool(terminate_handler_fired())


def pool_process_index() -> int:
    """The index of this pool process among its siblings; 0 where there is only one."""
    return int(getattr(current_process(), "index", 0) or 0)


#: One process of a prefork pool.
PoolProcess = Any


def pool_processes(pool: Any) -> dict[PoolProcess, bool]:
    """The processes of a prefork pool on an event loop, and whether each has finished its setup; else nothing."""
    processes = getattr(pool, "_pool", None)
    starting = getattr(processes, "_waiting_to_start", None)
    if processes is None or starting is None:
        return {}
    return {process: process not in starting for process in processes._pool}


def reap(pool: Any) -> None:
    """Let the pool look for ended processes now: their jobs are told, and others started."""
    pool._pool.maintain_pool()


def exit_status(process: PoolProcess) -> str | None:
    """How a process died, for people; None if it ended in order, was recycled or terminated by the pool's owner."""
    code = process.exitcode
    if code in (None, EX_OK, EX_RECYCLE) or process._controlled_termination:
        return None
    return str(human_status(code))


def in_loop_thread(hub: Any) -> bool:
    """Whether the caller runs in the thread of kombu's event loop."""
    return hub is None or hub._loop_thread in (None, threading.get_ident())


def loaded_torch() -> Any:
    """The torch module if something in this process imported it."""
    return sys.modules.get("torch")


def is_solo(pool: Any) -> bool:
    """Whether the pool runs its jobs in the thread of the event loop."""
    return isinstance(pool, SoloPool)


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


def uses_fast_trace(app: Any) -> bool:
    """Which of its two trace functions Celery would give to the pool."""
    return bool(app.use_fast_trace_task)


def forks(worker: Any) -> bool:
    """Whether the worker starts its pool processes by fork."""
    return getattr(worker, "pool_start_method", "fork") in (None, "fork")


def shown(value: Any, characters: int) -> str:
    """The value for a message: its repr, which must not raise, cut to length."""
    return str(truncate(safe_repr(value), characters))


def is_stopping() -> bool:
    """Whether somebody asked the worker to stop; a status of 0 asks too."""
    return any(
        flag is not None and flag is not False for flag in (worker_state.should_stop, worker_state.should_terminate)
    )


def end_worker() -> None:
    """End the worker with a failure status as soon as its loop comes round."""
    worker_state.should_stop = EX_FAILURE  # type: ignore[assignment]  # the stubs know its default only


def is_discarded(job: Any) -> bool:
    """Whether the pool has dropped a job it had not accepted yet.

    AsynPool does so when the connection is lost, without a word to the job's callbacks.
    """
    cache = getattr(job, "_cache", None)
    return cache is not None and job._job not in cache and not job.ready()


def on_escape(job: Any, tell: Callable[[BaseException], None]) -> None:
    """Tell of what flies past the callbacks of the threads pool, into a future that nobody reads.

    A future that is cancelled at shutdown never ran: its messages go back by themselves.
    """
    future = getattr(job, "f", None)
    if future is None:
        return

    def look(future: Any) -> None:
        if not future.cancelled() and (exc := future.exception()) is not None:
            tell(exc)

    future.add_done_callback(look)


def is_cancelled(request: Any) -> bool:
    """Whether the request has already got its end by remote control or a lost connection."""
    return bool(request._already_revoked or request._already_cancelled)


def forget_request(request: Any, other: Any) -> None:
    """Take a received request out of the worker's books; its id stands for the other, if any."""
    worker_state.reserved_requests.discard(request)
    if other is None:
        worker_state.requests.pop(request.id, None)
    else:
        worker_state.requests[request.id] = other
