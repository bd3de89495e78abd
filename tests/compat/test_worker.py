"""Workers with both group protocols, transactional and not: members come and go, and each record counts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from ottla import Admin, Producer, Reject, Retry, TopicPartition, Worker, WorkerRecord
from tests.compat.conftest import Topics
from tests.compat.reading import DEADLINE_S, eventually, read_to_the_end

COUNT, KEYS, PARTITIONS = 400, 40, 4
REJECTED = 77


class Handled:
    """The numbers that the handlers of all members have ended, by key."""

    def __init__(self) -> None:
        self.ended: dict[Any, list[int]] = defaultdict(list)
        self.busy: set[Any] = set()

    @property
    def count(self) -> int:
        return sum(map(len, self.ended.values()))

    async def work(self, record: WorkerRecord, output: str) -> None:
        number = int(record.value)
        if number == REJECTED:
            raise Reject("as the test says")
        assert record.key not in self.busy, "two records of a key at a time"
        self.busy.add(record.key)
        try:
            await asyncio.sleep(0.02)
        finally:
            self.busy.remove(record.key)
        if number % 50 == 0 and record.attempt == 1:
            raise ConnectionError("the first attempt")
        await record.send(output, record.value, key=record.key)
        self.ended[record.key].append(number)


@asynccontextmanager
async def member(handled: Handled, topic: str, output: str, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker in the background, and stop it at the end."""
    worker = Worker(
        topic,
        fetch_max_wait_ms=50,
        commit_every_s=0.05,
        retry=Retry(attempts=3, first=0.02, most=0.02, factor=1),
        **options,
    )

    @worker.handler
    async def handle(record: WorkerRecord) -> None:
        await handled.work(record, output)

    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def fill(bootstrap: str, topic: str, numbers: range) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, b"%d" % (number % KEYS))


def shared(*members: Worker) -> bool:
    """Return whether each member has partitions, and none is in transit."""
    counts = [worker.stats().partitions for worker in members]
    return min(counts) > 0 and sum(counts) == PARTITIONS


@pytest.mark.parametrize("transactional", [False, True], ids=["at-least-once", "transactional"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_come_and_go(
    bootstrap: str,
    admin: Admin,
    topics: Topics,
    group: str,
    protocol: Literal["classic", "consumer"],
    transactional: bool,
) -> None:
    topic, output, letters = await topics(PARTITIONS), await topics(PARTITIONS), await topics()
    await fill(bootstrap, topic, range(COUNT // 2))
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "transactional": transactional,
        "dead_letter": letters,
        "concurrency": 8,
    }
    if protocol == "classic":
        options |= {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    handled = Handled()
    async with member(handled, topic, output, **options) as steady:
        await eventually(lambda: handled.count > 40, "the first member works")
        async with member(handled, topic, output, **options) as guest:
            await eventually(lambda: shared(steady, guest), "the members share the partitions")
            await fill(bootstrap, topic, range(COUNT // 2, COUNT))
            await eventually(lambda: guest.stats().succeeded > 20, "the second member works")
        await eventually(lambda: handled.count >= COUNT - 1, "all records are worked on")
        async with asyncio.timeout(DEADLINE_S):
            while sum((await admin.committed_offsets(group)).values()) < COUNT:
                await asyncio.sleep(0.05)
    expected = {
        b"%d" % key: [number for number in range(key, COUNT, KEYS) if number != REJECTED]
        for key in range(KEYS)
    }
    assert handled.ended == expected
    found = await read_to_the_end(bootstrap, output, isolation="read_committed")
    assert sorted(int(value or b"") for value in found) == [
        number for number in range(COUNT) if number != REJECTED
    ]
    assert await read_to_the_end(bootstrap, letters, isolation="read_committed") == [b"%d" % REJECTED]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_static_member_that_restarts_gets_its_partitions_back(
    bootstrap: str, admin: Admin, topics: Topics, group: str, protocol: Literal["classic", "consumer"]
) -> None:
    topic, output, letters, handled = await topics(PARTITIONS), await topics(), await topics(), Handled()
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "dead_letter": letters,
    }
    if protocol == "classic":
        options |= {"heartbeat_interval_ms": 100, "session_timeout_ms": 30_000}
    steady, restarted = ({**options, "group_instance_id": name} for name in ("steady", "restarted"))

    async def members() -> dict[str | None, set[TopicPartition]]:
        (described,) = await admin.describe_groups([group])
        return {member.instance_id: set(member.partitions) for member in described.members}

    async with member(handled, topic, output, **steady) as other:
        async with member(handled, topic, output, **restarted) as first:
            await eventually(lambda: shared(other, first), "the members share the partitions")
            before = await members()
            await fill(bootstrap, topic, range(COUNT))
            await eventually(lambda: first.stats().succeeded > 20, "the second member works")
        assert await members() == before
        async with member(handled, topic, output, **restarted) as second:
            await eventually(lambda: handled.count >= COUNT - 1, "all records are worked on")
            assert second.stats().succeeded > 0
            assert await members() == before
        assert other.stats().partitions == PARTITIONS // 2
    assert handled.count == COUNT - 1, "no record is worked on twice"


@pytest.mark.parametrize("transactional", [False, True], ids=["at-least-once", "transactional"])
async def test_the_next_worker_skips_finished_records_beyond_a_stuck_one(
    bootstrap: str, admin: Admin, topics: Topics, group: str, transactional: bool
) -> None:
    """The cluster keeps the finished offsets as the metadata of a commit."""
    topic, output = await topics(), await topics()
    await fill(bootstrap, topic, range(30))
    done: list[int] = []

    def worker_of(stuck: int | None, idle_timeout_ms: int | None) -> Worker:
        worker = Worker(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            transactional=transactional,
            drain_s=0.1,
            idle_timeout_ms=idle_timeout_ms,
        )

        @worker.handler
        async def handle(record: WorkerRecord) -> None:
            number = int(record.value)
            if number == stuck:
                await asyncio.sleep(60)
            await record.send(output, record.value)
            done.append(number)
            if stuck is not None and len(done) == 29:
                worker.stop()

        return worker

    async with asyncio.timeout(2 * DEADLINE_S):
        await worker_of(7, None).run()
        await worker_of(None, 700).run()
    assert done[29:] == [7]
    assert sum((await admin.committed_offsets(group)).values()) == 30
    found = await read_to_the_end(bootstrap, output, isolation="read_committed")
    assert sorted(int(value or b"") for value in found) == [*range(30)]
