"""The items that this worker holds, by what they are: a message that brings one of them again runs nothing.

At-least-once delivery brings messages twice: callers send an id again, and after the loss of a
connection the broker gives out again what still runs here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._celery_internals import forget_request

if TYPE_CHECKING:
    from .request import BatchRequest

__all__ = ["Holdings"]

logger = logging.getLogger(__name__)

Identity = tuple[Any, ...]


class Holdings:
    """Knows each item that waits or runs, and those that ended after their messages' channel had died."""

    def __init__(self) -> None:
        self._held: dict[Identity, BatchRequest] = {}
        self._awaited: dict[Identity, BatchRequest] = {}

    def take_in(self, request: BatchRequest) -> bool:
        """Whether the item is new here. If not, its message has its end together with the first one's."""
        identity = request.identity
        known = self._held.get(identity) or self._awaited.pop(identity, None)
        if known is None or not known.join(request):
            self._held[identity] = request
            return True
        forget_request(request, known if identity in self._held else None)
        logger.info("%s[%s] was delivered again; it runs once", request.name, request.id)
        return False

    def release(self, requests: Iterable[BatchRequest]) -> None:
        """These have ended, or are the broker's again."""
        for request in requests:
            if self._held.get(request.identity) is request:
                del self._held[request.identity]

    def lose_channel(self, running: Iterable[BatchRequest]) -> None:
        """All messages are the broker's again; only the items that run are still held, until they come again."""
        self._held = {}
        self._awaited = {}
        for request in running:
            self._held[request.identity] = request
            if not request.acknowledged:
                request.disown()
                self._awaited[request.identity] = request
