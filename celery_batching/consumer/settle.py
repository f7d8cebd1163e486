"""A batch in the pool, and its end: each item is accepted, acknowledged, rejected or failed by Celery's
own request, once, from the one report of the batch or from its loss.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from celery.exceptions import Retry

from .._celery_internals import (
    HARD_LIMIT_CLOSES_IN_ON_TIMEOUT,
    ExceptionInfo,
    Terminated,
    TimeLimitExceeded,
    WorkerLostError,
    exception_info,
    is_cancelled,
    let_terminate,
    raised,
    shielded,
    shown,
    stored_successes,
)

if TYPE_CHECKING:
    from ..core.items import Reason
    from ..core.parts import Part, Search
    from ..pool.messages import BatchReport, ItemReply
    from ..task import BatchTask

__all__ = ["RunningBatch", "give_up"]

logger = logging.getLogger(__name__)

#: Characters of a result that an event shows.
SHOWN_CHARACTERS = 1024

#: A batch ends so when its process does: it was not the fault of every item.
_LOST = (WorkerLostError, Terminated, TimeLimitExceeded)


class RunningBatch:
    """One batch between its dispatch and its end, in the main process.

    Args:
        part: its requests, and what they share with the other parts of a batch that was lost.
        waited_s: seconds the oldest item had waited when the batch was formed.

    Attributes:
        job: what the pool gave for it, while it has it.
        began: whether a pool process has begun with it.
        limited: whether a time limit may end it.
        fits: whether there was room for it in the pipe to a busy process.
    """

    def __init__(self, batch_id: str, task: BatchTask, part: Part[Any], reason: Reason, waited_s: float) -> None:
        self.id = batch_id
        self.task = task
        self.part = part
        self.requests = part.rows
        self.reason = reason
        self.waited_s = waited_s
        self.job: Any = None
        self.began = False
        self.limited = False
        self.fits = True
        self._ended = False

    def sent(self, job: Any) -> None:
        """The pool has the batch, and gave this for it."""
        if self._ended:
            return  # the solo pool has run it
        self.job = job
        if self.began:
            self._let_terminate()

    def accepted(self, pid: int, time_accepted: float) -> None:
        """The pool process ``pid`` has taken the batch."""
        self.began = True
        if self.job is not None:
            self._let_terminate()
        for request in self.requests:
            _guarded(request, partial(request.on_accepted, pid, time_accepted))

    def end(self) -> None:
        """The pool is done with the batch: the two would keep each other from going until the collector comes."""
        self._ended = True
        self.job = None

    def _let_terminate(self) -> None:
        # Not before it has begun: the pool would end the batch, all of it, when the process of
        # another one dies to which it was sent ahead.
        for request in self.requests:
            let_terminate(request, self.job)

    def report(self, report: BatchReport) -> None:
        """The pool process has run the batch."""
        for request, reply in zip(self.requests, report.replies, strict=True):
            if reply is not None:
                _guarded(request, partial(_settle, request, reply))
        counts = Counter(_outcome(reply) for reply in report.replies if reply is not None and not reply.fenced)
        logger.info(
            "Batch %s size=%d reason=%s waited=%.3fs run=%.3fs succeeded=%d failed=%d retried=%d",
            self.task.name,
            len(self.requests),
            self.reason,
            self.waited_s,
            report.run_s,
            counts["succeeded"],
            counts["failed"],
            counts["retried"],
        )

    def unfinished(self, report: BatchReport) -> list[Part[Any]]:
        """The parts for which the time limit left no time; each runs again with a clock of its own."""
        parts = [self.part.again([self.requests[position] for position in group]) for group in report.again]
        if parts:
            sizes = "+".join(str(len(part.rows)) for part in parts)
            logger.warning(
                "Batch %s size=%d ran out of time; running again %s", self.task.name, len(self.requests), sizes
            )
        return parts

    def lost(self, info: ExceptionInfo) -> list[Part[Any]]:
        """The pool gave up on the batch; the parts of it that must run again.

        Items whose success is stored are done, and those that remote control ended are left out.
        When the process was killed on their account, the others run again as they are; else the
        batch is halved, until the item that kills its process alone is known and fails. An item
        that was alone from the start runs once more, unless it exceeded a time limit or is to be
        rejected.
        """
        exc = raised(info)
        rest = _without_stored([request for request in self.requests if not is_cancelled(request)], exc)
        ended = [request for request in self.requests if is_cancelled(request)]
        for request in ended:
            _guarded(request, partial(request.on_failure, info))
        self.part.search.restarts += not ended
        if not isinstance(exc, _LOST) or self._is_guilty(exc):
            for request in rest:
                self._fail(request, info, exc)
            return []
        if not rest:
            return []
        for request in rest:
            request.await_rerun()
        if ended:
            return [self.part.again(rest)]
        if self.part.search.exhausted:
            give_up(rest, self.part.search)
            return []
        logger.warning("Batch %s size=%d lost: %r; running it again", self.task.name, len(rest), exc)
        return self.part.halves(rest) if len(rest) > 1 else [self.part.again(rest)]

    def _is_guilty(self, exc: BaseException) -> bool:
        """Whether the one item of this batch ended the process: once may have been by chance, from outside."""
        if len(self.requests) > 1:
            return False
        once = self.part.search.restarts == 1
        return not once or isinstance(exc, TimeLimitExceeded) or bool(self.task.reject_on_worker_lost)

    def soft_timeout(self, timeout: float) -> None:
        """The soft limit struck; the exception is raised in the pool process."""
        logger.warning(
            "Soft time limit (%ss) exceeded for batch %s size=%d", timeout, self.task.name, len(self.requests)
        )

    def _fail(self, request: Any, info: ExceptionInfo, exc: BaseException) -> None:
        if isinstance(exc, TimeLimitExceeded) and HARD_LIMIT_CLOSES_IN_ON_TIMEOUT:
            _guarded(request, partial(request.on_timeout, False, exc.args[0] if exc.args else None))
        else:
            _guarded(request, partial(request.on_failure, shielded(info)))


def give_up(requests: Sequence[Any], search: Search) -> None:
    """Fail what is not cleared after so many lost pool processes."""
    exc = WorkerLostError(
        f"{search.restarts} pool processes were lost on account of the batch this item was in; "
        f"the search for the item that ends them is given up"
    )
    for request in requests:
        _guarded(request, partial(request.on_failure, exception_info(exc)))


def _without_stored(requests: list[Any], exc: BaseException) -> list[Any]:
    """Those that are not done: run again, one whose success is stored would call its callbacks twice."""
    if not isinstance(exc, _LOST):
        return requests
    results = stored_successes(requests)
    for request in requests:
        if request.id in results:
            logger.warning("%s[%s] succeeded before its process was lost: %r", request.name, request.id, exc)
            value = shown(results[request.id], SHOWN_CHARACTERS)
            _guarded(request, partial(request.on_success, (0, value, None)))
    return [request for request in requests if request.id not in results]


def _settle(request: Any, reply: ItemReply) -> None:
    if reply.fenced:
        logger.warning("%s[%s] is another worker's now, which answers it", request.name, request.id)
        request.withdraw()
        return
    if reply.crash is not None:
        request.on_failure(shielded(reply.crash))
        return
    failed, value, seconds = _traced(reply)
    request.on_success((failed, shielded(value) if failed else value, seconds))


def _guarded(request: Any, settle: Callable[[], Any]) -> None:
    """One item that cannot be settled must not leave its neighbours unsettled."""
    try:
        settle()
    except Exception:
        logger.exception("Cannot settle %s[%s]", request.name, request.id)


def _traced(reply: ItemReply) -> tuple[int, Any, float]:
    if reply.traced is None:
        raise RuntimeError("the reply of an item is empty")
    return reply.traced


def _outcome(reply: ItemReply) -> str:
    if reply.crash is not None:
        return "failed"
    failed, value, _ = _traced(reply)
    if not failed:
        return "succeeded"
    return "retried" if isinstance(raised(value), Retry) else "failed"
