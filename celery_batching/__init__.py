"""Dynamic batching for Celery: single calls in, batches out, every AsyncResult settled on its own."""

from .batch import Batch
from .errors import (
    BatchingError,
    BatchOutputError,
    BatchSizeMismatch,
    OptionError,
    SetupError,
    SignatureError,
)
from .options import BatchOptions
from .task import BatchTask

__all__ = [
    "Batch",
    "BatchOptions",
    "BatchOutputError",
    "BatchSizeMismatch",
    "BatchTask",
    "BatchingError",
    "OptionError",
    "SetupError",
    "SignatureError",
]

__version__ = "0.1.0"
