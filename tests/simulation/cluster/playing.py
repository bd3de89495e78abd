"""Runs of seeds, each in a process forked from one that has loaded everything, so that runs do not
affect each other.
"""

from __future__ import annotations

import itertools
import multiprocessing.connection
import os
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TextIO, TypeVar

from ottla.protocol.wire.codec import prepare_decoding, prepare_encoding
from ottla.protocol.wire.schema import Message
from tests.simulation.cluster.scenario import Report
from tests.simulation.machine.forking import fork
from tests.simulation.machine.installed import bound_names

PROCESSOR_TIME_MAX_S = 120
"""Processor seconds after which a run is considered an endless loop."""

_OPEN = 32767
"""Last version of a message that has a single version so far."""

ResultT = TypeVar("ResultT")
Sink = Callable[[str], object]
Player = Callable[[int, Sink | None], Report]
"""A function that plays a seed, and writes its events to the sink if there is one. Raises AssertionError with the
violation."""


def warm_up() -> None:
    """Create the shared caches of all runs: codecs, initializers, and the list of replaced names."""
    bound_names()
    for message in _messages(Message):
        message()
        first, last = message.schema.versions
        for version in range(first, (first if last == _OPEN else last) + 1):
            prepare_decoding(message, version)
            prepare_encoding(message, version)


def _messages(kind: type[Message]) -> Iterator[type[Message]]:
    """Yield all message classes with fields."""
    for message in kind.__subclasses__():
        if hasattr(message, "schema"):
            yield message
        yield from _messages(message)


def in_child(play: Callable[[], Report], sink: TextIO | None = None) -> Report | str:
    """Return the outcome of one seed, played in a child process; its writes to `sink` are visible afterwards."""
    return _in_child(lambda: _played(play, sink))


def outcomes(play: Player, seeds: Iterable[int], processes: int) -> Iterator[tuple[int, Report | str]]:
    """Yield the outcome of each seed, in order, with up to `processes` playing at once. A long seed delays no other."""
    order, todo = deque[int](), iter(seeds)
    playing: dict[int, tuple[int, Child]] = {}
    results: dict[int, Any] = {}
    try:
        while True:
            for seed in itertools.islice(todo, processes - len(playing)):
                child = _fork(lambda seed=seed: _played(lambda: play(seed, None), None))  # type: ignore[misc]
                playing[child.pipe] = (seed, child)
                order.append(seed)
            while order and order[0] in results:
                yield order[0], results.pop(order.popleft())
            if not playing:
                return
            for pipe in multiprocessing.connection.wait(list(playing)):
                assert isinstance(pipe, int)
                seed, child = playing.pop(pipe)
                results[seed] = _result(child)
    finally:
        for _, child in playing.values():  # their results are not needed
            os.kill(child.number, signal.SIGKILL)
            os.close(child.pipe)
            os.waitpid(child.number, 0)


class Child(NamedTuple):
    """A forked process, and the pipe for its result."""

    number: int
    pipe: int


def _in_child(work: Callable[[], ResultT]) -> ResultT:
    return _result(_fork(work))


def _fork(work: Callable[[], object]) -> Child:
    sys.stdout.flush()
    reader, writer = os.pipe()
    number = fork()
    if number:
        os.close(writer)
        return Child(number, reader)
    os.close(reader)
    with open(writer, "wb") as pipe:
        pipe.write(pickle.dumps(work()))
    os._exit(0)


def _result(child: Child) -> Any:
    with open(child.pipe, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child.number, 0)
    return pickle.loads(data) if data else f"crash: the process that played it ended with status {status}"


def _played(play: Callable[[], Report], sink: TextIO | None) -> Report | str:
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_TIME_MAX_S)
    try:
        return play()
    except AssertionError as error:
        return str(error) or traceback.format_exc()
    except BaseException:
        return f"exception: {traceback.format_exc()}"
    finally:
        if sink is not None:
            sink.flush()
