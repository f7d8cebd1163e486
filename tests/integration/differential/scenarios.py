"""The table of scenarios. A new one is a line or five: what happens, the states that stock Celery stores, how."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import celery
from celery import chain, chord, group
from celery.exceptions import Ignore, Reject
from kombu.utils.uuid import uuid

from tests.support import deeds
from tests.support.scenario import Kit, Scenario
from tests.support.stage import Stage
from tests.support.traces import Trace, closed_once, one_prologue
from tests.support.waiting import wait_until
from tests.support.worker_process import first_answer

#: Seconds: long enough for all calls to be received on a busy machine, short enough to wait for.
SOON = 10

#: Seconds that a task may take: a plain one spends them on its handlers, too, and nobody may be held up for so long.
LIMIT = 2


def revoke(stage: Stage) -> None:
    stage.wait_received()
    stage.worker.control("revoke", stage.sent_ids)


def revoke_by_stamp(stage: Stage) -> None:
    stage.wait_received()
    stage.worker.control("revoke_by_stamped_headers", {"customer": ["gone"]})


def expire(stage: Stage) -> None:
    stage.wait_received()
    deadline = time.monotonic() + SOON
    wait_until(lambda: time.monotonic() > deadline, "the calls have expired", 2 * SOON)


def call_revoked_id(kit: Kit) -> Any:
    task_id = uuid()
    wait_until(lambda: first_answer(kit.app.control.revoke, task_id, reply=True), "the worker knows", 40)
    return kit.item(1).apply_async(task_id=task_id)


def call_note(task: Any) -> None:
    task.app.tasks["differential.note"].delay("called from a handler", tag=task.request.kwargs["tag"])


def raise_in_handler(task: Any) -> None:
    raise KeyError("handler")


def retry_before_start(task: Any) -> None:
    if not task.request.retries:
        task.retry(countdown=0)


def ignore_before_start(task: Any) -> None:
    raise Ignore("before the start")


def reject_before_start(task: Any) -> None:
    raise Reject("before the start", requeue=False)


def replace_before_start(task: Any) -> None:
    task.replace(task.app.tasks["differential.note"].s("in its place", tag=task.request.kwargs["tag"]))


def update_state_in_handler(task: Any) -> None:
    task.update_state(state="WARMING", meta={"done": 0})


def name_error(trace: Trace) -> Trace:
    """Of a lost process stock Celery's event shows the wrapper around the error."""
    named = {"exception": "WorkerLostError('Worker exited prematurely: exitcode 3.')"}
    return [replace(one, facts=one.facts | named) if one.what == "task-failed" else one for one in trace]


#: A task that rejects its message is a failure since Celery 5.7.
REJECTED = "STARTED FAILURE" if celery.VERSION >= (5, 7) else "STARTED"

RESULTS = [
    Scenario(name="an item is answered", states="STARTED SUCCESS"),
    Scenario(name="None is an answer", states="STARTED SUCCESS", do=deeds.answer_none),
    Scenario(name="an item fails", states="STARTED FAILURE", do=deeds.fail, raises=True),
    Scenario(name="an item fails from a cause", states="STARTED FAILURE", do=deeds.fail_from_cause, raises=True),
    Scenario(name="an error cannot be pickled", states="STARTED FAILURE", do=deeds.fail_unpicklable, raises=True),
    Scenario(
        name="an expected error",
        states="STARTED FAILURE",
        do=deeds.fail_expected,
        options={"throws": (deeds.ExpectedError,)},
        raises=True,
    ),
    Scenario(name="a result cannot be encoded", states="STARTED FAILURE", do=deeds.answer_unencodable),
    Scenario(
        name="a process is exited",
        states="STARTED FAILURE",
        do=deeds.exit_process,
        raises=True,
        entries=False,
        since=(5, 7),  # 5.6 stores no result
        amend=name_error,
    ),
    Scenario(name="progress is reported", states="STARTED PROGRESS SUCCESS", do=deeds.report_progress),
    Scenario(name="started is not tracked", states="SUCCESS", options={"track_started": False}),
    Scenario(name="the task ignores its result", states="", options={"ignore_result": True}),
    Scenario(
        name="the task ignores its errors", states="", do=deeds.fail, options={"ignore_result": True}, raises=True
    ),
    Scenario(
        name="the task ignores its result but not its errors",
        states="FAILURE",
        do=deeds.fail,
        options={"ignore_result": True, "store_errors_even_if_ignored": True},
        raises=True,
    ),
    Scenario(
        name="the call ignores its result", states="", send=lambda kit: kit.item(1).apply_async(ignore_result=True)
    ),
    Scenario(
        name="the call ignores its error",
        states="",
        do=deeds.fail,
        send=lambda kit: kit.item(1).apply_async(ignore_result=True),
    ),
    Scenario(
        name="the call wants the result that the task ignores",
        states="STARTED SUCCESS",
        options={"ignore_result": True},
        send=lambda kit: kit.item(1).apply_async(ignore_result=False),
    ),
    Scenario(name="no events are sent", states="STARTED SUCCESS", options={"send_events": False}),
    Scenario(name="a long result is cut in events", states="STARTED SUCCESS", options={"resultrepr_maxsize": 10}),
]

