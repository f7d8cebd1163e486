"""How exceptions travel between a pool process and the main process."""

from __future__ import annotations

import contextlib
from typing import Any

from billiard.common import human_status, terminate_handler_fired  # type: ignore[attr-defined]
from billiard.einfo import ExceptionInfo, ExceptionWithTraceback  # type: ignore[attr-defined]
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.utils.serialization import UnpickleableExceptionWrapper
from celery.utils.text import truncate
from greenlet import GreenletExit
from kombu.utils.encoding import safe_repr

__all__ = [
    "ExceptionInfo",
    "Terminated",
    "TimeLimitExceeded",
    "WorkerLostError",
    "ends_process",
    "exception_info",
    "raised",
    "shielded",
    "shown",
    "worker_lost_info",
]


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


def shown(value: Any, characters: int) -> str:
    """The value for a message: its repr, which must not raise, cut to length."""
    return str(truncate(safe_repr(value), characters))
