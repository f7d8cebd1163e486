"""How a worker tells a web process the results of its calls: one message for all of a batch.

A call names the channel of its process in ``reply_to``, a property of the message that Celery uses
with the rpc backend only. The results are stored as ever: what is told here only spares the process
to listen to a channel for each call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

__all__ = ["is_reply_channel", "new_reply_channel", "packed", "unpacked"]

PREFIX = "celery_batching.reply."

#: Bytes of a result that is told; a larger one is only announced, so that it is read where it is stored.
MOST_BYTES = 1024 * 1024

_LENGTHS = struct.Struct(">II")


def new_reply_channel() -> str:
    """A name for a process that nobody else has."""
    return PREFIX + uuid4().hex


def is_reply_channel(reply_to: Any) -> bool:
    """Whether a message's ``reply_to`` asks to be told."""
    return isinstance(reply_to, str) and reply_to.startswith(PREFIX)


def packed(results: Iterable[tuple[str, bytes | str]]) -> bytes:
    """One message of ids and what is stored for them."""
    parts: list[bytes] = []
    for task_id, stored in results:
        name, value = task_id.encode(), stored.encode() if isinstance(stored, str) else stored
        if len(value) > MOST_BYTES:
            value = b""
        parts += (_LENGTHS.pack(len(name), len(value)), name, value)
    return b"".join(parts)


def unpacked(message: bytes) -> Iterator[tuple[str, bytes]]:
    """The ids, and what is stored for them; nothing where it must be read.

    Raises:
        ValueError: the message is not of this form.
    """
    at = 0
    while at < len(message):
        try:
            name_length, value_length = _LENGTHS.unpack_from(message, at)
        except struct.error as exc:
            raise ValueError(str(exc)) from exc
        middle = at + _LENGTHS.size + name_length
        end = middle + value_length
        if end > len(message):
            raise ValueError(f"cut short: {end} bytes are named, {len(message)} came")
        yield message[at + _LENGTHS.size : middle].decode(), message[middle:end]
        at = end
