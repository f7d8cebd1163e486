"""A client with a bad option hears of it at the latest when it sends its first call."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from celery_batching import BatchTask, OptionError


def new_app(**settings: Any) -> Celery:
    app = Celery("options", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(settings)
    return app


def test_the_first_call_of_a_decorated_task_raises() -> None:
    """The decorator form is checked when the app is finalized: `.delay()` raises, with option and value."""
    app = new_app()

    @app.task(base=BatchTask, name="options.embed", max_batch_size=0, shared=False)
    def embed(xs: list[int]) -> list[int]:
        return xs

    for _ in range(2):
        with pytest.raises(OptionError, match=r"options\.embed\.max_batch_size .* got 0"):
            embed.delay(1)


def test_a_bad_setting_raises_at_the_first_call() -> None:
    """A bad setting of the app reaches the client too, with its full name."""
    app = new_app(batching_max_wait=-1)

    @app.task(base=BatchTask, name="options.embed", shared=False)
    def embed(xs: list[int]) -> list[int]:
        return xs

    with pytest.raises(OptionError, match=r"batching_max_wait .* got -1"):
        embed.delay(1)


def test_a_bad_variable_raises_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a bad environment variable."""
    monkeypatch.setenv("CELERY_BATCHING_ON_ERROR", "ignore")
    app = new_app()

    @app.task(base=BatchTask, name="options.embed", shared=False)
    def embed(xs: list[int]) -> list[int]:
        return xs

    with pytest.raises(OptionError, match="CELERY_BATCHING_ON_ERROR .* got 'ignore'"):
        embed.delay(1)


def test_a_bad_annotation_raises_at_the_first_call() -> None:
    """And a bad value in Celery's own `task_annotations`."""
    app = new_app(task_annotations={"options.embed": {"max_wait": "soon"}})

    @app.task(base=BatchTask, name="options.embed", shared=False)
    def embed(xs: list[int]) -> list[int]:
        return xs

    with pytest.raises(OptionError, match="max_wait .* got 'soon'"):
        embed.delay(1)


def test_good_annotations_hold() -> None:
    """An option may be set through `task_annotations`, as any attribute of a task."""
    app = new_app(task_annotations={"options.embed": {"max_wait": 0.5}}, batching_max_batch_size=7)

    @app.task(base=BatchTask, name="options.embed", max_wait=0.1, shared=False)
    def embed(xs: list[int]) -> list[int]:
        return xs

    assert (7, 0.5) == (embed.batch_options.max_batch_size, embed.batch_options.max_wait)


def test_a_class_raises_where_it_is_defined() -> None:
    """The class form needs no app to refuse a bad value."""
    with pytest.raises(OptionError, match=r"options\.embed\.max_wait .* got -1"):

        class Embed(BatchTask):
            name = "options.embed"
            max_wait = -1

            def run(self, xs: list[int]) -> list[int]:
                return xs
