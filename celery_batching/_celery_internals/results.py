"""Celery's Redis result backend, with a place to wait where it reads and writes the state of a task.

All around that place (encoding, what may be overwritten, retries, chords) is Celery's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from celery import states
from celery.backends.redis import RedisBackend, SentinelBackend

__all__ = [
    "ALONE",
    "Asker",
    "Question",
    "Read",
    "Write",
    "WriteNew",
    "let_wait",
    "twin",
]

#: The answer to an asker who shall do it himself, as Celery does.
ALONE: Any = object()


class Read(NamedTuple):
    """A key is to be read."""

    key: Any


class Write(NamedTuple):
    """A key is to be written, and told to those who listen to it."""

    arguments: tuple[Any, ...]
    """Those of Celery's own function: the key, the value and, from Celery 5.7 on, the expiry."""
    state: str

    @property
    def value(self) -> Any:
        """What is written: the encoded state of the task."""
        return self.arguments[1]


class WriteNew(NamedTuple):
    """A success is to be written as by ``Write``, unless something is stored under the key; then: ``ALONE``."""

    key: Any
    value: Any


Question = Read | Write | WriteNew


class Asker(Protocol):
    """Whose state is stored.

    Attributes:
        marking: whether the tracer itself marks the task now. Users' handlers store states too, and
            may hold a lock while they do; they are not made to wait.
        stored_state: the state that the tracer is storing now, if any.
    """

    marking: bool
    stored_state: str | None

    def ask(self, question: Question) -> Any:
        """Wait for the answer: what was read, None when it is written, or ``ALONE``."""


_Base: Any = object


class _Waiting(_Base):  # type: ignore[misc]
    """Stands before the class of a Redis backend."""

    find_asker: Callable[[], Asker | None]
    describer: Any

    def mark_as_done(self, *args: Any, **kwargs: Any) -> Any:
        return self._mark(super().mark_as_done, args, kwargs)

    def mark_as_failure(self, *args: Any, **kwargs: Any) -> Any:
        return self._mark(super().mark_as_failure, args, kwargs)

    def mark_as_retry(self, *args: Any, **kwargs: Any) -> Any:
        return self._mark(super().mark_as_retry, args, kwargs)

    def store_result(self, task_id: str, result: Any, state: str, *args: Any, **kwargs: Any) -> Any:
        asker = self.find_asker()
        if asker is None or not (asker.marking or _is_start(result, state)):
            return super().store_result(task_id, result, state, *args, **kwargs)
        asker.marking, asker.stored_state = False, state
        try:
            return super().store_result(task_id, result, state, *args, **kwargs)
        finally:
            asker.stored_state = None

    def get(self, key: Any) -> Any:
        asker = self.find_asker()
        answer = asker.ask(Read(key)) if asker is not None and asker.stored_state else ALONE
        return super().get(key) if answer is ALONE else answer

    def _set(self, *arguments: Any) -> None:
        asker = self.find_asker()
        state = asker and asker.stored_state
        if not asker or not state or asker.ask(Write(arguments, state)) is ALONE:
            super()._set(*arguments)

    def _get_result_meta(self, *args: Any, **kwargs: Any) -> Any:
        return super(_Waiting, self.describer)._get_result_meta(*args, **kwargs)

    def _mark(self, mark: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        asker = self.find_asker()
        if asker is None:
            return mark(*args, **kwargs)
        asker.marking = True
        try:
            return mark(*args, **kwargs)
        finally:
            asker.marking = False


class _SharedSettings:
    """The app's settings, where each that is looked up in a costly way is looked up once."""

    def __init__(self, conf: Any) -> None:
        self._conf = conf
        self.find_value_for_key = functools.cache(conf.find_value_for_key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conf, name)


class _SharedApp:
    """The app, as Celery asks it to describe a result: the answers are the same for all items of a batch."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.conf = _SharedSettings(app.conf)
        self.now = functools.cache(app.now)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


class _WaitingRedis(_Waiting, RedisBackend):
    """For plain Redis."""


class _WaitingSentinel(_Waiting, SentinelBackend):
    """For Redis behind Sentinel."""


_WAITING: dict[type, type] = {
    RedisBackend: _WaitingRedis,
    SentinelBackend: _WaitingSentinel,
}


def let_wait(backend: Any, find_asker: Callable[[], Asker | None]) -> bool:
    """Let the tracers of a batch that store by this backend wait for answers; False where it is not Redis.

    Subclasses of users stay as they are: they may read and write in another way.
    """
    waiting = _WAITING.get(type(backend))
    if waiting is not None:
        backend.find_asker = find_asker
        backend.__class__ = waiting
    if not isinstance(backend, _Waiting):
        return False
    backend.describer = twin(backend, app=_SharedApp(backend.app))
    return True


def twin(backend: Any, **differently: Any) -> Any:
    """The same backend but for some attributes; threads may share the backend itself."""
    twin: Any = object.__new__(type(backend))
    vars(twin).update(vars(backend), **differently)
    # That of an earlier batch has one of its own, and so on: they would be a chain without end.
    vars(twin).pop("describer", None)
    return twin


def _is_start(result: Any, state: str) -> bool:
    """Whether the tracer stores that the task has started, and not a handler of its own will."""
    return state == states.STARTED and isinstance(result, dict) and set(result) == {"pid", "hostname"}
