"""One model declared in every form that Celery has; each answers with the size of its batch and its own value.

A batch of two leaves at once, so that tests know who shares it.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, shared_task

from celery_batching import BatchTask
from tests.support.site import Site

#: The names of the tasks, one for each form.
FORMS = ("ClassForm", "decorated", "bound", "shared")

OPTIONS: dict[str, Any] = {"max_batch_size": 2, "max_wait": 60}


def scaled(xs: list[int], scale: list[int], offset: list[int]) -> list[Any]:
    """The answers of a batch; a scale of 0 fails the item."""
    return [
        [len(xs), x * factor + plus] if factor else ZeroDivisionError(f"{x} times nothing")
        for x, factor, plus in zip(xs, scale, offset, strict=True)
    ]


@shared_task(base=BatchTask, name="declared.shared", **OPTIONS)
def shared(xs: list[int], scale: Any = 10, *, offset: Any = 0) -> list[Any]:
    """The form for reusable Django apps, which belongs to no app."""
    return scaled(xs, scale, offset)


def make_app(site: Site) -> Celery:
    """An app with the other forms; the class is made here, since Celery binds a class to one app."""
    app = site.celery("declared")

    class ClassForm(BatchTask):
        name = "declared.ClassForm"
        max_batch_size = 2
        max_wait = 60
        loads = 0

        def setup(self) -> None:
            self.loads += 1
            self.model = scaled

        def run(self, xs: list[int], scale: Any = 10, *, offset: Any = 0) -> list[Any]:
            return self.model(xs, scale, offset)

    app.register_task(ClassForm())

    @app.task(base=BatchTask, name="declared.decorated", **OPTIONS)
    def decorated(xs: list[int], scale: Any = 10, *, offset: Any = 0) -> list[Any]:
        return scaled(xs, scale, offset)

    @app.task(base=BatchTask, bind=True, name="declared.bound", **OPTIONS)
    def bound(self: BatchTask, xs: list[int], scale: Any = 10, *, offset: Any = 0) -> list[Any]:
        assert len(self.batch) == len(xs)
        return scaled(xs, scale, offset)

    return app


app = make_app(Site.from_environ())
