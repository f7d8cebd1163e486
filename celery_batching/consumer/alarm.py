"""One timer for the moment at which the policy wants to be asked again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Alarm"]


class Alarm:
    """Rings once, at exactly the time it is set to, and never after it was stopped.

    Args:
        consumer: Celery's consumer, for its event loop.
        ring: called when it is time.
    """

    def __init__(self, consumer: Any, ring: Callable[[], None]) -> None:
        self._consumer = consumer
        self._ring = ring
        self._timer: Any = None
        self._at = 0.0

    def set(self, at: float | None) -> None:
        """Ring at this time of the monotonic clock and at no other; None: not at all."""
        if self._timer is not None and self._at != at:
            self._timer.cancel()
            self._timer = None
        if at is not None and self._timer is None:
            self._at = at
            self._timer = self._start(max(at - time.monotonic(), 0.0))

    def _start(self, delay: float) -> Any:
        # Checked when it rings: an entry of Celery's timer may be on its way when it is cancelled.
        token = object()
        self._token = token
        if self._consumer.hub is not None:
            return self._consumer.timer.call_after(delay, self._on_time, (token,))
        # Without an event loop Celery's own timer looks at its entries once a second only.
        timer = threading.Timer(delay, self._on_time, (token,))
        timer.daemon = True
        timer.start()
        return timer

    def _on_time(self, token: object) -> None:
        if self._timer is not None and token is self._token:
            self._timer = None
            self._ring()
