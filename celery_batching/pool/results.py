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

from .._celery_internals import ALONE, Question, Read, Write, WriteNew, let_wait, write_all, write_new
from ..collector import collector_paused
from ..transport.replies import is_reply_channel, packed
from .direct import DirectItem
from .item import TracedItem, asking_item

__all__ = ["step_together"]

Item = TracedItem | DirectItem

logger = logging.getLogger(__name__)


def step_together(items: Iterable[Item], step: Callable[[Item], Question | None], backend: Any, *, bulk: bool) -> None:
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
    items: Iterable[Item],
    step: Callable[[Item], Question | None],
    backend: Any,
    answer: Callable[[Any, list[_Asked]], list[Any]],
) -> None:
    asked = [_Asked(item, question) for item in items if (question := step(item)) is not None]
    while asked:
        answers = zip(asked, answer(backend, asked), strict=True)
        asked = [_Asked(one.item, next_) for one, reply in answers if (next_ := one.item.answered(reply)) is not None]


class _Asked(NamedTuple):
    item: Item
    question: Any


def _answer_none(backend: Any, asked: list[_Asked]) -> list[Any]:  # noqa: ARG001
    return [ALONE] * len(asked)


def _answer_all(backend: Any, asked: list[_Asked]) -> list[Any]:
    """What was read, and None for what was written; ``ALONE`` where that failed, so that Celery's own retries apply."""
    answers: dict[int, Any] = {}
    for kind, answer in ((Read, _read_all), (Write, _write_all), (WriteNew, _write_new)):
        of_kind = [one for one in asked if isinstance(one.question, kind)]
        replies = _unless_it_fails(answer, backend, of_kind)
        answers.update(zip((id(one.item) for one in of_kind), replies, strict=True))
    return [answers[id(one.item)] for one in asked]


def _unless_it_fails(answer: Callable[[Any, list[Any]], list[Any]], backend: Any, asked: list[_Asked]) -> list[Any]:
    if not asked:
        return []
    try:
        return answer(backend, asked)
    except Exception as exc:  # whatever the client raises, Celery shall see it for each item
        logger.debug("The result backend does not answer for the batch, each item asks on its own: %r", exc)
        return [ALONE] * len(asked)


def _read_all(backend: Any, asked: list[_Asked]) -> list[Any]:
    values: list[Any] = backend.mget([one.question.key for one in asked])
    return values


def _write_all(backend: Any, asked: list[_Asked]) -> list[Any]:
    ready = [one for one in asked if one.question.state in states.READY_STATES]
    write_all(backend, [one.question for one in asked], _replies(ready))
    return [None] * len(asked)


def _write_new(backend: Any, asked: list[_Asked]) -> list[Any]:
    taken = write_new(backend, [one.question for one in asked], _replies(asked))
    if taken:
        write_all(backend, [], _replies(one for number, one in enumerate(asked) if number not in taken))
    return [ALONE if number in taken else None for number in range(len(asked))]


def _replies(asked: Iterable[_Asked]) -> list[tuple[str, bytes]]:
    """To each process that waits for some of the results, all of them in one message."""
    told: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for item, question in asked:
        if is_reply_channel(item.reply_to):
            told[item.reply_to].append((item.id, question.value))
    return [(channel, packed(results)) for channel, results in told.items()]
