"""The errors of the package, all importable from ``celery_batching``.

::

    BatchingError
    ├── OptionError (also ValueError)     a bad option: declaration, environment, settings
    ├── SignatureError (also TypeError)   a ``run`` that cannot take columns
    ├── SetupError                        ``setup`` of a task raised in a pool process
    └── BatchOutputError                  ``run`` returned something that is no batch of results
        └── BatchSizeMismatch             ... or another number of results than items
"""

from __future__ import annotations

__all__ = [
    "BatchOutputError",
    "BatchSizeMismatch",
    "BatchingError",
    "OptionError",
    "SetupError",
    "SignatureError",
]


class BatchingError(Exception):
    """Base of every error that celery_batching raises on its own account."""


class OptionError(BatchingError, ValueError):
    """An option has a value it cannot have, or a name that no option has.

    Raised where a task class is defined, and at the latest when its app is finalized:
    the worker does not start, the first ``.delay()`` raises.
    """


class SignatureError(BatchingError, TypeError):
    """``run`` takes parameters that cannot be filled with columns, such as ``*args``."""


class SetupError(BatchingError):
    """``setup`` of a batch task raised in a pool process; the worker ends with this message."""


class BatchOutputError(BatchingError):
    """``run`` returned a value that is not one result per item: every item of the batch fails.

    The message reaches the callers.
    """


class BatchSizeMismatch(BatchOutputError):
    """``run`` returned another number of results than the batch has items.

    Attributes:
        expected: the number of items in the batch.
        got: the number of results; for an iterator that does not end, one more than expected.
    """

    def __init__(self, task_name: str, expected: int, got: int) -> None:
        # All arguments are passed on, so that the error survives pickling.
        super().__init__(task_name, expected, got)
        self.task_name = task_name
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return (
            f"{self.task_name}.run() got {self.expected} items and returned {self.got} results; "
            f"it must return exactly one result per item, in the order of the items"
        )
