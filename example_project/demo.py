"""``make demo``: the service in full on this machine, under load, with every answer checked.

Sends the same sentences through plain Celery and through the batch task, compares every answer with
the model run alone, and ends all that it has started.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import sys
import time
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from example_project import report, settings
from example_project.batch_log import LoggedBatch, mean_size, read_batches
from example_project.load import TOLERANCE, Answer, Load, call_concurrently
from example_project.local_redis import RedisNotFoundError
from example_project.model import ModelNotFoundError, encode, load_model
from example_project.processes import STOP_SIGNALS, ProcessDiedError, cleanup_stack, wait_until
from example_project.service import Service, start_service
from example_project.tasks import embed, embed_one

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from numpy.typing import NDArray

#: Exit statuses: an answer was wrong; the demo could not run.
WRONG, UNABLE = 1, 2

#: How many wrong answers are shown one by one.
SHOWN = 5

#: Seconds by which the worker's last log line may be later than the last answer.
LOG_DELAY = 10.0

#: Two texts that mean the same, for the web page to compare.
PAIR = ("How old are you?", "What is your age?")

console = Console(highlight=False)


def main() -> int:
    """Run the demo; the exit status is 0 when every answer was right."""
    options = _options()
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
    try:
        with cleanup_stack() as stack:
            console.print("Starting Redis, the worker and the web page ...")
            service = start_service(stack)
            status = _show(service, options.callers)
            if options.keep:
                _keep(service)
            return status
    except (ModelNotFoundError, ProcessDiedError, RedisNotFoundError, TimeoutError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return UNABLE


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m example_project.demo", description="Batched against plain Celery.")
    parser.add_argument("--callers", type=_positive, default=64, help="concurrent callers (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the web page up until Ctrl-C")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return number


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    console.print("\nEnding the worker, the web page and Redis ...")
    sys.exit(128 + number)


def _show(service: Service, callers: int) -> int:
    """Measure both tasks, print what came out, and return the exit status."""
    texts = resources.files("example_project").joinpath("sentences.txt").read_text(encoding="utf-8").splitlines()
    with _progress() as progress:
        expected = _run_alone(texts, progress)
        service.wait_for_worker()
        bench = Bench(service, texts, callers, progress)
        bench.warm_up()
        plain = bench.measure(embed_one, "plain Celery")
        earlier = len(_batches(service))
        batched = bench.measure(embed, "batched")
    batches = _batches_since(earlier, service, batched)
    rows = [
        report.Row("plain Celery", plain, 1.0, len(plain.wrong(expected))),
        report.Row("batched", batched, mean_size(batches), len(batched.wrong(expected))),
    ]
    console.print()
    console.print(report.comparison(rows, f"{len(texts)} sentences, {callers} concurrent callers, one worker process"))
    console.print(report.sizes(batches))
    console.print(report.reasons(batches))
    return _verdict([*plain.wrong(expected), *batched.wrong(expected)], page_is_right=_page_is_right(service))


def _progress() -> Progress:
    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _run_alone(texts: Sequence[str], progress: Progress) -> NDArray[np.float32]:
    """The expected answers: the model in this process, run on each text alone."""
    model = load_model("cpu")
    return np.stack([encode(model, [text])[0] for text in progress.track(texts, description="model alone")])


@dataclass(frozen=True)
class Bench:
    """The load that both tasks get: the same texts from as many callers, on the same worker."""

    service: Service
    texts: Sequence[str]
    callers: int
    progress: Progress

    def warm_up(self) -> None:
        """Let each caller make one call of each task, so that no row pays for what is done only once."""
        for task in (embed, embed_one):
            call_concurrently(task, self.texts[: self.callers], self.callers, lambda _: self.service.check())

    def measure(self, task: Any, name: str) -> Load:
        """Send all texts to one task."""
        bar = self.progress.add_task(name, total=len(self.texts))

        def on_progress(answered: int) -> None:
            self.service.check()
            self.progress.update(bar, completed=answered)

        return call_concurrently(task, self.texts, self.callers, on_progress)


def _batches(service: Service) -> list[LoggedBatch]:
    return read_batches(service.worker.text(), embed.name)


def _batches_since(earlier: int, service: Service, load: Load) -> list[LoggedBatch]:
    """The batches of ``load``: those after the first ``earlier``, once the worker has logged them all."""

    def is_complete() -> bool:
        return sum(batch.size for batch in _batches(service)[earlier:]) >= load.answered

    wait_until(is_complete, "the log lines of all batches", service.worker, LOG_DELAY)
    return _batches(service)[earlier:]


def _page_is_right(service: Service) -> bool:
    """Ask the web page how similar two texts are, and print and check what it says."""
    a, b = PAIR
    connection = http.client.HTTPConnection(service.wait_for_web(), timeout=settings.ANSWER_TIMEOUT)
    connection.request("POST", "/similar", json.dumps({"a": a, "b": b}), {"Content-Type": "application/json"})
    answer = json.load(connection.getresponse())
    console.print(f"POST /similar {PAIR}: {answer}", markup=False, soft_wrap=True)
    model = load_model("cpu")
    expected = float(encode(model, [a])[0] @ encode(model, [b])[0])
    return bool(abs(answer.get("similarity", np.inf) - expected) <= TOLERANCE)


def _verdict(wrong: Sequence[Answer], *, page_is_right: bool) -> int:
    """Say what was wrong, if anything, and return the exit status."""
    for answer in wrong[:SHOWN]:
        console.print(f"Sentence {answer.index + 1}: {answer.error or 'differs from the model alone'}", style="red")
    if not page_is_right:
        console.print("The web page's answer differs from the model alone", style="red")
    if wrong or not page_is_right:
        return WRONG
    console.print(f"Every answer is that of the model run alone (each number within {TOLERANCE:g}).", style="green")
    return 0


def _keep(service: Service) -> None:
    """Leave the web page up until a signal ends the demo."""
    console.print(f"The page is at http://{service.wait_for_web()} - Ctrl-C ends it.")
    while True:
        service.check()
        time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(main())
