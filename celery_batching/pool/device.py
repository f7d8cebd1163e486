"""Which device a pool process should put its model on."""

from __future__ import annotations

import importlib.util

from .._celery_internals import pool_process_index

__all__ = ["device"]


def device() -> str:
    """``"cuda:k"``, k the index of this pool process (modulo the number of GPUs), else ``"cpu"``.

    The threads and solo pools are one process, whose index is 0. Imports torch where it is installed.
    """
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch  # noqa: PLC0415  heavy, and only wanted in the process that runs the model

    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{pool_process_index() % torch.cuda.device_count()}"
