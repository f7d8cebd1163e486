"""Messages as the lists hold them, and as kombu puts them back: between text, payload and queue."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

from ._kombu import virtual_channel
from .ledger import Push

__all__ = ["BadMessageError", "Message", "Pushes", "loaded", "report_junk", "unacked_parts"]

logger = logging.getLogger(__name__)

#: Characters of a text that is no message which the log shows.
SHOWN_CHARACTERS = 200


class BadMessageError(ValueError):
    """What a list holds looked like a message, and cannot be made one."""


class Message(virtual_channel.Message):  # type: ignore[misc]
    """kombu's, whose constructor lets any error of a malformed message fly into the event loop."""

    def __init__(self, payload: Any, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(payload, *args, **kwargs)
        except Exception as exc:  # of its structure, of the encoding of its body
            raise BadMessageError(repr(exc)) from exc


@dataclasses.dataclass
class Pushes:
    """Stands in for the pipeline to which kombu gives the message it puts back."""

    made: list[Push] = dataclasses.field(default_factory=list)

    def lpush(self, key: str, payload: str) -> None:
        """Behind all others."""
        self.made.append(Push("LPUSH", key, payload))

    def rpush(self, key: str, payload: str) -> None:
        """Before all others."""
        self.made.append(Push("RPUSH", key, payload))


def loaded(raw: bytes) -> Any:
    """The payload of a message.

    Raises:
        BadMessageError: it is no JSON.
    """
    try:
        return json.loads(raw)
    except ValueError as exc:
        raise BadMessageError(repr(exc)) from exc


def report_junk(key: str, raw: bytes) -> None:
    """Log what was taken off a list and is no message."""
    shown = raw[:SHOWN_CHARACTERS].decode(errors="replace")
    logger.error("Dropped what is no message from the list %s: %r", key, shown)


def unacked_parts(value: bytes) -> tuple[Any, str, str] | None:
    """Payload, exchange and routing key of what kombu keeps of an unacked message; None when it is none."""
    try:
        payload, exchange, routing_key = json.loads(value)
    except (ValueError, TypeError):
        logger.error("What is unacked there is no message: %r", value[:SHOWN_CHARACTERS])  # noqa: TRY400
        return None
    return payload, exchange, routing_key
