"""A batch task with an option that it cannot have, declared in the way that the environment of its worker names."""

from __future__ import annotations

import os

from celery import Celery, shared_task

from celery_batching import BatchTask
from tests.support.site import Site

#: Names the declaration that has the bad value; without it all of them are good.
PLACE = "BATCHING_TEST_BAD_OPTION"


def make_app(site: Site) -> Celery:
    """An app with one batch task."""
    app = site.celery("options")
    place = os.environ.get(PLACE)

    if place == "class":

        class Embed(BatchTask):
            name = "options.embed"
            max_batch_size = 0

            def run(self, xs: list[int]) -> list[int]:
                return xs

        app.register_task(Embed())
        return app

    if place == "shared_task":

        @shared_task(base=BatchTask, name="options.shared", max_wait="soon")
        def shared(xs: list[int]) -> list[int]:
            return xs

    declared = {"max_batch_size": 0} if place == "decorator" else {}

    @app.task(base=BatchTask, name="options.embed", **declared)
    def embed(xs: list[int]) -> list[int]:
        return xs

    return app


app = make_app(Site.from_environ())
