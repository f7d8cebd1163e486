"""Where measurements happen: the server and a folder for the files of the children."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

from .servers import Server

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """The server of all children, and a folder for their files."""

    server: Server
    folder: Path
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def new_file(self, name: str) -> Path:
        """A path that no file has yet."""
        return self.folder / f"{next(self._numbers)}-{name}"
