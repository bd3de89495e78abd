"""A program that kills workers at the awaits of their commit path, one worker at each, and lets another finish.

Usage: python -m tests.client.killed_at_awaits BOOTSTRAP_SERVERS FOLDER at-least-once|transactional SPREAD|all

A wrapper drives the coroutines that send results and commit them. It kills the process where the n-th of all their
suspensions and ends comes. Each moment has a topic of its own, a child process that is killed, and a child process that
finishes. SPREAD moments are evenly spread over a run; `all` begins with the first, until a run ends whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from ottla import Admin, NewTopic, Producer, Reject, Retry, Worker, WorkerRecord
from ottla.client.worker.at_least_once import AtLeastOnce
from ottla.client.worker.exactly_once import InTransactions

RECORDS, KEYS, PARTITIONS = 24, 6, 2
DEADLINE_S = 60
COMMIT_PATH = ((AtLeastOnce, "_commit"), (AtLeastOnce, "_send"), (InTransactions, "_batch"))
NEVER = 0


def is_rejected(number: int) -> bool:
    """Return whether the record of this number becomes a dead letter."""
    return number % 7 == 3


class Moments:
    """The number of moments that have passed, and the moment at which the process is killed."""

    def __init__(self, killed_at: int) -> None:
        self.passed = 0
        self._killed_at = killed_at

    def watch(self) -> None:
        """Pass a moment at each suspension and each end of the coroutines of the commit path."""
        for owner, name in COMMIT_PATH:
            setattr(owner, name, self._driving(getattr(owner, name)))

    def pass_one(self) -> None:
        """Count a moment, and die if it is the chosen one."""
        self.passed += 1
        if self.passed == self._killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _driving(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Driven]:
        return lambda *arguments: Driven(function(*arguments), self)


class Driven:
    """A coroutine that is driven step by step, with a moment after each step."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], moments: Moments) -> None:
        self._coroutine = coroutine
        self._moments = moments

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            try:
                waited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                self._moments.pass_one()
                return end.value
            self._moments.pass_one()
            error = None
            try:
                yield waited
            except BaseException as thrown:
                error = thrown


async def prepare(servers: str, topic: str) -> None:
    """Create the topics, and write the records."""
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(f"{topic}{end}", PARTITIONS) for end in ("", ".out", ".dlq")])
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, b"%d" % (number % KEYS))


def worker_of(servers: str, topic: str, notes: Path, mode: str) -> Worker:
    """Return a worker that copies records, and notes each start and end of its handler."""
    worker = Worker(
        topic,
        bootstrap_servers=servers,
        group_id=topic,
        group_instance_id="worker",  # The next process takes the partitions over at once.
        concurrency=4,
        retry=Retry(attempts=3, first=0.001, factor=1, most=0.001),
        dead_letter=f"{topic}.dlq",
        fetch_max_wait_ms=50,
        transactional=mode == "transactional",
        commit_every_s=0.02,
        max_batch_records=6,
    )
    file = notes.open("a", buffering=1)

    def note(what: str, record: WorkerRecord) -> None:
        file.write(f"{what} {record.key.decode()} {int(record.value)} {time.time()}\n")

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        number = int(record.value)
        note("start", record)
        await asyncio.sleep(0.001)
        if is_rejected(number):
            note("reject", record)
            raise Reject("as the test says")
        if number % 5 == 0 and record.attempt == 1:
            note("fail", record)
            raise ConnectionError
        await record.send(f"{topic}.out", record.value, key=record.key)
        note("end", record)

    return worker


async def work(servers: str, topic: str, notes: Path, mode: str) -> None:
    """Run a worker until all records are committed."""
    worker = worker_of(servers, topic, notes, mode)
    running = asyncio.create_task(worker.run())
    async with Admin(bootstrap_servers=servers) as admin, asyncio.timeout(DEADLINE_S):
        while not running.done() and sum((await admin.committed_offsets(topic)).values()) < RECORDS:
            await asyncio.sleep(0.01)
    worker.stop()
    await running


def forked(run: Callable[[], None]) -> int:
    """Run a function in a child process, and return its wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        run()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


class Play:
    """The kills of one cluster, mode and folder."""

    def __init__(self, servers: str, folder: Path, mode: str) -> None:
        self._servers = servers
        self._folder = folder
        self._mode = mode

    def moment(self, killed_at: int) -> bool:
        """Kill a worker at a moment, and let another finish. Return whether the first has finished before."""
        topic = f"{self._mode}-{killed_at}"
        notes = [self._folder / f"{topic}-{number}.notes" for number in (1, 2)]
        status = forked(lambda: self._first(topic, notes[0], killed_at))
        is_whole = status == 0
        if not is_whole:
            assert os.WIFSIGNALED(status), f"moment {killed_at}: the worker failed"
            second = forked(lambda: asyncio.run(work(self._servers, topic, notes[1], self._mode)))
            assert second == 0, f"moment {killed_at}: the second worker did not finish"
        print(topic, "whole" if is_whole else "killed", flush=True)
        return is_whole

    def moments(self, chosen: str) -> Iterable[int]:
        """Return the chosen moments."""
        if chosen == "all":
            return count(1)
        assert self.moment(NEVER)
        last, steps = int((self._folder / "passed").read_text()), int(chosen) - 1
        return sorted({1 + (last - 1) * step // steps for step in range(steps + 1)})

    def _first(self, topic: str, notes: Path, killed_at: int) -> None:
        asyncio.run(prepare(self._servers, topic))
        moments = Moments(killed_at)
        moments.watch()
        asyncio.run(work(self._servers, topic, notes, self._mode))
        (self._folder / "passed").write_text(str(moments.passed))


def main() -> None:
    """Play the chosen moments."""
    logging.disable(logging.ERROR)  # Retries and letters are as planned.
    servers, folder, mode, chosen = sys.argv[1:]
    play = Play(servers, Path(folder), mode)
    for moment in play.moments(chosen):
        if play.moment(moment) and chosen == "all":
            return


if __name__ == "__main__":
    main()
