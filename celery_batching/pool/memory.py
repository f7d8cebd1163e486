"""Running out of memory: how it is told from other errors, and what is freed before the next try."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable

from .._celery_internals import loaded_torch

__all__ = ["free_memory", "is_out_of_memory"]

#: What libraries below torch say in a plain RuntimeError: its allocator on the CPU, the CUDA
#: runtime, and cuBLAS and cuDNN (CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_ALLOC_FAILED).
_PHRASES = ("can't allocate memory", "out of memory", "_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException, oom_errors: Iterable[type[BaseException] | str]) -> bool:
    """Whether fewer items at a time may fit where these did not.

    Args:
        error: what ``run`` raised.
        oom_errors: more classes that mean it, or their names with the module before; a class whose
            module nobody imported cannot have been raised.
    """
    known = [MemoryError, getattr(loaded_torch(), "OutOfMemoryError", None)]
    known += [_find(one) if isinstance(one, str) else one for one in oom_errors]
    if isinstance(error, tuple(one for one in known if isinstance(one, type))):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _PHRASES)


def free_memory(error: BaseException) -> None:
    """Let go of what the failed run held: locals in the frames of its error, and CUDA's cached blocks."""
    one: BaseException | None = error
    while one is not None:
        traceback.clear_frames(one.__traceback__)
        one = one.__cause__ or one.__context__
    torch = loaded_torch()
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _find(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(sys.modules.get(module), attribute, None)
