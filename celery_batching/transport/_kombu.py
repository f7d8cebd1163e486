"""The only door to kombu's Redis transport, whose classes the modules of this folder change.

Checked on kombu 5.7.0. The names have no types of their own.
"""

from __future__ import annotations

import functools
import json
from types import SimpleNamespace
from typing import Any

from kombu import serialization
from kombu.transport import redis, virtual
from kombu.utils import json as kombu_json
from kombu.utils import scheduling

__all__ = ["json_decoder", "kombu_redis", "missing_names", "round_robin_cycle", "virtual_channel", "virtual_qos"]

kombu_redis: Any = redis
round_robin_cycle: Any = scheduling.round_robin_cycle
virtual_channel: Any = virtual.Channel
virtual_qos: Any = virtual.QoS

#: What this folder overrides or calls in kombu's classes, beside their public names.
_NEEDED = {
    "Channel": (
        "_brpop_read",
        "_brpop_start",
        "_close_clients",
        "_connparams",
        "_disconnect_pools",
        "_do_restore_message",
        "_flush_brpop_reauth",
        "_get_message_priority",
        "_get_pool",
        "_on_connection_disconnect",
        "_q_for_pri",
        "conn_or_acquire",
    ),
    "MultiChannelPoller": ("on_poll_start",),
    "QoS": ("restore_unacked", "restore_unacked_once"),
    "Transport": ("close_connection", "register_with_event_loop"),
}


def missing_names() -> list[str]:
    """What a kombu of another version does not have of that."""
    return [
        f"{owner}.{name}"
        for owner, names in _NEEDED.items()
        for name in names
        if not hasattr(getattr(kombu_redis, owner, None), name)
    ]


def json_decoder() -> Any:
    """What decodes bodies of JSON: one object for all, where kombu makes one for each."""
    return _decoder(serialization.registry._decoders["application/json"])  # type: ignore[attr-defined]


class _Decoder:
    """kombu's for JSON, which looks at each object for one of its own types only where there may be one."""

    def __init__(self) -> None:
        self._plain = json.JSONDecoder()
        self._typed = json.JSONDecoder(object_hook=kombu_json.object_hook)

    def decode(self, text: str) -> Any:
        typed = "__type__" in text or "\\u" in text  # or its name in escapes
        return (self._typed if typed else self._plain).decode(text)


@functools.cache
def _decoder(registered: Any) -> Any:
    if registered is kombu_json.loads:
        return _Decoder()
    return SimpleNamespace(decode=registered)  # somebody else's
