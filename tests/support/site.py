"""A site: what a client and its workers must agree on to meet; plain values, used in both processes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from celery import Celery

#: The environment variable in which a worker finds its site.
VARIABLE = "BATCHING_TEST_SITE"


class OwnTasksCelery(Celery):
    """An app whose tasks are its own: Celery offers decorated tasks to all apps of the process.

    In the tests' process many apps with tasks of the same names live side by side.
    """

    def task(self, *args: Any, **options: Any) -> Any:
        """Celery's decorator, with `shared=False`."""
        return super().task(*args, **{"shared": False, **options})


@dataclass(frozen=True, kw_only=True)
class Site:
    """One broker, one result backend, one queue, one journal, and more settings of the app."""

    broker_url: str = "memory://"
    backend_url: str = "cache+memory://"
    queue: str = "celery"
    journal_url: str = "redis://"
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_environ(cls) -> Site:
        """The site of this worker; without one, an app in memory that only needs to be importable."""
        return cls(**json.loads(os.environ.get(VARIABLE, "{}")))

    def environ(self) -> dict[str, str]:
        """The environment that makes a worker open this site."""
        return {VARIABLE: json.dumps(asdict(self))}

    def celery(self, name: str, **settings: Any) -> Celery:
        """An app at this site; the site's settings win over the given ones."""
        app = OwnTasksCelery(name, broker=self.broker_url, backend=self.backend_url, set_as_current=False)
        app.conf.update(
            task_default_queue=self.queue,
            broker_connection_retry_on_startup=True,
            **{**settings, **self.settings},
        )
        return app
