"""The items that this worker holds, by what they are: a message that brings one of them again runs nothing.

At-least-once delivery brings messages twice: callers send an id again, and after the loss of a
connection the broker gives out again what still runs here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .._celery_internals import forget_request

if TYPE_CHECKING:
    from .request import BatchRequest

__all__ = ["Holdings"]

logger = logging.getLogger(__name__)

Identity = tuple[Any, ...]

#: So many ended items are kept at most whose messages have not been told.
MOST_UNTOLD = 10_000


class _Holding(NamedTuple):
    request: BatchRequest
    life: str | None


class Holdings:
    """Knows each item that waits or runs, and those that ended after their messages' channel had died."""

    def __init__(self) -> None:
        self._held: dict[Identity, _Holding] = {}
        self._awaited: dict[Identity, _Holding] = {}
        self._waited: set[Identity] = set()
        self._untold: deque[_Holding] = deque(maxlen=MOST_UNTOLD)

    def is_suspect(self, request: BatchRequest) -> bool:
        """Whether a worker may have died of the item: it is delivered again, and not only because
        the connection was lost while it waited here.
        """
        return bool(request.delivery_info.get("redelivered")) and request.identity not in self._waited

    def take_in(self, request: BatchRequest, life: str | None) -> bool:
        """Whether the item is new here. If not, its message has its end together with the first one's.

        Args:
            request: what was delivered.
            life: the worker's name at its broker, which ends when others take what it held. What
                still runs from an earlier life is theirs, and says nothing about this delivery.
        """
        identity = request.identity
        known = self._held.get(identity) or self._awaited.pop(identity, None)
        if known is None or known.life != life or not known.request.join(request):
            self._held[identity] = _Holding(request, life)
            return True
        forget_request(request, known.request if identity in self._held else None)
        logger.info("%s[%s] was delivered again; it runs once", request.name, request.id)
        return False

    def release(self, requests: Iterable[BatchRequest]) -> None:
        """These have ended, or are the broker's again."""
        while self._untold and self._untold[0].request.is_told():
            self._untold.popleft()
        for request in requests:
            holding = self._held.get(request.identity)
            if holding is not None and holding.request is request:
                del self._held[request.identity]
                if not request.acknowledged:
                    self._forget_awaited(request)
                elif not request.is_told():
                    self._untold.append(holding)

    def _forget_awaited(self, request: BatchRequest) -> None:
        """It could not be settled, and will never tell its messages anything: when it comes again, it runs."""
        awaited = self._awaited.get(request.identity)
        if awaited is not None and awaited.request is request:
            del self._awaited[request.identity]

    def lose_channel(self, running: Iterable[BatchRequest]) -> None:
        """All messages are the broker's again; only the items that run are still held, until they come again.

        What has ended comes again too when the connection was lost before its messages were told.
        """
        held, self._held = self._held, {}
        self._awaited = {one.request.identity: one for one in self._untold if not one.request.is_told()}
        self._untold.clear()
        self._waited = set(held)
        for request in running:
            holding = held.get(request.identity)
            if holding is None or holding.request is not request:
                continue
            self._held[request.identity] = holding
            if not request.acknowledged:
                request.disown()
                self._awaited[request.identity] = holding
