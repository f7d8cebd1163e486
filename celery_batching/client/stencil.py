"""The message of a call with holes for what differs between two calls, cut from one that Celery and kombu made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kombu.serialization import dumps as serialized
from kombu.utils.json import dumps
from kombu.utils.uuid import uuid

from ..transport.publishing import Put

__all__ = ["Stencil"]

#: What differs between two calls, by the part of the message that holds it.
_HOLES = {
    "headers": {"id": "id", "root_id": "id", "argsrepr": "argsrepr", "kwargsrepr": "kwargsrepr"},
    "properties": {"correlation_id": "id", "reply_to": "reply_to", "delivery_tag": "delivery_tag"},
}

#: A text as JSON has it.
_quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii


class Stencil:
    """Makes the text of a message as Celery and kombu would, for calls that differ in little.

    Args:
        put: the message of one of these calls.
        shown: Celery's ``argsrepr`` and ``kwargsrepr`` of a value.
        channel: kombu's, which put it there.

    Raises:
        ValueError: the message is of another kind; there is no stencil for it.
    """

    def __init__(
        self,
        put: Put,
        shown: tuple[Callable[[Any], str], Callable[[Any], str]],
        channel: Any,
    ) -> None:
        self.key = put.key
        self._show_args, self._show_kwargs = shown
        self._channel = channel
        self._no_kwargs = _quoted(self._show_kwargs({}))
        self._type = put.message["content-type"], put.message["content-encoding"]
        self._serializer = put.serializer
        self._template = _template(put.message)

    def is_like(self, other: Stencil) -> bool:
        """Whether the two make the same messages."""
        mine, others = ((one.key, one._serializer, one._type, one._template) for one in (self, other))
        return mine == others

    def makes(self, message: dict[str, Any], task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether it makes exactly this message of a call."""
        properties = message["properties"]
        made = self.filled(task_id, args, kwargs, properties["reply_to"], properties["delivery_tag"])
        return made == dumps(message)

    def filled(
        self,
        task_id: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        reply_to: str,
        delivery_tag: str | None = None,
    ) -> str:
        """The message of a call which nothing follows, under a new delivery tag if none is given.

        Raises:
            Exception: of the serializer's.
        """
        embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
        *kind, body = serialized((args, kwargs, embedded), self._serializer)
        if tuple(kind) != self._type:
            raise ValueError(f"{self._serializer} makes {kind} of this call, and {self._type} of others")
        return self._template % {
            "id": _quoted(task_id),
            "delivery_tag": _quoted(delivery_tag or self._channel._next_delivery_tag()),
            "reply_to": _quoted(reply_to),
            "argsrepr": _quoted(self._show_args(args)),
            "kwargsrepr": _quoted(self._show_kwargs(kwargs)) if kwargs else self._no_kwargs,
            "body": _quoted(self._channel.encode_body(body, self._channel.body_encoding)[0]),
        }


def _template(message: dict[str, Any]) -> str:
    headers = message["headers"]
    if headers.get("eta") is not None or headers.get("expires") is not None:
        raise ValueError("the message tells a time")
    marker = uuid()  # which no message has in it
    holed = {**message, "body": f"{marker}body"}
    for part, holes in _HOLES.items():
        if not message[part].keys() >= holes.keys():
            raise ValueError(f"a message without {holes.keys() - message[part].keys()}")
        holed[part] = {**message[part], **{name: marker + hole for name, hole in holes.items()}}
    text = dumps(holed).replace("%", "%%")
    for hole in ("body", *(hole for holes in _HOLES.values() for hole in holes.values())):
        text = text.replace(f'"{marker}{hole}"', f"%({hole})s")
    return text