SETTINGS = [
    Scenario(name="results are not extended", states="STARTED SUCCESS", settings={"result_extended": False}),
    Scenario(
        name="failures are not extended",
        states="STARTED FAILURE",
        do=deeds.fail,
        raises=True,
        settings={"result_extended": False},
    ),
    Scenario(
        name="children inherit the priority",
        states="STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: kit.item(1).apply_async(priority=6, link=kit.helper("note")),
        settings={"task_inherit_parent_priority": True},
    ),
    Scenario(
        name="errbacks of a chord's header",
        states="STARTED FAILURE / STARTED SUCCESS / STARTED SUCCESS / FAILURE",
        send=lambda kit: chord(
            [kit.item(1, do=deeds.fail), kit.item(2)],
            kit.helper("note").on_error(kit.helper("old_errback")),
        ).apply_async(),
        settings={"task_allow_error_cb_on_chord_header": True},
    ),
]

ACKS = [
    Scenario(name="early ack", states="STARTED SUCCESS", options={"acks_late": False}),
    Scenario(
        name="early ack and failure",
        states="STARTED FAILURE",
        do=deeds.fail,
        options={"acks_late": False},
        raises=True,
    ),
    Scenario(
        name="early ack and Reject",
        states=REJECTED,
        do=deeds.reject,
        options={"acks_late": False},
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="no ack on failure",
        states="STARTED FAILURE",
        do=deeds.fail,
        options={"acks_on_failure_or_timeout": False},
        raises=True,
    ),
    Scenario(
        name="no ack on failure has no effect on success",
        states="STARTED SUCCESS",
        options={"acks_on_failure_or_timeout": False},
    ),
    Scenario(name="Ignore", states="STARTED", do=deeds.ignore, raises=True, spreads=True),
    Scenario(name="Reject", states=REJECTED, do=deeds.reject, raises=True, spreads=True),
    Scenario(
        name="Reject puts back", states="STARTED STARTED SUCCESS", do=deeds.requeue_once, raises=True, spreads=True
    ),
]

