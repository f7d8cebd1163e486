"""``setup()`` of the batch tasks: once in each pool process, before it takes work."""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from celery.exceptions import NotRegistered

from .._celery_internals import ends_process, find_task
from ..collector import collect_as_usual, keep_for_good
from ..errors import SetupError

if TYPE_CHECKING:
    from ..task import BatchTask

__all__ = ["NAME_SEPARATOR", "SETUP_VARIABLE", "ensure_setup", "is_set_up", "prepare", "prepare_process"]

#: Environment variable that names the tasks to set up. A process started by spawn inherits the
#: environment and nothing else.
SETUP_VARIABLE = "_CELERY_BATCHING_SETUP"

#: Between the names; what no name has in it.
NAME_SEPARATOR = "\n"

#: Guards the two tables below; the threads pool runs batches of one task in several threads.
_lock = threading.RLock()

#: The process in which each task's setup has run. A forked child inherits the table but not a
#: usable model, so the process is part of what is remembered. By task and not by name: another
#: app's task of the same name has no model yet.
_done: WeakKeyDictionary[BatchTask, int] = WeakKeyDictionary()

#: In which process, and how, a task's setup failed. Kept, so that a model that takes a minute to
#: fail is not loaded again for every batch.
_failed: WeakKeyDictionary[BatchTask, tuple[int, SetupError]] = WeakKeyDictionary()


def ensure_setup(task: BatchTask) -> None:
    """Run the task's setup unless it has run in this process.

    Raises:
        Exception: whatever ``setup`` raises; the next call tries again.
    """
    if is_set_up(task):
        return
    with _lock:
        if not is_set_up(task):
            task.setup()
            _done[task] = os.getpid()


def is_set_up(task: BatchTask) -> bool:
    """Whether the task's setup has run in this process."""
    return _done.get(task) == os.getpid()


def prepare(tasks: Iterable[BatchTask]) -> None:
    """Set the tasks up in a pool process, where a failure is final.

    Raises:
        SetupError: with the traceback in its message; the same one at every further call.
    """
    for task in tasks:
        with _lock:
            place, error = _failed.get(task, (None, None))
            if place != os.getpid():
                error = _try_setup(task)
            if error is not None:
                _failed[task] = (os.getpid(), error)
                raise error


def _try_setup(task: BatchTask) -> SetupError | None:
    try:
        ensure_setup(task)
    except BaseException as exc:  # also SystemExit: a library's sys.exit() is a failed setup like any other
        if ends_process(exc):
            raise
        return SetupError(f"{task.name}.setup() raised {exc!r}\n{traceback.format_exc().rstrip()}")
    return None


def prepare_process() -> bool:
    """Set up the tasks the main process named, as a new pool process; whether there are any. Failures are kept.

    Celery logs and swallows what a handler of ``worker_process_init`` raises, so a failure is
    reported by the first job of the process, and the main process ends the worker.
    """
    names = os.environ.get(SETUP_VARIABLE)
    if not names:
        return False
    collect_as_usual()
    for name in names.split(NAME_SEPARATOR):
        with contextlib.suppress(SetupError, NotRegistered):
            prepare([find_task(name)])
    keep_for_good()
    return True
