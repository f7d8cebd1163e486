"""A scenario: tasks that do something with an item, and a way to call them; see the table for examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import Celery, Task
from celery.canvas import Signature

from tests.support.deeds import Call, answer
from tests.support.traces import Trace

#: The name of the app module that has the tasks of all scenarios.
MODULE = "differential"

#: Each scenario has a task of each kind. `plain` is the oracle. `alone` runs in batches of one. `mixed`
#: shares a batch with copies of itself and healthy neighbours. In the first two of the batched
#: kinds an item's exception is its entry; in the `raising` kinds `run` itself raises.
PLAIN = "plain"
BATCHED = ("alone", "mixed")
RAISING = ("alone_raising", "mixed_raising")


@dataclass(frozen=True)
class Kit:
    """What a scenario makes its calls from: the tasks of one kind, and a tag that goes along in all arguments."""

    app: Celery
    scenario: Scenario
    kind: str
    tag: str

    @property
    def task(self) -> Task:
        """The scenario's task of this kind."""
        return self.app.tasks[self.scenario.task_name(self.kind)]

    def item(self, *given: Any, do: Callable[[Call], Any] | None = None, tag: str | None = None) -> Signature:
        """A call of the scenario's task: what is given goes to the deed, by default the scenario's."""
        deed = do or self.scenario.do
        return self.task.s(*given, do=deed.__name__, tag=tag or self.tag)

    def immutable(self, *given: Any, **options: Any) -> Signature:
        """The same, without what a chain or chord would add."""
        return self.item(*given, **options).set(immutable=True)

    def helper(self, name: str, **kwargs: Any) -> Signature:
        """A call of one of the plain tasks around the scenario's: `note`, `old_errback`, `new_errback`, `swap`."""
        return self.app.tasks[f"{MODULE}.{name}"].s(**kwargs, tag=self.tag)

    def swap(self) -> Signature:
        """A call of a plain task that replaces itself by the scenario's."""
        return self.helper("swap", into=self.task.name, do=self.scenario.do.__name__)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One thing that users do with a task, to be done with a plain and a batch task alike."""

    #: What happens, in words.
    name: str
    #: The states that stock Celery stores: of a task separated by spaces, of tasks by " / ", in order of arrival.
    states: str
    #: What the tasks do with an item.
    do: Callable[[Call], Any] = answer
    #: How the tasks are declared.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: What the tasks do in their handlers: `{"on_success": function of the task}`.
    handlers: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    #: The call; it returns the result, or several.
    send: Callable[[Kit], Any] = lambda kit: kit.item(1).apply_async()
    #: What happens between the call and the moment when the worker becomes free.
    while_waiting: Callable[[Any], None] | None = None
    #: Whether `run` shall raise, too, instead of returning exceptions as entries.
    raises: bool = False
    #: Whether items may be returned as entries at all.
    entries: bool = True
    #: Whether what `run` raises means the neighbours as well, as the design says of some exceptions.
    spreads: bool = False
    #: Whether the calls are received at all.
    arrives: bool = True
    #: Whether they surely share a batch then: not if they are delayed, or revoked while they wait.
    shares: bool = True
    #: How many items share a batch with healthy neighbours.
    copies: int = 2
    #: Settings of the app.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: The oldest Celery whose plain task does this well.
    since: tuple[int, int] = (5, 6)
    #: What is known to be wrong in stock Celery, put right in the plain task's trace.
    amend: Callable[[Trace], Trace] = lambda trace: trace
    #: What the design says of all batched items' traces, taken out of them.
    adapt: Callable[[Trace], Trace] = lambda trace: trace

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of batch tasks to compare."""
        return (BATCHED if self.entries else ()) + (RAISING if self.raises else ())

    def task_name(self, kind: str) -> str:
        """The name of the scenario's task of a kind."""
        return f"{MODULE}.{kind}.{self.name.replace(' ', '_')}"
