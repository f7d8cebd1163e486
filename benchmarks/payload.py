"""What callers send, and the answer that is right for it; the same in every system."""

from __future__ import annotations

import zlib

__all__ = ["answer", "payload"]

#: The rest of each text: as long as a sentence.
_REST = " a caller's single item, about as long as the sentence that a text model would be asked to embed"


def payload(index: int) -> str:
    """The text of one call; no two indexes have the same."""
    return f"{index:08d}{_REST}"


def answer(text: str) -> int:
    """What the simulated model answers: a checksum, so that an answer given to the wrong caller shows."""
    return zlib.crc32(text.encode())
