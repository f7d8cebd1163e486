"""The web side: it takes single texts over HTTP and knows nothing of batches.

Start it with ``flask --app example_project.flask_app run``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.exceptions import TaskRevokedError
from celery.exceptions import TimeoutError as NoAnswerInTime
from flask import Flask, abort, render_template, request
from kombu.exceptions import OperationalError
from werkzeug.exceptions import HTTPException

from example_project import settings
from example_project.tasks import embed

if TYPE_CHECKING:
    from celery.result import AsyncResult

__all__ = ["app"]

app = Flask(__name__)


@app.get("/")
def index() -> str:
    """A page to type two texts into."""
    return render_template("index.html", max_length=settings.MAX_TEXT_LENGTH)


@app.post("/embed")
def embed_text() -> dict[str, Any]:
    """``{"text": "..."}`` in, ``{"embedding": [...]}`` out."""
    (embedding,) = _embeddings(*_texts("text"))
    return {"embedding": embedding}


@app.post("/similar")
def compare_texts() -> dict[str, Any]:
    """``{"a": "...", "b": "..."}`` in, ``{"similarity": 0.84}`` out: the cosine, 1.0 for the same meaning."""
    a, b = _embeddings(*_texts("a", "b"))
    # The embeddings have length 1, so that their product is the cosine.
    return {"similarity": sum(x * y for x, y in zip(a, b, strict=True))}


def _embeddings(*texts: str) -> list[list[float]]:
    """Call the task once per text, and wait for the answers.

    The calls are all sent before the first one is waited for, so that they can share a batch.
    """
    results = [_send(text) for text in texts]
    try:
        # An array where the task runs eagerly, a list from a worker.
        return [[float(number) for number in result.get(timeout=settings.ANSWER_TIMEOUT)] for result in results]
    finally:
        for result in results:
            result.forget()


def _send(text: str) -> AsyncResult[Any]:
    try:
        return embed.delay(text)
    except (OperationalError, RuntimeError):
        # From the broker, or from the result backend, which raises no error of its own.
        app.logger.exception("A call cannot be sent")
        abort(503, "Redis cannot be reached.")


def _texts(*names: str) -> list[str]:
    """The fields of those names from the request's JSON object; anything amiss is answered with 400."""
    body = request.get_json(silent=True)
    if not isinstance(body, dict):
        abort(400, "Send a JSON object, with the header Content-Type: application/json.")
    return [_text(body, name) for name in names]


def _text(body: dict[str, Any], name: str) -> str:
    if name not in body:
        abort(400, f"'{name}' is missing.")
    text = body[name]
    if not isinstance(text, str):
        abort(400, f"'{name}' must be a string.")
    if not text.strip():
        abort(400, f"'{name}' is empty.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        abort(400, f"'{name}' has half a surrogate pair, which is no character.")
    if len(text) > settings.MAX_TEXT_LENGTH:
        abort(400, f"'{name}' has {len(text)} characters; at most {settings.MAX_TEXT_LENGTH} are taken.")
    return text


@app.errorhandler(HTTPException)
def _as_json(error: HTTPException) -> tuple[dict[str, Any], int]:
    """Every error is JSON, also the ones Flask raises itself (404, 405, 500)."""
    return {"error": error.description}, error.code or 500


@app.errorhandler(NoAnswerInTime)
@app.errorhandler(TaskRevokedError)
def _no_answer(_error: Exception) -> tuple[dict[str, Any], int]:
    """The caller's time is up, or the call expired in the queue, which is the same seen by the worker."""
    return {"error": f"No answer within {settings.ANSWER_TIMEOUT:g} s: the worker is down or overloaded."}, 504
