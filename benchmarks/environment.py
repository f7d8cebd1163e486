"""The environment of the children."""

from __future__ import annotations

import os

from .apps.common import URL_VARIABLE
from .systems import ROOT

__all__ = ["child_environment"]


def child_environment(url: str, **more: str) -> dict[str, str]:
    """This process's own, with the server and without any setting of Celery or of this project."""
    # Celery's commands read options, and this project's tasks read theirs, from variables with this prefix.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CELERY_")}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", URL_VARIABLE: url, **more}
