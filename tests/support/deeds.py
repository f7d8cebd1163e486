"""What a task does with one item; a plain task does it once, a batch task for each of its items."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery.exceptions import Ignore, Reject, Retry
from celery.exceptions import SoftTimeLimitExceeded as SoftTimeLimitExceeded  # noqa: PLC0414


@dataclass(frozen=True)
class Call:
    """One item, as far as its deed needs it."""

    request: Any
    given: Any
    #: `self.retry` of a plain task, which raises; `self.batch.retry` of a batch, which gives an entry.
    retry: Callable[..., Exception]
    #: `self.update_state` for this item.
    update_state: Callable[..., None]


class UnpicklableError(Exception):
    """Cannot be rebuilt from its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")
        self.lock = lambda: None


class ExpectedError(Exception):
    """For `throws`."""


def answer(call: Call) -> Any:
    return {"given": call.given}


def answer_none(call: Call) -> Any:
    return None


def fail(call: Call) -> Any:
    raise ValueError("bad", call.given)


def fail_from_cause(call: Call) -> Any:
    try:
        {}["nothing"]
    except KeyError as error:
        raise ValueError("bad") from error


def fail_unpicklable(call: Call) -> Any:
    raise UnpicklableError("this", "that")


def fail_expected(call: Call) -> Any:
    raise ExpectedError("it happens")


def fail_twice(call: Call) -> Any:
    if call.request.retries < 2:
        raise ValueError("not yet", call.request.retries)
    return {"retries": call.request.retries}


def answer_unencodable(call: Call) -> Any:
    return {"object": object()}


def show_request(call: Call) -> Any:
    names = ("id", "retries", "root_id", "parent_id", "group", "group_index", "headers", "shadow", "expires", "eta")
    more = ("timelimit", "delivery_info", "stamps", "stamped_headers", "replaced_task_nesting", "args", "kwargs")
    return {name: getattr(call.request, name) for name in (*names, *more)}


def retry_once(call: Call) -> Any:
    if not call.request.retries:
        raise call.retry(countdown=0)
    return {"retries": call.request.retries}


def retry_once_for(call: Call) -> Any:
    if not call.request.retries:
        raise call.retry(exc=KeyError("slow"), countdown=0.2)
    return {"retries": call.request.retries}


def retry_for_ever(call: Call) -> Any:
    raise call.retry(countdown=0, max_retries=1)


def retry_for_ever_for(call: Call) -> Any:
    raise call.retry(exc=KeyError("slow"), countdown=0, max_retries=1)


def retry_by_default(call: Call) -> Any:
    raise call.retry()


def retry_with_other_arguments(call: Call) -> Any:
    if call.request.retries:
        return {"given": call.given, "retries": call.request.retries}
    kwargs = {**call.request.kwargs, "given": "changed"}
    raise call.retry(args=(), kwargs=kwargs, countdown=0)


def raise_bare_retry(call: Call) -> Any:
    raise Retry("later", exc=KeyError("slow"), when=3)


def ignore(call: Call) -> Any:
    raise Ignore("not mine")


def reject(call: Call) -> Any:
    raise Reject("no more", requeue=False)


def requeue_once(call: Call) -> Any:
    if not call.request.delivery_info["redelivered"]:
        raise Reject("once more", requeue=True)
    return {"redelivered": True}


def report_progress(call: Call) -> Any:
    call.update_state(state="PROGRESS", meta={"done": 1})
    return "done"


def take_too_long(call: Call) -> Any:
    time.sleep(30)  # noqa: TID251 - the work that a time limit cuts short
    return "too late"


def exit_process(call: Call) -> Any:
    raise SystemExit(3)


DEEDS: dict[str, Callable[[Call], Any]] = {
    name: deed for name, deed in list(globals().items()) if getattr(deed, "__annotations__", {}).get("call") == "Call"
}
