"""BatchTask: what users write. In a web process it sends single calls, in a worker it runs batches."""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from celery import Task

from .batch import Batch, RetryEntry
from .columns import Columns
from .errors import BatchingError, SignatureError
from .install import install
from .options import BatchOptions, check_declared, option_names, refuse_misspelt

if TYPE_CHECKING:
    from celery import Celery
    from celery.result import ResultSet

    _Task = Task[..., Any]
else:
    _Task = Task

__all__ = ["BatchTask"]


class BatchTask(_Task):
    """Base of tasks that take single calls and run them in batches.

    Every parameter of :meth:`run` is a list with one entry per item, and ``run`` returns one
    result per item, in the same order: a list, tuple, generator, numpy array or torch tensor
    (split along its first axis). An entry that is an exception fails, or retries, its item alone.
    A caller passes and gets one item: ``embed.delay("hello").get()``.

    As with late acks in Celery, ``run`` may run again for the same item, so it must be safe to
    repeat.

    Attributes:
        max_batch_size: the most items in one batch (default 32).
        max_wait: seconds the oldest item may wait for company while the worker is free
            (default 0).
        on_error: ``"split"`` (default) or ``"fail"``: what to do when ``run`` raises.
        oom_errors: exception classes, or their full names, that mean "out of memory", beside
            torch's and MemoryError.

    Raises:
        OptionError: where the class is defined, for an option with a bad value or name.
        SignatureError: where the class is defined, for a ``run`` that cannot take columns.
    """

    abstract = True
    acks_late = True
    Strategy = "celery_batching.consumer.intake:strategy"
    Request = "celery_batching.consumer.request:BatchRequest"

    max_batch_size: int | None = None
    max_wait: float | None = None
    on_error: str | None = None
    oom_errors: Iterable[type[BaseException] | str] | None = None

    #: The columns of ``run``; set for each class that has one.
    columns: ClassVar[Columns]

    #: Present, so that Celery does not wrap ``run``, which takes a batch, in its automatic
    #: retries of one call; they are put around the call's own body (see pool/body.py).
    _orig_run = None

    _resolved_options: BatchOptions | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        owner = str(cls.__dict__.get("name") or cls.__name__)
        _check_attributes(cls, owner)
        if cls.run is not Task.run:
            cls.columns = _columns(cls, owner)
            if "__header__" not in cls.__dict__:  # the decorator has set it
                cls.__header__ = cls._check_call  # type: ignore[attr-defined]

    @classmethod
    def _check_call(cls, *args: Any, **kwargs: Any) -> None:
        """What ``apply_async`` checks a call with, as Celery makes it for decorated functions only."""
        cls.columns.row(args, kwargs)

    @classmethod
    def bind(cls, app: Celery) -> Celery:
        """Connect the task to its app, and the app's workers to batching."""
        bound = super().bind(app)
        install(app)
        cls._resolve_options()
        return bound

    @classmethod
    def _resolve_options(cls) -> BatchOptions:
        app: Any = cls.app
        declared = {name: getattr(cls, name) for name in option_names()}
        return BatchOptions.resolve(declared, os.environ, app.conf)

    @property
    def batch_options(self) -> BatchOptions:
        """The options in force, merged from declaration, environment and settings at first use."""
        cls = type(self)
        if cls._resolved_options is None:
            cls._resolved_options = cls._resolve_options()
        return cls._resolved_options

    def setup(self) -> None:
        """Load the model. Runs once in each pool process, before the process takes work."""

    @property
    def device(self) -> str:
        """Where this process should put its model: ``"cuda:k"`` for the pool process k, or ``"cpu"``."""
        from .pool.device import device  # noqa: PLC0415  may import torch

        return device()

    @property
    def batch(self) -> Batch:
        """The batch that is running, inside :meth:`run`.

        Raises:
            BatchingError: outside of ``run``.
        """
        batch = self._running_batch()
        if batch is None:
            raise BatchingError(f"{self.name}.batch exists only while run() runs")
        return batch

    def _running_batch(self) -> Batch | None:
        return getattr(self.request_stack.top, "batch", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one call: as its part of a batch inside a worker, as a batch of one elsewhere."""
        request: Any = self.request_stack.top
        if request is None or request.called_directly or request._protected:
            return self._body.call(*args, **kwargs)
        request._protected = 1  # Celery's own mark: the tracer's request is taken, further calls are direct
        return self._body.run(*args, **kwargs)

    @functools.cached_property
    def _body(self) -> Any:
        from .pool.body import ItemBody  # noqa: PLC0415  a process that only sends calls needs none of it

        return ItemBody(self)

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> Any:
        """Celery's ``apply_async``, in less steps where broker and backend are Redis."""
        from .client.call import Call  # noqa: PLC0415  a worker needs none of it
        from .client.choice import send  # noqa: PLC0415

        named = {"link": link, "link_error": link_error, "shadow": shadow}
        options.update((name, value) for name, value in named.items() if value is not None)
        return send(Call(self, super().apply_async, args, kwargs, options), task_id, producer)

    def delay_many(self, items: Iterable[Any]) -> ResultSet:
        """Send a call for each item, which is its only argument; on Redis in one round trip.

        Returns:
            ResultSet: the results in the order of the items; ``get()`` gives their list.

        Raises:
            TypeError: one item does not fit the signature, or there is no list of them; nothing is sent.
        """
        if isinstance(items, (str, bytes, Mapping)):
            raise TypeError(f"{self.name}.delay_many() takes a list of items, got one {type(items).__name__}")
        return self.apply_async_many([(item,) for item in items])

    def apply_async_many(self, calls: Iterable[Sequence[Any]], **options: Any) -> ResultSet:
        """Send a call for each sequence of positional arguments, with the options of ``apply_async`` for all.

        Returns:
            ResultSet: the results in the order of the calls; ``get()`` gives their list.

        Raises:
            TypeError: the arguments of one call do not fit the signature; nothing is sent.
        """
        from .client.many import send_many  # noqa: PLC0415  a worker needs none of it

        return send_many(self, [tuple(args) for args in calls], options)

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Exception | None = None,
        throw: bool = True,
        eta: Any = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """Celery's ``retry``. Inside ``run`` it means every item; for one item see :meth:`Batch.retry`."""
        if self._running_batch() is None:
            return super().retry(
                args, kwargs, exc=exc, throw=throw, eta=eta, countdown=countdown, max_retries=max_retries, **options
            )
        when = countdown if eta is None else eta
        entry = RetryEntry(exc, when, args=args, kwargs=kwargs, max_retries=max_retries, **options)
        if throw:
            raise entry
        return entry

    def update_state(self, task_id: str | None = None, state: Any = None, meta: Any = None, **kwargs: Any) -> None:
        """Celery's ``update_state``. Inside ``run`` it means the item of that id or, without one, every item."""
        batch = self._running_batch()
        requests = [] if batch is None else [one for one in batch.requests if task_id in (None, one.id)]
        if not requests:
            super().update_state(task_id, state, meta, **kwargs)
        for request in requests:
            self.backend.store_result(request.id, meta, state, request=request, **kwargs)

    def replace(self, sig: Any) -> Any:
        """Celery's ``replace``, for handlers of one item only.

        Raises:
            BatchingError: inside ``run``, which has no single call to replace.
        """
        self._refuse_in_run("replace")
        return super().replace(sig)

    def add_to_chord(self, sig: Any, lazy: bool = False) -> Any:
        """Celery's ``add_to_chord``, for handlers of one item only.

        Raises:
            BatchingError: inside ``run``, which belongs to no single chord.
        """
        self._refuse_in_run("add_to_chord")
        return super().add_to_chord(sig, lazy)  # type: ignore[call-overload]

    def _refuse_in_run(self, method: str) -> None:
        if self._running_batch() is not None:
            raise BatchingError(
                f"{self.name}.{method}() acts on one call, and run() has a batch of them; "
                f"put it into a task of its own, linked or chained to this one"
            )


def _check_attributes(cls: type[BatchTask], owner: str) -> None:
    for name in option_names():
        if name in cls.__dict__:
            check_declared(owner, name, cls.__dict__[name])
    known = dir(BatchTask)  # not hasattr(): to look at Task.app binds the class to the current app
    free = [
        name
        for name, value in cls.__dict__.items()
        if not name.startswith("_") and name not in known and not callable(value)
    ]
    refuse_misspelt(free, "", f"option of {owner}")


def _columns(cls: type[BatchTask], owner: str) -> Columns:
    run = _bound_run(cls)
    if inspect.iscoroutinefunction(run) or inspect.isasyncgenfunction(run):
        raise SignatureError(f"{owner}.run() is asynchronous; a pool process runs plain functions only")
    if cls.__dict__.get("_dump_pydantic_arguments") is not None:
        raise SignatureError(f"{owner}: pydantic=True checks single arguments, and run() gets lists of them")
    return Columns(run, owner)


def _bound_run(cls: type[BatchTask]) -> Callable[..., Any]:
    """``run`` as an instance has it, without ``self``, for a class that has no instance yet."""
    static = inspect.getattr_static(cls, "run")
    return types.MethodType(static, object()) if inspect.isfunction(static) else cls.run
