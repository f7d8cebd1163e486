"""The stage: plays a scenario on a worker, with all kinds of its tasks, and watches from outside."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import celery
from celery.result import GroupResult

from tests.support.deeds import answer
from tests.support.recorder import FAILED
from tests.support.scenario import MODULE, PLAIN, Kit, Scenario
from tests.support.traces import ARRIVALS, EVENTS, STORED, Seen, Trace, stream_of
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

#: The channel on which the Redis backend announces whatever it stores.
ANNOUNCED = "celery-task-meta-"


#: Seconds in which a scenario comes to its end on a busy machine, some processes' ends included.
SETTLE_S = 60.0


class Stage:
    """One worker, and all that can be seen of it: task events, stored states, the journal and the queue."""

    def __init__(self, worker: WorkerProcess, events: Any, stored: Any) -> None:
        """Watch through two open subscriptions; `open_stage` makes them."""
        self.worker = worker
        #: The ids of each call, by tag.
        self.sent: dict[str, list[str]] = {}
        #: How many calls of each task had been received when the worker became free.
        self.waiting: Mapping[str, int] = {}
        #: Before 5.7, stock Celery loses task events that this pool sends beside the event loop: none is compared.
        self._loses_events = worker.options.pool == "threads" and celery.VERSION < (5, 7)
        #: The ids of the tasks that the calls send at once.
        self._first: set[str] = set()
        self._events, self._stored = events, stored
        self._seen: list[Seen] = []

    def play(self, scenario: Scenario) -> dict[str, Trace]:
        """Call the tasks of all kinds while the worker is busy, let it work, and return what was seen by tag."""
        app, journal = self.worker.app, self.worker.journal
        with journal.closed_gate():
            app.tasks[f"{MODULE}.hold"].delay(None)
            journal.wait_for("held")
            for tag, kit in kits(app, scenario).items():
                send = send_neighbour if "neighbour" in tag else scenario.send
                result = send(kit)
                self.sent[tag] = ids(result)
                self._first.update(first_ids(result))
            if scenario.arrives:
                self.wait_received()
            if scenario.while_waiting:
                scenario.while_waiting(self)
            self.waiting = Counter(self._received().values())
        self._settle()
        return self._traces()

    def wait_received(self) -> None:
        """Wait until the worker has all calls; a solo worker reads nothing while it is busy."""
        if self.worker.options.pool != "solo":
            wait_until(self._all_received, "all calls are received", saw=self._received)

    def first_batch(self, task_name: str) -> int:
        """The size of the first batch of a task."""
        return next(batch.size for batch in self.worker.batches() if batch.task == task_name)

    @property
    def sent_ids(self) -> list[str]:
        """The ids of all calls but the neighbours'."""
        return [task_id for tag, sent in self.sent.items() if "neighbour" not in tag for task_id in sent]

    def _settle(self) -> None:
        """Wait until nothing happens any more: a task sent after all others ends, and only that was seen meanwhile."""
        while True:
            wait_until(self._nothing_queued, "the queue is empty", SETTLE_S, saw=self.worker.live.broker.leftovers)
            before = self._count()
            fence = self.worker.app.tasks[f"{MODULE}.fence"].delay().id
            wait_until(lambda fence=fence: self._has_passed(fence), "the worker comes to rest", saw=lambda: self._seen)
            if self._count(but=fence) == before and self._nothing_queued():
                return

    def _has_passed(self, fence_id: str) -> bool:
        self._look()
        seen = [one.what for one in self._seen if one.task_id == fence_id]
        return ({"SUCCESS"} if self._loses_events else {"task-succeeded", "SUCCESS"}) <= set(seen)

    def _nothing_queued(self) -> bool:
        return not self.worker.live.broker.leftovers()

    def _count(self, but: str = "") -> int:
        self._look()
        journal = [entry for entry in self.worker.journal.entries() if entry.facts.get("id") != but]
        return len([one for one in self._seen if one.task_id != but]) + len(journal)

    def _all_received(self) -> bool:
        return self._received().keys() >= self._first

    def _received(self) -> dict[str, str]:
        """The name of the task of each call that the worker has received, by id."""
        entries = self.worker.journal.entries("task_received")
        return {entry["id"]: entry["facts"]["request"]["request_dict"]["task"] for entry in entries}

    def _look(self) -> None:
        """Take what the two subscriptions have for us."""
        while (event := self._events()) is not None:
            if event["type"].startswith("task-") and not self._loses_events:
                stream = ARRIVALS if event["type"] == "task-received" else EVENTS
                self._seen.append(Seen(event["uuid"], stream, event["type"], event))
        while (message := self._stored()) is not None:
            if message["type"] == "pmessage":
                meta = json.loads(message["data"])
                self._seen.append(Seen(meta["task_id"], STORED, meta["status"], meta))

    def _traces(self) -> dict[str, Trace]:
        journal = self.worker.journal
        assert [] == journal.entries(FAILED)
        entries = [entry for entry in journal.entries() if "id" in entry.facts]
        told = [Seen(entry["id"], stream_of(entry.event), entry.event, entry.facts) for entry in entries]
        tags = tags_by_id(told, self.sent)
        # By the order in which the worker received the tasks, then those that it never received.
        first = [one.task_id for one in told if one.what == "task_received"]
        order = {task_id: number for number, task_id in enumerate(dict.fromkeys([*first, *tags]))}
        traces: dict[str, Trace] = defaultdict(list)
        for seen in sorted(told + self._seen, key=lambda one: order.get(one.task_id, -1)):
            if seen.task_id in tags:
                traces[tags[seen.task_id]].append(seen)
        return traces


