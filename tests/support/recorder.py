"""The recorder: notes, in a worker or an eager client, whatever Celery does with each task.

Signals and handlers with all their arguments, and what becomes of the message, in the order in
which they happen. It describes values without knowing what is right: two recordings are compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from billiard.einfo import ExceptionInfo, RemoteTraceback
from celery import Task, current_task, signals
from celery.app.task import Context
from celery.exceptions import Retry
from celery.worker.request import Request
from kombu.message import Message

SIGNALS = (
    "task_received",
    "task_prerun",
    "task_postrun",
    "task_success",
    "task_failure",
    "task_retry",
    "task_revoked",
    "task_rejected",
    "task_unknown",
    "task_internal_error",
)

#: Whoever listens to these sees that Celery's tracer is at work.
OF_TRACER = {"task_prerun", "task_postrun", "task_success"}

#: What a signal or handler sees of its own task in `contextvars`: the id that its prerun left there.
of_task: ContextVar[str | None] = ContextVar("of_task", default=None)


#: The entry that says that the recorder itself is at fault.
FAILED = "the recorder failed"


class Recorder:
    """Writes entries with `write(what, id=..., seen=..., facts=...)`."""

    def __init__(self, write: Callable[..., None], *, but: Collection[str] = ()) -> None:
        """Record to `write`, from this process and those it forks, all signals `but` these."""
        self._write = write
        self._main_pid = os.getpid()
        self._receivers = {name: self._receiver(name) for name in SIGNALS if name not in but}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record signals for the length of a `with` block."""
        self._connect()
        try:
            yield
        finally:
            for name, receiver in self._receivers.items():
                getattr(signals, name).disconnect(receiver)

    def listen(self) -> None:
        """Record signals and the ends of messages for the life of this process, which is a worker's."""
        self._connect()
        for end in ("ack", "reject", "requeue"):
            self._watch_messages(end)

    def note(self, what: str, id_: str | None, /, **facts: Any) -> None:
        """Record one thing that happened to a task, with what can be seen from there."""
        request = current_task.request if current_task else None
        seen = {
            "pid": os.getpid(),
            "in main process": os.getpid() == self._main_pid,
            "in contextvars": of_task.get() if request else None,
            "in current_task": request and [current_task.name, request.id],
        }
        self._write(what, id=id_, seen=seen, facts={name: describe(value) for name, value in facts.items()})

    def write(self, what: str, **facts: Any) -> None:
        """Record something that belongs to no task."""
        self._write(what, **facts)

    def _connect(self) -> None:
        for name, receiver in self._receivers.items():
            getattr(signals, name).connect(receiver, weak=False)

    def _receiver(self, name: str) -> Callable[..., None]:
        def receive(sender: Any, signal: Any, **facts: Any) -> None:
            try:
                task_id = _id(sender, facts)
                if name == "task_prerun":
                    of_task.set(task_id)
                    facts["request"] = facts["task"].request
                self.note(name, task_id, sender=sender, **facts)
            except Exception as error:  # Celery would only log it
                self._write(FAILED, signal=name, error=repr(error))

        return receive

    def _watch_messages(self, end: str) -> None:
        original = getattr(Message, end)

        def watched(message: Message, *args: Any, **kwargs: Any) -> Any:
            if "id" in message.headers:
                self.note(f"message {end}", message.headers["id"])
            return original(message, *args, **kwargs)

        setattr(Message, end, watched)


class RecordedEnds:
    """A base for tasks, before Celery's: handlers of bad ends are recorded, then a scenario's own are called.

    Attributes:
        recorder: where to.
        handlers: a scenario's own, by name; each is called with the task.
    """

    recorder: Recorder
    handlers: Mapping[str, Callable[[Any], None]] = {}

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._heard("on_failure", task_id, exc=exc, args=args, kwargs=kwargs, einfo=einfo)

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._heard("on_retry", task_id, exc=exc, args=args, kwargs=kwargs, einfo=einfo)

    def _heard(self, handler: str, task_id: str, **facts: Any) -> None:
        own_id = self.request.id  # type: ignore[attr-defined]
        self.recorder.note(handler, task_id, own_id=own_id, **facts)
        if handler in self.handlers:
            self.handlers[handler](self)


class RecordedHandlers(RecordedEnds):
    """The same with all handlers."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        self._heard("before_start", task_id, args=args, kwargs=kwargs)

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        self._heard("on_success", task_id, retval=retval, args=args, kwargs=kwargs)

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._heard("after_return", task_id, status=status, retval=retval, args=args, kwargs=kwargs, einfo=einfo)


def describe(value: Any) -> Any:
    """A value as JSON that shows all that a user could see in it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): describe(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(describe, value))
    return _describe_object(value)


def _describe_object(value: Any) -> Any:
    for kind, describe_kind in _OBJECTS.items():
        if isinstance(value, kind):
            return describe_kind(value)
    return type(value).__name__


def _describe_retry(retry: Retry) -> Any:
    return {"retry": str(retry), "when": describe(retry.when), "exc": describe(retry.exc)}


def _describe_error(error: BaseException) -> Any:
    # RemoteTraceback is text about where the error was raised, in another process.
    cause = None if isinstance(error.__cause__, RemoteTraceback) else describe(error.__cause__)
    return {"error": type(error).__qualname__, "args": describe(error.args), "cause": cause}


def _describe_info(info: ExceptionInfo) -> Any:
    exception = describe(getattr(info.exception, "exc", info.exception))
    of_info = {"traceback": info.traceback, "internal": info.internal}
    return {"einfo": info.type.__qualname__, "exception": exception, **of_info}


def _describe_context(context: Context) -> Any:
    return {name: describe(entry) for name, entry in vars(context).items() if not name.startswith("_")}


def _describe_request(request: Request) -> Any:
    return {name: describe(getattr(request, name)) for name in ("request_dict", "args", "kwargs")}


#: How to describe objects; of a Retry, which is an error, too, the first line counts.
_OBJECTS: dict[type, Callable[[Any], Any]] = {
    Task: lambda task: task.name,
    Retry: _describe_retry,
    BaseException: _describe_error,
    ExceptionInfo: _describe_info,
    TracebackType: lambda _: "a traceback",
    Context: _describe_context,
    Request: _describe_request,
}


def _id(sender: Any, facts: Mapping[str, Any]) -> str | None:
    if facts.get("task_id"):
        return str(facts["task_id"])
    if "message" in facts:
        return facts["message"].headers.get("id")
    request = facts.get("request") or sender.request
    return request["id"] if isinstance(request, dict) else request.id
