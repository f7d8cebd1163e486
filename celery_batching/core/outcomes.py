"""From what ``run`` returned to one outcome per item, in the order of the items."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from ..errors import BatchOutputError, BatchSizeMismatch

__all__ = ["UNFINISHED", "Outcome", "Raised", "Returned", "Unfinished", "align"]


@dataclasses.dataclass(frozen=True, slots=True)
class Returned:
    """The item has a result."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Raised:
    """The item ends with an exception, which may be Celery's Retry, Ignore or Reject."""

    error: BaseException
    traceback: TracebackType | None = None
    """Where ``run`` raised. Kept apart, since one error may be raised again for many items."""

    @classmethod
    def by(cls, error: BaseException) -> Raised:
        """From an exception that was caught."""
        return cls(error, error.__traceback__)


@dataclasses.dataclass(frozen=True, slots=True)
class Unfinished:
    """The item has not run to its end yet, and will run again."""


UNFINISHED = Unfinished()

Outcome = Returned | Raised | Unfinished

#: Iterating these gives something else than one result per item.
_REFUSED = (str, bytes, bytearray, memoryview)


def align(output: Any, size: int, task_name: str) -> list[Outcome]:
    """Take the output of ``run`` apart into ``size`` outcomes.

    Args:
        output: a sequence, an iterator, or an array or tensor that is split along its first
            axis. A tensor is moved to the host once, as a whole.
        size: the number of items in the batch.
        task_name: how messages call the task.

    Raises:
        BatchOutputError: another type, such as dict, set, str, bytes or None.
        BatchSizeMismatch: another number of results than items.
        Exception: whatever an iterator raises while it runs.
    """
    entries = _entries(output, size, task_name)
    if len(entries) != size:
        raise BatchSizeMismatch(task_name, size, len(entries))
    return [Raised.by(entry) if isinstance(entry, BaseException) else Returned(entry) for entry in entries]


def _entries(output: Any, size: int, task_name: str) -> list[Any]:
    if _is_array(output):
        if output.ndim == 0:
            raise BatchOutputError(
                f"{task_name}.run() returned a {_name(output)} without axes; "
                f"wanted one result per item along the first axis ({size} items)"
            )
        return list(_to_host(output))
    if isinstance(output, Iterator):
        return list(itertools.islice(output, size + 1))  # one more tells "too many" from an endless one
    if isinstance(output, Sequence) and not isinstance(output, _REFUSED):
        return list(output)
    raise BatchOutputError(
        f"{task_name}.run() returned {_name(output)}; wanted a list, tuple, generator, "
        f"numpy array or torch tensor with one result per item ({size} items)"
    )


def _is_array(output: Any) -> bool:
    """Numpy arrays, torch tensors and their like; a data frame has no single dtype."""
    return all(hasattr(output, name) for name in ("shape", "dtype", "ndim"))


def _to_host(array: Any) -> Any:
    if hasattr(array, "detach") and hasattr(array, "cpu"):  # a torch tensor, on whatever device
        return array.detach().cpu()
    return array


def _name(value: object) -> str:
    return "None" if value is None else type(value).__name__
