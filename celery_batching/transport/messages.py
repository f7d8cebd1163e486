"""Messages as the lists hold them, and as kombu puts them back: between text, payload and queue."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ._kombu import json_decoder, virtual_channel
from .ledger import Push

__all__ = ["BadMessageError", "Message", "Pushes", "loaded", "report_junk", "unacked_parts"]

logger = logging.getLogger(__name__)

#: The usual content type of a body.
JSON = "application/json"

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

    def _decode(self) -> Any:
        """As kombu's, in less steps for bodies of the usual kind."""
        if self.content_type == JSON and self.content_encoding == "utf-8" and JSON in (self.accept or ()):
            with suppress(ValueError, AttributeError):
                return json_decoder().decode(self.body.decode())
        return super()._decode()


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


def loaded(raws: Sequence[bytes], tags: Sequence[str]) -> list[Any]:
    """The payload of each message, or the BadMessageError that says why it has none.

    They are read as one list: that is faster, and what is equal in all of them, such as the names
    of the headers, is then one object, which takes less room on the way to the pool process.
    """
    try:
        payloads: list[Any] = json.loads(b"[%b]" % b",".join(raws))
        if tags == [str(payload["properties"]["delivery_tag"]) for payload in payloads]:
            return payloads
    except (ValueError, TypeError, KeyError, IndexError):
        pass  # one of them is bad
    return [_loaded_alone(raw, tag) for raw, tag in zip(raws, tags, strict=True)]


def _loaded_alone(raw: bytes, tag: str) -> Any:
    try:
        payload = json.loads(raw)
        found = str(payload["properties"]["delivery_tag"])
    except (ValueError, TypeError, KeyError, IndexError) as exc:
        return BadMessageError(repr(exc))
    return payload if found == tag else BadMessageError(f"its delivery tag is {found!r}, and was read as {tag!r}")


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