RETRIES = [
    Scenario(name="retry", states="STARTED RETRY STARTED SUCCESS", do=deeds.retry_once, raises=True, spreads=True),
    Scenario(
        name="retry for an error",
        states="STARTED RETRY STARTED SUCCESS",
        do=deeds.retry_once_for,
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="retries are used up",
        states="STARTED RETRY STARTED FAILURE",
        do=deeds.retry_for_ever,
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="retries for an error are used up",
        states="STARTED RETRY STARTED FAILURE",
        do=deeds.retry_for_ever_for,
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="retries of the task are used up",
        states="STARTED RETRY STARTED FAILURE",
        do=deeds.retry_by_default,
        options={"default_retry_delay": 0.1, "max_retries": 1},
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="retry with other arguments",
        states="STARTED RETRY STARTED SUCCESS",
        do=deeds.retry_with_other_arguments,
    ),
    Scenario(
        name="retry keeps all options of the call",
        states="STARTED RETRY STARTED SUCCESS / STARTED SUCCESS",
        do=deeds.retry_once,
        send=lambda kit: kit.item(1).apply_async(
            link=kit.helper("note"),
            link_error=kit.helper("old_errback"),
            headers={"customer": "c1"},
            shadow="other.name",
            expires=600,
            time_limit=500,
            soft_time_limit=400,
            priority=6,
        ),
        raises=True,
        spreads=True,
        shares=False,  # the limits are not the neighbours'
    ),
    Scenario(
        name="retry keeps the stamps",
        states="STARTED RETRY STARTED SUCCESS",
        do=deeds.retry_once,
        send=lambda kit: call_stamped(kit, customer="c1"),
    ),
    Scenario(
        name="retry in a chord",
        states="STARTED RETRY STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        do=deeds.retry_once,
        send=lambda kit: chord([kit.item(1), kit.item(2, do=deeds.answer)], kit.helper("note")).apply_async(),
    ),
    Scenario(
        name="autoretry",
        states="STARTED RETRY STARTED RETRY STARTED SUCCESS",
        do=deeds.fail_twice,
        options={"autoretry_for": (ValueError,), "default_retry_delay": 0},
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="autoretry is used up",
        states="STARTED RETRY STARTED FAILURE",
        do=deeds.fail,
        options={"autoretry_for": (ValueError,), "retry_kwargs": {"max_retries": 1, "countdown": 0.1}},
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="autoretry for other errors",
        states="STARTED FAILURE",
        do=deeds.fail,
        options={"autoretry_for": (KeyError,)},
        raises=True,
    ),
    Scenario(
        name="autoretry but not for this one",
        states="STARTED FAILURE",
        do=deeds.fail,
        options={"autoretry_for": (Exception,), "dont_autoretry_for": (ValueError,)},
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="autoretry with backoff",
        states="STARTED RETRY STARTED RETRY STARTED SUCCESS",
        do=deeds.fail_twice,
        options={"autoretry_for": (ValueError,), "retry_backoff": 1, "retry_backoff_max": 1, "retry_jitter": False},
        raises=True,
        spreads=True,
    ),
    Scenario(
        name="autoretry with jitter",
        states="STARTED RETRY STARTED RETRY STARTED SUCCESS",
        do=deeds.fail_twice,
        options={"autoretry_for": (ValueError,), "retry_backoff": 2, "retry_backoff_max": 2},
        raises=True,
        spreads=True,
    ),
]

WAITING = [
    Scenario(
        name="countdown",
        states="STARTED SUCCESS",
        send=lambda kit: kit.item(1).apply_async(countdown=0.5),
        shares=False,
    ),
    Scenario(
        name="expires later",
        states="STARTED SUCCESS",
        send=lambda kit: kit.item(1).apply_async(expires=600),
    ),
    Scenario(
        name="expired on arrival",
        states="REVOKED",
        send=lambda kit: kit.item(1).apply_async(expires=-1),
        arrives=False,
        shares=False,
    ),
    Scenario(
        name="expired while it waited",
        states="REVOKED",
        send=lambda kit: kit.item(1).apply_async(expires=SOON),
        while_waiting=expire,
        shares=False,
    ),
    Scenario(
        name="revoked before it arrived", states="REVOKED REVOKED", send=call_revoked_id, arrives=False, shares=False
    ),
    Scenario(name="revoked while it waited", states="REVOKED REVOKED", while_waiting=revoke, shares=False),
    Scenario(
        name="revoked by stamp while it waited",
        states="REVOKED",
        send=lambda kit: call_stamped(kit, customer="gone"),
        while_waiting=revoke_by_stamp,
        shares=False,
    ),
    Scenario(
        name="revoked in a chord",
        states="REVOKED REVOKED / REVOKED REVOKED / REVOKED FAILURE",
        send=lambda kit: chord([kit.item(1), kit.item(2)], kit.helper("note")).apply_async(),
        while_waiting=revoke,
        shares=False,
    ),
    Scenario(name="rate limit", states="STARTED SUCCESS", options={"rate_limit": "20/s"}, shares=False),
    Scenario(name="priority", states="STARTED SUCCESS", send=lambda kit: kit.item(1).apply_async(priority=6)),
]

LIMITS = [
    Scenario(
        name="soft time limit",
        states="STARTED FAILURE",
        do=deeds.take_too_long,
        options={"soft_time_limit": LIMIT},
        raises=True,
        entries=False,
        copies=1,
    ),
    Scenario(
        name="soft time limit of the call",
        states="STARTED FAILURE",
        do=deeds.take_too_long,
        send=lambda kit: kit.item(1).apply_async(soft_time_limit=LIMIT),
        raises=True,
        entries=False,
        copies=1,
        shares=False,
    ),
    Scenario(
        name="hard time limit",
        states="STARTED FAILURE",
        do=deeds.take_too_long,
        options={"time_limit": LIMIT},
        raises=True,
        entries=False,
        copies=1,
        shares=False,  # no line is logged about a batch that is lost
        amend=closed_once,
        adapt=one_prologue,
    ),
]

