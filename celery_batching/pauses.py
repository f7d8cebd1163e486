"""Holds the garbage collector back while many objects come to life at once, of which nearly all will go by themselves.

It would look at all of them again and again, and find nothing: a quarter of the main process's
time under load.
"""

from __future__ import annotations

import gc
import threading

__all__ = ["collector_paused"]


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


#: A context manager, which may be entered again inside itself.
collector_paused = _Pause()
