"""Play seeds of the simulated cluster.

    python -m tests.simulation.cluster.run --seeds 0-300             many, on all processors
    python -m tests.simulation.cluster.run --seeds 17 --trace 17.txt  one, with everything that happens in it
    python -m tests.simulation.cluster.run --seeds 17 --shrink       one that fails, with as few faults as it needs
    python -m tests.simulation.cluster.run --soak FOLDER             until it is stopped; failing seeds are kept

Every seed is played in a process of its own, forked from one that has everything loaded: nothing of a run is left in
the next. Exits with the number of seeds that broke something, at most 100.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pickle
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from ottla.protocol import codec
from ottla.protocol.codec import prepare
from ottla.protocol.schema import Message
from tests.simulation.cluster.faults import Fault
from tests.simulation.cluster.mutants import MUTANTS
from tests.simulation.cluster.scenario import Report, plan_of, play
from tests.simulation.machine.installed import bound_names

REAL_TIME_MAX_S = 120
"""A run that takes longer has got into an endless loop."""
_TIME = time.monotonic
ResultT = TypeVar("ResultT")


def main() -> int:
    """See the module's documentation."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings would differ in their order from run to run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", _MODULE, *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-100", help="first-last, last excluded, or one seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--mutant", choices=[name for name, mutant in MUTANTS.items() if mutant.where == "cluster"]
    )
    parser.add_argument(
        "--until-found", action="store_true", help="stop at the first seed that breaks something"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write down what happens")
    parser.add_argument("--shrink", action="store_true", help="leave out the faults that are not needed")
    parser.add_argument("--soak", type=Path, metavar="FOLDER", help="play on and on; keep what fails there")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds: Iterable[int] = range(int(first), int(last or int(first) + 1))
    mutant = MUTANTS[arguments.mutant].planted if arguments.mutant else nullcontext
    _warm_up()
    with mutant():
        if arguments.shrink:
            return _shrink(int(first))
        if arguments.trace:
            return _trace(int(first), arguments.trace)
        if arguments.soak:
            arguments.soak.mkdir(parents=True, exist_ok=True)
            seeds = itertools.count(int(time.time()))
        return _play_many(seeds, arguments.processes, arguments.until_found, arguments.soak)


_MODULE = "tests.simulation.cluster.run"


def _play_many(seeds: Iterable[int], processes: int, until_found: bool, kept: Path | None) -> int:
    started, totals, clean, broken = _TIME(), Counter[str](), 0, 0
    seconds = 0.0
    try:
        for seed, outcome in outcomes(seeds, processes):
            if isinstance(outcome, Report):
                clean += 1
                seconds += outcome.seconds
                totals += outcome.counts
                totals["events"] += outcome.events
            else:
                broken += 1
                print(
                    f"seed {seed}: {outcome}\nagain: python -m {_MODULE} --seeds {seed} --trace {seed}.txt",
                    flush=True,
                )
                if kept is not None:
                    _keep(kept, seed, outcome)
                if until_found:
                    break
            if (clean + broken) % 50 == 0:
                print(f"{clean + broken} seeds, {broken} broken, {_TIME() - started:.0f} s", flush=True)
    except KeyboardInterrupt:
        print()
    print(
        f"{clean + broken} seeds, {broken} broken; {seconds / 3600:.2f} simulated hours in {_TIME() - started:.0f} s"
    )
    for name, count in sorted(totals.items()):
        print(f"  {name:40} {count}")
    return min(broken, 100)


def _keep(folder: Path, seed: int, outcome: str) -> None:
    (folder / f"{seed}.txt").write_text(
        f"python -m {_MODULE} --seeds {seed} --trace trace.txt\n\n{outcome}\n"
    )


def _trace(seed: int, path: Path) -> int:
    with path.open("w", buffering=1 << 16) as file:
        outcome = in_child(seed, None, file)
    print(f"seed {seed}: {outcome}")
    return 0 if isinstance(outcome, Report) else 1


def _shrink(seed: int) -> int:
    """Drop halves, then smaller parts of the plan, as long as it still fails in the same way."""
    plan, outcome = plan_of(seed), in_child(seed, None)
    if isinstance(outcome, Report):
        print(f"seed {seed} is clean")
        return 0
    kind = _kind(outcome)
    size = max(1, len(plan) // 2)
    while size >= 1:
        for start in range(0, len(plan), size):
            fewer = plan[:start] + plan[start + size :]
            again = in_child(seed, fewer)
            if not isinstance(again, Report) and _kind(again) == kind:
                plan, outcome = fewer, again
                break
        else:
            size //= 2
    print(f"seed {seed}: {outcome}\nneeds {len(plan)} faults:")
    for fault in plan:
        print(f"  {fault}")
    return 1


def _kind(outcome: str) -> str:
    return outcome.partition(":")[0]


# ------------------------------------------------------------ processes


def _warm_up() -> None:
    """Make what every run would make for itself: the codecs, and the list of names that are replaced."""
    bound_names()
    for message, version in _in_child(_codecs_used):
        prepare(message, version)


def _codecs_used() -> set[tuple[type[Message], int]]:
    _played(0, None, None)
    return {*codec._top_readers, *codec._top_writers}


def in_child(seed: int, plan: list[Fault] | None, sink: TextIO | None = None) -> Report | str:
    """The outcome of one seed, played in a process of its own."""
    return _in_child(lambda: _played(seed, plan, sink))


def outcomes(seeds: Iterable[int], processes: int) -> Iterator[tuple[int, Report | str]]:
    """The outcome of each seed, in order; so many are played at a time."""
    playing: deque[tuple[int, Child]] = deque()
    todo = iter(seeds)
    while True:
        for seed in itertools.islice(todo, processes - len(playing)):
            playing.append((seed, _fork(lambda seed=seed: _played(seed, None, None))))  # type: ignore[misc]
        if not playing:
            return
        seed, child = playing.popleft()
        yield seed, _result(child)


class Child(NamedTuple):
    """A forked process, and the pipe through which its result comes."""

    number: int
    pipe: int


def _in_child(work: Callable[[], ResultT]) -> ResultT:
    return _result(_fork(work))


def _fork(work: Callable[[], object]) -> Child:
    sys.stdout.flush()
    reader, writer = os.pipe()
    number = os.fork()
    if number:
        os.close(writer)
        return Child(number, reader)
    os.close(reader)
    with open(writer, "wb") as pipe:
        pipe.write(pickle.dumps(work()))
    os._exit(0)


def _result(child: Child) -> Any:
    with open(child.pipe, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child.number, 0)
    return pickle.loads(told) if told else f"crash: the process that played it ended with status {status}"


def _played(seed: int, plan: list[Fault] | None, sink: TextIO | None) -> Report | str:
    signal.alarm(REAL_TIME_MAX_S)
    try:
        return play(seed, plan, None if sink is None else sink.write)
    except AssertionError as error:
        return str(error)
    except BaseException:
        return f"exception: {traceback.format_exc()}"
    finally:
        if sink is not None:
            sink.flush()


if __name__ == "__main__":
    sys.exit(main())
