"""A poisoned batch in a real cluster's log: every reader reports its offset, and skips it on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

import ottla.sync
from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.failures import UnreadableRecords
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from tests.cluster import RunningCluster, running_cluster
from tests.commands import run_ottla
from tests.poisoned import poison

pytestmark = pytest.mark.cluster

GOOD = [b"a0", b"a1", b"a2", b"c0", b"c1", b"c2"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    directory = tmp_path_factory.mktemp("poisoned")
    with running_cluster(
        directory, quorum=1, brokers=1, settings=settings, arguments=("--combined",)
    ) as running:
        yield running


@pytest.fixture
async def topic(cluster: RunningCluster, request: pytest.FixtureRequest) -> str:
    """Return a topic of three batches with three records each, of which the middle one is poisoned."""
    name = str(request.node.name)
    async with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=1_000) as producer,
    ):
        await admin.create_topics([NewTopic(name, 1, 1)])
        for batch in b"abc":
            for number in range(3):
                await producer.send(name, b"%c%d" % (batch, number), timestamp_ms=1_000 + number)
            await producer.flush()
    poison(cluster.directory, name, 3)
    return name


def reader(cluster: RunningCluster, topic: str, group: str | None = None) -> Consumer:
    return Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id=group)


def check(error: UnreadableRecords, topic: str) -> None:
    assert (error.partition, error.offset, error.next_offset) == (TopicPartition(topic, 0), 3, 6)
    assert f"{topic}-0: the batch at offset 3 cannot be read" in str(error)


async def test_getmany_in_a_group(cluster: RunningCluster, topic: str) -> None:
    async with reader(cluster, topic, topic) as consumer, asyncio.timeout(30):
        found: list[bytes] = []
        raised = 0
        while len(found) < 6:
            try:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [record.value for record in records]
            except UnreadableRecords as error:
                check(error, topic)
                assert found == GOOD[:3]
                raised += 1
                if raised == 3:
                    consumer.seek(error.partition, error.next_offset)
        assert (found, raised) == (GOOD, 3)
        await consumer.commit()
        assert await consumer.committed(TopicPartition(topic, 0)) == 9


async def test_iteration_and_getone(cluster: RunningCluster, topic: str) -> None:
    async with reader(cluster, topic) as consumer, asyncio.timeout(30):
        found = []
        with pytest.raises(UnreadableRecords) as caught:
            while True:
                found.append((await anext(consumer)).value)
        check(caught.value, topic)
        with pytest.raises(UnreadableRecords):
            await consumer.getone()
        consumer.seek(caught.value.partition, caught.value.next_offset)
        found += [(await consumer.getone()).value for _ in range(3)]
        assert found == GOOD


async def test_columns(cluster: RunningCluster, topic: str) -> None:
    pytest.importorskip("pyarrow")
    async with reader(cluster, topic) as consumer, asyncio.timeout(30):
        first = await consumer.fetch_arrow(timeout_ms=None)
        with pytest.raises(UnreadableRecords) as caught:
            await consumer.fetch_arrow(timeout_ms=None)
        check(caught.value, topic)
        consumer.seek(caught.value.partition, caught.value.next_offset)
        second = await consumer.fetch_arrow(timeout_ms=None)
        assert first["value"].to_pylist() + second["value"].to_pylist() == GOOD


def test_blocking_reads(cluster: RunningCluster, topic: str) -> None:
    with ottla.sync.Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        found = []
        with pytest.raises(UnreadableRecords) as caught:
            while True:
                found.append(next(consumer).value)
        check(caught.value, topic)
        consumer.seek(caught.value.partition, caught.value.next_offset)
        found += [consumer.getone(timeout_ms=10_000).value for _ in range(3)]
        assert found == GOOD


async def test_whole_transactions(cluster: RunningCluster) -> None:
    """The other records of the poisoned batch's transaction are readable."""
    topic = "whole-transactions"
    here = TopicPartition(topic, 0)
    async with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap, linger_ms=1_000) as plain,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer,
    ):
        await admin.create_topics([NewTopic(topic, 1, 1)])
        for number in range(2):
            await plain.send_and_wait(topic, b"plain %d" % number)  # offsets 0 and 1
        for number in range(3):
            async with producer.transaction():  # offsets 2 to 4, 5 to 7, 8 to 10, each with its marker
                await producer.send_and_wait(topic, b"first of %d" % number)
                await producer.send_and_wait(topic, b"second of %d" % number)
    poison(cluster.directory, topic, 0)
    poison(cluster.directory, topic, 6)

    async def read(passing_over: list[UnreadableRecords]) -> list[bytes]:
        found: list[bytes] = []
        async with (
            asyncio.timeout(30),
            reader(cluster, topic) as consumer,
            aclosing(consumer.transactions(passing_over=passing_over)) as transactions,
        ):
            async for transaction in transactions:
                found += [record.value for record in transaction.records[here]]
                if b"second of 2" in found:
                    break
        return found

    errors: list[UnreadableRecords] = []
    for offset in (0, 6):
        with pytest.raises(UnreadableRecords, match=r"transactions\(passing_over=\[error\]\)") as caught:
            await read(errors)
        assert (caught.value.partition, caught.value.offset) == (here, offset)
        errors.append(caught.value)
    left = [b"plain 1", b"first of 0", b"second of 0", b"first of 1", b"first of 2", b"second of 2"]
    assert sorted(await read(errors)) == sorted(left)


def consume(cluster: RunningCluster, *arguments: str) -> tuple[int, str, str]:
    done = run_ottla("consume", "-b", cluster.bootstrap, *arguments)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line(cluster: RunningCluster, topic: str) -> None:
    code, out, problem = consume(cluster, topic, "-e")
    assert (code, out.split()) == (1, ["a0", "a1", "a2"])
    assert f"{topic}-0: the batch at offset 3 cannot be read" in problem
    way_on = f"ottla consume {topic} -p 0 -o 6"
    assert way_on in problem
    assert consume(cluster, *way_on.split()[2:], "-e") == (0, "c0\nc1\nc2\n", "")
    code, _, problem = consume(cluster, topic, "-g", topic, "-c", "9")
    assert code == 1
    assert f"ottla group seek {topic} --topic {topic}:0 --to 6" in problem


async def test_it_is_found_by_time(cluster: RunningCluster, topic: str) -> None:
    """Compaction may have removed records of a batch: then its records must be read, and cannot be."""
    here = TopicPartition(topic, 0)
    poison(cluster.directory, topic, 0, "fewer records than there are")
    async with reader(cluster, topic) as consumer, asyncio.timeout(30):
        assert await consumer.offsets_for_times({here: 1_002}) == {here: 0}
        assert await consumer.offsets_for_times({here: 1_003}) == {here: None}
