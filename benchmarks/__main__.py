"""``python -m benchmarks``: runs the systems in alternation, checks every answer and prints medians and ratios."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from example_project.local_redis import LocalRedis, RedisNotFoundError
from example_project.processes import STOP_SIGNALS, ProcessDiedError, cleanup_stack, signals_held

from .closed_loop import measure_closed_loop
from .curves import draw
from .drain import measure_drain, measure_gap
from .open_loop import measure_open_loop
from .options import Sizes
from .place import Place
from .report import table, write_json
from .results import Results, Turn
from .scale import measure_scale
from .servers import Server
from .systems import BATCHES_PYTHON, System, find_systems

#: Exit statuses: an answer was wrong, or a system failed; nothing could be measured.
WRONG, UNABLE = 1, 2

SCENARIOS: dict[str, Callable[[Turn, System, Place, Sizes], None]] = {
    "drain": measure_drain,
    "gap": measure_gap,
    "closed": measure_closed_loop,
    "open": measure_open_loop,
    "scale": measure_scale,
}

#: Takes many minutes, so it runs only when it is named.
ON_DEMAND = "scale"


def main() -> int:
    """Measure what was asked for; the exit status is 0 when every answer was right."""
    systems = find_systems()
    options = _options(systems)
    chosen = [system for name in options.systems if (system := systems[name]) is not None]
    for name in options.systems:
        if systems[name] is None:
            _say(f"{name} is left out: {BATCHES_PYTHON.parent.parent.name} is missing, which `make bench` makes")
    if not chosen:
        return UNABLE
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
    sizes = _sizes(options)
    try:
        results = _measure(chosen, options.scenarios, sizes, options.rounds)
    except RedisNotFoundError as error:
        _say(str(error))
        return UNABLE
    names = [system.name for system in chosen]
    _tell(results, names)
    if options.json:
        write_json(options.json, results, names, sizes, options.rounds)
    if options.svg:
        options.svg.write_text(draw(results, names), encoding="utf-8")
    return WRONG if results.wrong or results.notes else 0


def _options(systems: dict[str, System | None]) -> argparse.Namespace:
    sizes = Sizes()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Stock Celery, celery-batches and this project side by side, on the same simulated model.",
    )
    names, scenarios = list(systems), [name for name in SCENARIOS if name != ON_DEMAND]
    add = parser.add_argument
    add("--systems", nargs="+", choices=names, default=names, metavar="SYSTEM", help=f"of {', '.join(names)}")
    add(
        *("--scenarios", "-s"),
        nargs="+",
        choices=list(SCENARIOS),
        default=scenarios,
        metavar="SCENARIO",
        help=f"of {', '.join(SCENARIOS)} (default: all but {ON_DEMAND})",
    )
    add("--rounds", type=_positive, default=3, help="turns of each system, in alternation (default: %(default)s)")
    add("--items", type=_positive, default=sizes.items, help="queued items of drain (default: %(default)s)")
    add("--gap-items", type=_positive, default=sizes.gap_items, help="of gap (default: %(default)s)")
    add("--scale-items", type=_positive, default=sizes.scale_items, help="of scale (default: %(default)s)")
    add("--seconds", type=float, default=sizes.seconds, help="of each load (default: %(default)s)")
    add("--callers", type=_positive, nargs="+", default=sizes.callers, help="of closed (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write medians, ratios and all values here")
    add("--svg", type=Path, metavar="FILE", help="draw rates and times against load here")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return number


def _sizes(options: argparse.Namespace) -> Sizes:
    return Sizes(
        items=options.items,
        gap_items=options.gap_items,
        scale_items=options.scale_items,
        seconds=options.seconds,
        callers=tuple(options.callers),
    )


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    _say("Ending the workers, the clients and Redis ...")
    sys.exit(128 + number)


def _measure(systems: Sequence[System], scenarios: Sequence[str], sizes: Sizes, rounds: int) -> Results:
    """Each system once per round, one after the other, so that a slower minute of the machine meets them all."""
    results = Results()
    with cleanup_stack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="celery-batching-bench-"))
        with signals_held():
            local = stack.enter_context(LocalRedis.start())
        server = Server(local)
        stack.callback(server.close)
        place = Place(server, Path(folder))
        for scenario in scenarios:
            for number in range(1, rounds + 1):
                for system in systems:
                    turn = Turn(scenario, system.name, number)
                    results.turns.append(turn)
                    _take(turn, system, place, sizes)
    return results


def _take(turn: Turn, system: System, place: Place, sizes: Sizes) -> None:
    """One turn. What a system fails at is told and counted, and the others go on."""
    _say(f"{turn.scenario}, round {turn.round}: {turn.system} ...")
    try:
        SCENARIOS[turn.scenario](turn, system, place, sizes)
    except (ProcessDiedError, TimeoutError) as error:
        turn.notes.append(str(error))
    except Exception:  # a fault of one turn must not lose the minutes of the others
        turn.notes.append(traceback.format_exc())


def _tell(results: Results, systems: Sequence[str]) -> None:
    print(table(results, systems))
    print()
    if results.notes:
        print("Errors:", *results.notes, sep="\n")
    if results.wrong:
        print(f"{results.wrong} wrong answers")
    elif not results.notes:
        print("Every answer was right.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
