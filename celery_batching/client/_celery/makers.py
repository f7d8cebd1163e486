"""Who makes the message of a call in Celery and kombu, and what of it may change from call to call."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import celery
import kombu
from celery.app.amqp import AMQP, Queues
from celery.app.routes import MapRoute, Router
from kombu import Producer

__all__ = ["Makers", "has_stock_amqp", "makers_of", "steady_routes"]

#: Where their code lies.
_STOCK_FOLDERS = tuple(f"{Path(str(package.__file__)).parent}/" for package in (celery, kombu))

#: Types of what a route may say that cannot change in its place.
_STEADY = (str, int, float, bool, type(None))


def makers_of(task: Any, by_celery: Any, producer: Any) -> Makers:
    """All that has a hand in making the message of a call.

    Args:
        task: it is called.
        by_celery: Celery's ``apply_async`` of the task.
        producer: it publishes.
    """
    app, channel = task.app, producer.channel
    made = vars(app.amqp)  # once and for all; to ask for each takes ten times as long
    router, queues = made.get("router"), made.get("queues")
    functions = (
        by_celery,
        task.shadow_name,
        task._get_exec_options,
        task.AsyncResult,
        app.send_task,
        app.producer_or_acquire,
        made.get("create_task_message"),
        made.get("send_task_message"),
        getattr(router, "route", None),
        Producer.publish,
        Producer._publish,
        Producer._prepare,
        Producer._delivery_details,
        channel.prepare_message,
        channel.basic_publish,
        channel.encode_body,
        channel.typeof,
    )
    read = (
        vars(app).get("AsyncResult"),
        task.name,
        task._backend,
        task._exec_options,
        task.soft_time_limit,
        task.time_limit,
        app.amqp.argsrepr_maxsize,
        app.amqp.kwargsrepr_maxsize,
        None if router is None else tuple(router.routes),
        None if queues is None else (*queues.aliases.data, *queues.values()),
    )
    codes = [getattr(function, "__code__", None) for function in functions]
    return Makers(functions, tuple(map(type, functions)), codes, read)


class Makers(NamedTuple):
    """Equal for as long as nothing is replaced."""

    functions: tuple[Any, ...]
    types: tuple[type, ...]
    """Of the functions: wrappers may pretend to be what they wrap in all else."""
    codes: list[Any]
    """Of the functions: instrumentation may replace it in place."""
    read: tuple[Any, ...]

    def are_stock(self) -> bool:
        """Whether the functions are Celery's and kombu's own, and not wrapped."""
        return all(_is_stock(function) for function in self.functions)


def _is_stock(function: Any) -> bool:
    plain = function.__func__ if type(function) is MethodType else function
    return type(plain) is FunctionType and plain.__code__.co_filename.startswith(_STOCK_FOLDERS)


def has_stock_amqp(app: Any) -> bool:
    """Whether what makes the app's messages is of Celery's own classes."""
    amqp = app.amqp
    return (type(amqp), type(amqp.router), type(amqp.queues)) == (AMQP, Router, Queues)


def steady_routes(app: Any, name: str) -> list[tuple[Any, Any]] | None:
    """What the router's maps say of a task, each as it is kept there and as it is now.

    None where what they say may change from call to call.
    """
    routes = []
    router: Any = app.amqp.router
    for route in router.routes:
        if type(route) is not MapRoute:
            return None
        table: Any = route
        values = [table.map[name]] if name in table.map else []
        for value in values + [value for pattern, value in table.patterns.items() if pattern.match(name)]:
            if type(value) is str:
                continue
            if type(value) is not dict or not all(type(one) in _STEADY for one in value.values()):
                return None
            routes.append((value, dict(value)))
    return routes
