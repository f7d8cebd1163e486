"""The states of a batch in one round trip each way to the result backend: what is stored is read, then all is written.

The tracers of the items wait where Celery's backend would read or write a key. Other backends than
Redis are left to Celery, item by item.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from celery import states

from .._celery_internals import ALONE, Question, Read, Write, let_wait, write_all
from ..collector import collector_paused
from ..transport.replies import is_reply_channel, packed
from .item import TracedItem, asking_item

__all__ = ["step_together"]

logger = logging.getLogger(__name__)


def step_together(
    items: Iterable[TracedItem], step: Callable[[TracedItem], Question | None], backend: Any, *, bulk: bool
) -> None:
    """Let each item take the step; what their tracers ask of the backend meanwhile is answered together.

    Args:
        items: of one batch.
        step: lets the tracer go on, up to its first question.
        backend: the result backend of this thread.
        bulk: whether they may wait for each other; else each asks on its own, as in Celery.
    """
    answer = _answer_all if bulk and let_wait(backend, asking_item) else _answer_none
    with collector_paused:
        _step_together(items, step, backend, answer)


def _step_together(
    items: Iterable[TracedItem],
    step: Callable[[TracedItem], Question | None],
    backend: Any,
    answer: Callable[[Any, list[_Asked]], list[Any]],
) -> None:
    asked = [_Asked(item, question) for item in items if (question := step(item)) is not None]
    while asked:
        answers = zip(asked, answer(backend, asked), strict=True)
        asked = [_Asked(one.item, next_) for one, reply in answers if (next_ := one.item.answered(reply)) is not None]


class _Asked(NamedTuple):
    item: TracedItem
    question: Question


def _answer_none(backend: Any, asked: list[_Asked]) -> list[Any]:  # noqa: ARG001
    return [ALONE] * len(asked)


def _answer_all(backend: Any, asked: list[_Asked]) -> list[Any]:
    """What was read, and None for what was written; ``ALONE`` where that failed, so that Celery's own retries apply."""
    reads = [one.question for one in asked if isinstance(one.question, Read)]
    writes = [(one.item, one.question) for one in asked if isinstance(one.question, Write)]
    values = iter(_unless_it_fails(_read_all, backend, reads))
    written = iter(_unless_it_fails(_write_all, backend, writes))
    return [next(values if isinstance(one.question, Read) else written) for one in asked]


def _unless_it_fails(answer: Callable[[Any, list[Any]], list[Any]], backend: Any, questions: list[Any]) -> list[Any]:
    if not questions:
        return []
    try:
        return answer(backend, questions)
    except Exception as exc:  # whatever the client raises, Celery shall see it for each item
        logger.debug("The result backend does not answer for the batch, each item asks on its own: %r", exc)
        return [ALONE] * len(questions)


def _read_all(backend: Any, reads: list[Read]) -> list[Any]:
    values: list[Any] = backend.mget([read.key for read in reads])
    return values


def _write_all(backend: Any, writes: list[tuple[TracedItem, Write]]) -> list[Any]:
    """Write, and tell each process that waits for some of the results of all of them in one message."""
    told: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for item, write in writes:
        if write.state in states.READY_STATES and is_reply_channel(item.reply_to):
            told[item.reply_to].append((item.id, write.value))
    write_all(
        backend, [write for _, write in writes], [(channel, packed(results)) for channel, results in told.items()]
    )
    return [None] * len(writes)
