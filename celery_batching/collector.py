"""Holds Python's garbage collector back from looking again and again where nothing is to be found.

Many objects come to life at once under load, and nearly all of them will go by themselves; and what
lives since the start, modules and models, is most of what there is to look at.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_as_usual", "collect_seldom", "collector_paused", "keep_for_good"]

#: Objects that may come to life, more than have gone, before the collector looks; Python's default is 700.
#: A waiting message takes about 40, so that a busy worker's waiting messages are fewer.
SELDOM = 10_000

_usual: list[tuple[int, int, int]] = []


class _Pause:
    """Only the main thread pauses, so that the pauses of several threads cannot add up to one without end."""

    def __init__(self) -> None:
        self._depth = 0
        self._enabled = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if self._depth == 0:
            self._enabled = gc.isenabled()
            gc.disable()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if self._depth == 0 and self._enabled:
            gc.enable()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """For what is not ours and may take long: on the solo pool the model runs where messages are read."""
        here = threading.current_thread() is threading.main_thread()
        if not (here and self._depth and self._enabled):
            yield
            return
        gc.enable()
        try:
            yield
        finally:
            self._enabled = gc.isenabled()  # the model may have its own mind
            gc.disable()


def keep_for_good() -> None:
    """Exempt all that lives now from collection: a start is over, and what it has made will stay."""
    gc.collect()
    gc.freeze()


def collect_seldom() -> None:
    """Let the collector look less often, in a main process whose models run elsewhere: it makes next to no cycles."""
    usual = gc.get_threshold()
    if 0 < usual[0] < SELDOM and not _usual:
        _usual.append(usual)
        gc.set_threshold(SELDOM, *usual[1:])


def collect_as_usual() -> None:
    """Undo that, in a process that was forked."""
    if _usual:
        gc.set_threshold(*_usual.pop())


#: A context manager, which may be entered again inside itself.
collector_paused = _Pause()
