"""A stand-in for torch with as many GPUs as STAND_IN_GPUS says, for workers that have this folder on their path."""

from __future__ import annotations

import os


class cuda:  # noqa: N801 - torch's name
    """The part of torch that tells about GPUs."""

    @staticmethod
    def device_count() -> int:
        """How many there are."""
        return int(os.environ["STAND_IN_GPUS"])

    @staticmethod
    def is_available() -> bool:
        """Whether there is any."""
        return cuda.device_count() > 0

    @staticmethod
    def is_initialized() -> bool:
        """Whether somebody has used one: never."""
        return False
