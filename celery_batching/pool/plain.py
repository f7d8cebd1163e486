"""Arrays, tensors and their scalars as plain lists and numbers, for serializers that know no others."""

from __future__ import annotations

from typing import Any

__all__ = ["to_plain"]

_PLAIN_TYPES = {str, int, float, bool, type(None), bytes}


def to_plain(value: Any) -> Any:
    """``value`` with every numpy or torch value in it, at any depth, as lists and numbers."""
    if type(value) in _PLAIN_TYPES:
        return value
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    if isinstance(value, dict):
        return {to_plain(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        if _PLAIN_TYPES.issuperset(map(type, value)):
            return value  # the common case of a long list of numbers, without a call for each
        entries = [to_plain(entry) for entry in value]
        return entries if isinstance(value, list) else tuple(entries)
    return value
