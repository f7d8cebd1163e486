"""The only door to kombu's Redis transport, whose classes the modules of this folder change.

Checked on kombu 5.7.0. The names have no types of their own.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis, virtual
from kombu.utils import scheduling

__all__ = ["kombu_redis", "round_robin_cycle", "virtual_channel", "virtual_qos"]

kombu_redis: Any = redis
round_robin_cycle: Any = scheduling.round_robin_cycle
virtual_channel: Any = virtual.Channel
virtual_qos: Any = virtual.QoS
