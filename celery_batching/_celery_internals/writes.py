"""The writes of a batch to Celery's Redis result backend, in one round trip: each as Celery's own function makes it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

from celery import states
from celery.exceptions import BackendStoreError
from kombu.utils.encoding import bytes_to_str

from .results import Write, WriteNew, twin

__all__ = ["new_success", "write_all", "write_new"]


class _Written(NamedTuple):
    """What Celery takes for a pipeline: its commands are noted, to be sent with those of others."""

    commands: list[tuple[Any, ...]]

    def setex(self, key: Any, seconds: Any, value: Any) -> None:
        self.commands.append(("SETEX", key, seconds, value))

    def set(self, key: Any, value: Any) -> None:
        self.commands.append(("SET", key, value))

    def publish(self, channel: Any, message: Any) -> None:
        self.commands.append(("PUBLISH", channel, message))

    def execute(self) -> None:
        """Not yet."""


#: Runs commands, packed into one argument: each costs the client a fraction of what it would by itself.
_RUN_ALL = """
local packed, at = ARGV[1], 1
while at <= #packed do
  local words, count = {}
  count, at = struct.unpack('>I4', packed, at)
  for i = 1, count do
    words[i], at = struct.unpack('>I4c0', packed, at)
  end
  redis.call(unpack(words))
end
"""

#: Stores successes as Celery does, each where nothing is stored, and tells of them; the numbers of the others.
#: Further messages are published when there are none.
_STORE_NEW = """
local results, expires, messages, at = ARGV[1], tonumber(ARGV[2]), ARGV[3], 1
local number, taken = 0, {}
while at <= #results do
  local key, value, stored
  key, value, at = struct.unpack('>I4c0I4c0', results, at)
  if expires > 0 then
    stored = redis.call('SET', key, value, 'EX', expires, 'NX')
  else
    stored = redis.call('SET', key, value, 'NX')
  end
  number = number + 1
  if stored then
    redis.call('PUBLISH', key, value)
  else
    taken[#taken + 1] = number
  end
end
at = 1
while #taken == 0 and at <= #messages do
  local channel, message
  channel, message, at = struct.unpack('>I4c0I4c0', messages, at)
  redis.call('PUBLISH', channel, message)
end
return taken
"""

#: How the scripts read a count of words, and the length of each.
_packed_number = struct.Struct(">I").pack


def write_all(backend: Any, writes: Sequence[Write], messages: Sequence[tuple[str, bytes]] = ()) -> None:
    """Write all as Celery would, and publish messages to channels, in one round trip.

    Raises:
        Exception: some may be written, and some not.
    """
    written = _Written([])
    writer = twin(backend, client=SimpleNamespace(pipeline=lambda: nullcontext(written)))
    for write in writes:
        writer._set(*write.arguments)
    for channel, message in messages:
        written.publish(channel, message)
    backend.client.register_script(_RUN_ALL)(args=[_packed(written.commands)])


def new_success(backend: Any, task_id: str, value: Any, request: Any) -> WriteNew:
    """What Celery stores for a success, and where.

    Raises:
        Exception: the value cannot be encoded, or is too large.
    """
    # As Celery's Backend.store_result and what it calls, up to the look at what is stored.
    result = backend.encode_result(value, states.SUCCESS)
    meta = backend._get_result_meta(result=result, state=states.SUCCESS, traceback=None, request=request)
    meta["task_id"] = bytes_to_str(task_id)
    encoded = backend.encode(meta)
    if isinstance(encoded, str) and len(encoded) > backend._MAX_STR_VALUE_SIZE:
        raise BackendStoreError("value too large for Redis backend")
    return WriteNew(backend.get_key_for_task(task_id), encoded)


def write_new(backend: Any, writes: Sequence[WriteNew], messages: Sequence[tuple[str, bytes]]) -> set[int]:
    """Write those for which nothing is stored, in one round trip; the positions of the others.

    Args:
        backend: Celery's, for Redis.
        writes: what ``new_success`` made of results.
        messages: published to channels when there are no others.

    Raises:
        Exception: some may be written, and some not.
    """
    results = b"".join(_words(write) for write in writes)
    told = b"".join(_words(message) for message in messages)
    taken = backend.client.register_script(_STORE_NEW)(args=[results, backend.expires or 0, told])
    return {number - 1 for number in taken}


def _packed(commands: Iterable[tuple[Any, ...]]) -> bytes:
    parts: list[bytes] = []
    for command in commands:
        parts += (_packed_number(len(command)), _words(command))
    return b"".join(parts)


def _words(words: Iterable[Any]) -> bytes:
    parts: list[bytes] = []
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts += (_packed_number(len(data)), data)
    return b"".join(parts)
