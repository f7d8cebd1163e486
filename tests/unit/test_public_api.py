"""The names that users import, and what a process pays that only sends calls."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import celery_batching
from celery_batching import BatchingError

#: A web process: it has the app and its tasks, and only sends calls.
WEB_PROCESS = """
import sys
from celery import Celery
from celery_batching import BatchTask

app = Celery("web", broker="memory://", backend="cache+memory://")

class Embed(BatchTask):
    name = "web.embed"
    def setup(self):
        raise AssertionError("a client sets nothing up")
    def run(self, texts, top=3):
        return texts

embed = app.register_task(Embed())

@app.task(base=BatchTask, name="web.other", max_wait=0.01)
def other(texts):
    return texts

embed.delay("a")
other.apply_async(("b",), countdown=5)
embed.s("a", top=1).delay()

unwanted = ("torch", "numpy", "django", "flask", "celery.worker.request", "celery.app.trace", "billiard.pool",
            "celery_batching.consumer", "celery_batching.pool", "celery_batching._celery_internals")
print(sorted(name for name in sys.modules if any(name == one or name.startswith(one + ".") for one in unwanted)))
"""


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: everything without an underscore that is no module."""
    return [
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    ]


def submodules() -> list[str]:
    return [one.name for one in pkgutil.walk_packages(celery_batching.__path__, "celery_batching.")]


def test_all_names_the_public_names() -> None:
    """`__all__` holds each public name of the package once, sorted."""
    assert sorted(public_names(celery_batching)) == celery_batching.__all__


@pytest.mark.parametrize("name", submodules())
def test_all_of_a_module_exists(name: str) -> None:
    """Each name that a module exports is there."""
    module = importlib.import_module(name)

    assert [] == [one for one in getattr(module, "__all__", []) if not hasattr(module, one)]


def test_every_error_has_one_base() -> None:
    """Whoever catches BatchingError catches every error of the package."""
    errors = [
        value
        for value in vars(celery_batching).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    ]

    assert len(errors) >= 5
    assert [] == [error for error in errors if not issubclass(error, BatchingError)]


def test_public_classes_say_what_they_are() -> None:
    """Each public name has a docstring."""
    assert [] == [name for name in celery_batching.__all__ if not getattr(celery_batching, name).__doc__]


def test_a_process_that_only_sends_calls_loads_no_worker_code() -> None:
    """`.delay()` imports neither torch, numpy or a web framework nor any code of the worker."""
    done = subprocess.run([sys.executable, "-c", WEB_PROCESS], capture_output=True, text=True, timeout=100, check=False)

    assert "" == done.stderr
    assert "[]" == done.stdout.strip()