HEADERS = [
    Scenario(
        name="headers",
        states="STARTED SUCCESS",
        do=deeds.show_request,
        send=lambda kit: kit.item(1).apply_async(headers={"customer": "c1"}),
    ),
    Scenario(
        name="shadow name",
        states="STARTED SUCCESS",
        do=deeds.show_request,
        send=lambda kit: kit.item(1).apply_async(shadow="other.name"),
    ),
    Scenario(
        name="lineage",
        states="STARTED SUCCESS",
        do=deeds.show_request,
        send=lambda kit: kit.item(1).apply_async(root_id="a root", parent_id="a parent", group_id="a group"),
    ),
    Scenario(
        name="compressed",
        states="STARTED SUCCESS",
        send=lambda kit: kit.item(1).apply_async(compression="gzip"),
    ),
    Scenario(
        name="stamps",
        states="STARTED SUCCESS / STARTED SUCCESS",
        do=deeds.show_request,
        send=lambda kit: call_stamped(kit, customer="c1", link=kit.helper("note")),
    ),
]

CALLBACKS = [
    Scenario(
        name="link",
        states="STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: kit.item(1).apply_async(link=kit.helper("note")),
    ),
    Scenario(
        name="several links",
        states="STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: kit.item(1).apply_async(
            link=[kit.helper("note"), kit.helper("note"), group(kit.helper("note"))]
        ),
    ),
    Scenario(
        name="link to itself",
        states="STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: kit.item(1).apply_async(link=kit.item()),
    ),
    Scenario(
        name="link is not called after a failure",
        states="STARTED FAILURE",
        do=deeds.fail,
        send=lambda kit: kit.item(1).apply_async(link=kit.helper("note")),
        raises=True,
    ),
    Scenario(
        name="old errback",
        states="STARTED FAILURE / STARTED SUCCESS",
        do=deeds.fail,
        send=lambda kit: kit.item(1).apply_async(link_error=kit.helper("old_errback")),
        raises=True,
    ),
    Scenario(
        name="new errback",
        states="STARTED FAILURE",
        do=deeds.fail,
        send=lambda kit: kit.item(1).apply_async(link_error=kit.helper("new_errback")),
        raises=True,
    ),
    Scenario(
        name="errbacks wait for the last retry",
        states="STARTED RETRY STARTED FAILURE / STARTED SUCCESS",
        do=deeds.retry_for_ever,
        send=lambda kit: kit.item(1).apply_async(link_error=[kit.helper("old_errback"), kit.helper("new_errback")]),
    ),
    Scenario(
        name="chain",
        states="STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chain(kit.item(1), kit.item(), kit.helper("note")).apply_async(),
    ),
    Scenario(
        name="chain of immutables",
        states="STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chain(kit.item(1), kit.immutable(2)).apply_async(),
    ),
    Scenario(
        name="chain breaks",
        states="STARTED FAILURE / STARTED SUCCESS / FAILURE",
        do=deeds.fail,
        send=lambda kit: chain(kit.item(1), kit.helper("note")).on_error(kit.helper("old_errback")).apply_async(),
        raises=True,
    ),
    Scenario(
        name="group",
        states="STARTED SUCCESS / STARTED FAILURE / STARTED SUCCESS",
        send=lambda kit: group(kit.item(1), kit.item(2, do=deeds.fail), kit.item(3)).apply_async(),
        raises=True,
    ),
    Scenario(
        name="chord header",
        states="STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chord([kit.item(1), kit.item(2)], kit.helper("note")).apply_async(),
    ),
    Scenario(
        name="chord body",
        states="STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chord([kit.helper("note"), kit.helper("note")], kit.item()).apply_async(),
        shares=False,
    ),
    Scenario(
        name="chord header and body",
        states="STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chord([kit.item(1), kit.item(2)], kit.item()).apply_async(),
    ),
    Scenario(
        name="chord with a failing member",
        states="STARTED FAILURE / STARTED SUCCESS / STARTED SUCCESS / FAILURE",
        send=lambda kit: chord(
            [kit.item(1, do=deeds.fail), kit.item(2)], kit.helper("note").on_error(kit.helper("old_errback"))
        ).apply_async(),
        raises=True,
    ),
    Scenario(
        name="chord whose member answers None",
        states="STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chord([kit.item(1, do=deeds.answer_none), kit.item(2)], kit.helper("note")).apply_async(),
    ),
    Scenario(
        name="chord within a chain",
        states="STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chain(kit.item(1), group(kit.item(), kit.item()), kit.helper("note")).apply_async(),
    ),
    Scenario(
        name="replaces a plain task",
        states="STARTED STARTED SUCCESS",
        send=lambda kit: kit.swap().apply_async(),
        shares=False,
    ),
    Scenario(
        name="replaces a plain task and fails",
        states="STARTED STARTED FAILURE / STARTED SUCCESS",
        do=deeds.fail,
        send=lambda kit: kit.swap().apply_async(link_error=kit.helper("old_errback")),
        shares=False,
    ),
    Scenario(
        name="replaces a plain task in a chord",
        states="STARTED STARTED SUCCESS / STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chord([kit.swap(), kit.item(1)], kit.helper("note")).apply_async(),
        shares=False,
    ),
    Scenario(
        name="replaces a plain task in a chain",
        states="STARTED STARTED SUCCESS / STARTED SUCCESS",
        send=lambda kit: chain(kit.swap(), kit.helper("note")).apply_async(),
        shares=False,
    ),
]

