"""The settings of an app that make a difference to each call, and whether they have changed."""

from __future__ import annotations

from operator import is_
from typing import Any

__all__ = ["Settings"]

#: Settings that Celery reads for each call; others it has read once.
_READ_FOR_EACH = ("task_always_eager", "task_send_sent_event", "task_repr_maxlevels", "task_default_queue")


class Settings:
    """The settings that Celery reads for each call, as they are now.

    Args:
        conf: the app's; to read one of them takes Celery longer than all that this does.
    """

    def __init__(self, conf: Any) -> None:
        self._conf = conf
        self._maps = list(conf.maps)
        keys = [conf._key(key) for name in _READ_FOR_EACH for key in conf._to_keys(name)]
        # All but the defaults, where nobody changes anything.
        self._places = [(one, key) for one in self._maps[:-1] for key in keys]
        self._values = self._now()

    def unchanged(self, conf: Any) -> bool:
        """Whether they are the same now."""
        if conf is not self._conf or len(conf.maps) != len(self._maps) or not all(map(is_, conf.maps, self._maps)):
            return False
        return all(map(is_, self._now(), self._values))

    def _now(self) -> list[Any]:
        return [one.get(key) for one, key in self._places]
