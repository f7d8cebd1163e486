"""What crosses between the main process and the pool process: a payload in, a report out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..transport.fence import Fence

__all__ = ["BatchPayload", "BatchReport", "ItemPayload", "ItemReply"]


class ItemPayload(NamedTuple):
    """One item as Celery would send it to its pool: the arguments of its trace function."""

    id: str
    request: dict[str, Any]
    call: tuple[Any, ...]
    """The arguments and the embedded part, decoded: the main process had to look at them anyway."""


class BatchPayload(NamedTuple):
    """One batch on its way to the pool."""

    task_name: str
    batch_id: str
    reason: str
    items: list[ItemPayload]
    soft_time_limit: float | None
    """Seconds for each run of the model, from the message, the task or the worker."""
    hard_time_limit: float | None
    """Seconds after which the pool kills the process; None where it kills none."""
    fence: Fence | None
    """What may keep the results from being stored; None on brokers without leases."""
    bulk: bool
    """Whether the items may wait for each other at the result backend."""
    more: bool
    """Whether another batch will be sent before this one ends."""
    fast_trace: bool
    """Whether Celery's fast trace function is in use, as ``Request.execute_using_pool`` asks."""


class ItemReply(NamedTuple):
    """The end of one item; exactly one of the two is set."""

    traced: tuple[int, Any, float] | None = None
    """``(failed, return value or ExceptionInfo, seconds)``, as Celery's trace functions return."""
    crash: Any = None
    """An ExceptionInfo: the tracer itself raised, so that nothing is stored yet."""
    fenced: bool = False
    """Another worker has the item by now: nothing was stored, and ``traced`` says nothing."""


class BatchReport(NamedTuple):
    """The end of one batch."""

    replies: list[ItemReply | None]
    """One per item, in order, None for an item that must run again; empty when the setup failed."""
    run_s: float = 0.0
    """Seconds that ``run`` took, all its runs together."""
    again: Sequence[list[int]] = ()
    """Positions of the items that ran out of time, in the groups that shall run together."""
    fitted: int | None = None
    """After a run that ran out of memory: how many items did not."""
    setup_error: str | None = None
    """Set when ``setup`` had failed: nothing ran, and the worker has to end."""