HANDLERS = [
    Scenario(
        name="before_start calls a task",
        states="STARTED SUCCESS / STARTED SUCCESS",
        handlers={"before_start": call_note},
    ),
    Scenario(
        name="on_success calls a task",
        states="STARTED SUCCESS / STARTED SUCCESS",
        handlers={"on_success": call_note},
    ),
    Scenario(
        name="on_failure calls a task",
        states="STARTED FAILURE / STARTED SUCCESS",
        do=deeds.fail,
        handlers={"on_failure": call_note},
        raises=True,
    ),
    Scenario(
        name="before_start reports progress",
        states="STARTED WARMING SUCCESS",
        handlers={"before_start": update_state_in_handler},
    ),
    Scenario(name="before_start fails", states="STARTED FAILURE", handlers={"before_start": raise_in_handler}),
    Scenario(
        name="before_start retries",
        states="STARTED RETRY STARTED SUCCESS",
        handlers={"before_start": retry_before_start},
    ),
    Scenario(name="before_start ignores", states="STARTED", handlers={"before_start": ignore_before_start}),
    Scenario(name="before_start rejects", states=REJECTED, handlers={"before_start": reject_before_start}),
    Scenario(
        name="before_start replaces",
        states="STARTED STARTED SUCCESS",
        handlers={"before_start": replace_before_start},
    ),
    Scenario(name="on_success fails", states="STARTED SUCCESS", handlers={"on_success": raise_in_handler}),
    Scenario(
        name="on_failure fails",
        states="STARTED FAILURE FAILURE FAILURE",
        do=deeds.fail,
        handlers={"on_failure": raise_in_handler},
        raises=True,
    ),
    Scenario(
        name="on_retry fails",
        states="STARTED RETRY FAILURE STARTED SUCCESS",
        do=deeds.retry_once,
        handlers={"on_retry": raise_in_handler},
    ),
    Scenario(name="after_return fails", states="STARTED SUCCESS", handlers={"after_return": raise_in_handler}),
]


#: What can befall the neighbours in one batch.
FATES = (
    *(deeds.answer, deeds.fail, deeds.fail_unpicklable, deeds.answer_unencodable, deeds.report_progress),
    *(deeds.ignore, deeds.reject, deeds.requeue_once, deeds.retry_once, deeds.retry_for_ever_for),
)

TOGETHER = [
    Scenario(
        name="all fates in one batch",
        states=f"STARTED SUCCESS / {' / '.join(['STARTED FAILURE'] * 3)} / STARTED PROGRESS SUCCESS / STARTED"
        f" / {REJECTED} / STARTED STARTED SUCCESS / STARTED RETRY STARTED SUCCESS / STARTED RETRY STARTED FAILURE",
        send=lambda kit: [kit.item(number, do=fate).apply_async() for number, fate in enumerate(FATES)],
    ),
]


def call_stamped(kit: Kit, link: Any = None, **stamps: str) -> Any:
    """Call the scenario's task with stamps, and what is linked to it."""
    signature = kit.item(1)
    if link is not None:
        signature.link(link)
    signature.stamp(**stamps)
    return signature.apply_async()


_ALL = TOGETHER + RESULTS + SETTINGS + ACKS + RETRIES + WAITING + LIMITS + HEADERS + CALLBACKS + HANDLERS

SCENARIOS = [one for one in _ALL if celery.VERSION[:2] >= one.since]