@contextmanager
def open_stage(worker: WorkerProcess) -> Iterator[Stage]:
    """A stage on a worker that sends task events and stores results in Redis."""
    app, received = worker.app, []
    with ExitStack() as opened:
        receiver = app.events.Receiver(opened.enter_context(app.connection_for_read()), {"*": received.append})
        connection, _, _ = opened.enter_context(receiver.consumer_context(wakeup=False))
        stored = opened.enter_context(worker.live.backend.client.pubsub())
        take_event = event_source(connection, received)
        stored.psubscribe(f"{ANNOUNCED}*")
        wait_until(lambda: stored.get_message(timeout=0.1), "the announcements of results are subscribed to")
        wait_until(lambda: send_test_event(app) or take_event(), "the events are subscribed to")
        yield Stage(worker, take_event, lambda: stored.get_message(timeout=0))
        # Nobody asks for results here, and the members of groups would be kept until somebody does.
        # There is no public way.
        app.backend._pending_results.concrete.clear()


def event_source(connection: Any, received: list[Any]) -> Callable[[], Any]:
    """A function that returns the next event, or None if there is none yet."""

    def next_event() -> Any:
        if not received:
            try:
                connection.drain_events(timeout=0.01)
            except TimeoutError:
                return None
        return received.pop(0) if received else None

    return next_event


def send_test_event(app: Any) -> None:
    """Send an event of no meaning, which shows whether events arrive."""
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send("test-event")


def kits(app: Any, scenario: Scenario) -> dict[str, Kit]:
    """One plain call and a healthy one, and for each kind of batch task what shares a batch, by tag."""
    tags = [f"{PLAIN}:itself", f"{PLAIN}:neighbour"]
    for kind in scenario.kinds:
        if kind.startswith("alone"):
            tags.append(f"{kind}:itself")
        else:
            copies = [f"{kind}:copy{number}" for number in range(scenario.copies)]
            tags += [f"{kind}:neighbour0", *copies, f"{kind}:neighbour1"]
    return {tag: Kit(app, scenario, tag.partition(":")[0], tag) for tag in tags}


def send_neighbour(kit: Kit) -> Any:
    """The healthy call that shares the batch."""
    return kit.item(1, do=answer).apply_async()


def ids(result: Any) -> list[str]:
    """The ids of the tasks behind a result, those of its parents and members first."""
    if isinstance(result, (list, tuple)):
        return [task_id for one in result for task_id in ids(one)]
    found = ids(result.parent) if result.parent else []
    if isinstance(result, GroupResult):
        return [*found, *ids(result.results)]
    return [*found, result.id]


def first_ids(result: Any) -> list[str]:
    """The ids of those that are sent at once: all members of a group, but of a chain only the first task."""
    if isinstance(result, (list, tuple)):
        return [task_id for one in result for task_id in first_ids(one)]
    return first_ids(result.parent) if result.parent else ids(result)


def tags_by_id(told: list[Seen], sent: Mapping[str, list[str]]) -> dict[str, str]:
    """Which call each task belongs to: by its result, or by the tag in its arguments."""
    tags = {task_id: tag for tag, ids_of_call in sent.items() for task_id in ids_of_call}
    for seen in told:
        if seen.what == "task_received":
            tag = seen.facts["facts"]["request"]["kwargs"].get("tag")
            if tag:
                tags.setdefault(seen.task_id, tag)
    return tags
