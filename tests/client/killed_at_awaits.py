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
import sys
import time
from pathlib import Path

from ottla import Admin, NewTopic, Producer, Reject, Retry, Worker, WorkerRecord
from ottla.client.worker.at_least_once import AtLeastOnce
from ottla.client.worker.exactly_once import InTransactions
from tests.killed_at_moments import Moments, forked, play

RECORDS, KEYS, PARTITIONS = 24, 6, 2
DEADLINE_S = 60
COMMIT_PATH = ((AtLeastOnce, "_commit"), (AtLeastOnce, "_send"), (InTransactions, "_batch"))


def is_rejected(number: int) -> bool:
    """Return whether the record of this number becomes a dead letter."""
    return number % 7 == 3


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


class Play:
    """The kills of one cluster, mode and folder."""

    def __init__(self, servers: str, folder: Path, mode: str) -> None:
        self._servers = servers
        self._folder = folder
        self._mode = mode
        self.passed = folder / "passed"

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

    def _first(self, topic: str, notes: Path, killed_at: int) -> None:
        asyncio.run(prepare(self._servers, topic))
        moments = Moments(killed_at)
        for owner, name in COMMIT_PATH:
            moments.watch(owner, name)
        asyncio.run(work(self._servers, topic, notes, self._mode))
        self.passed.write_text(str(moments.passed))


def main() -> None:
    """Play the chosen moments."""
    logging.disable(logging.ERROR)  # Retries and letters are as planned.
    servers, folder, mode, chosen = sys.argv[1:]
    kills = Play(servers, Path(folder), mode)
    play(kills.moment, kills.passed, chosen)


if __name__ == "__main__":
    main()
