"""A spool and a real cluster: absent or dying brokers, killed processes, and the records that are read at the end."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ottla.sync
from ottla import (
    Admin,
    Consumer,
    KafkaError,
    LeftInSpool,
    NewTopic,
    Producer,
    SpoolUnusable,
    TopicPartition,
    read_rejected,
)
from ottla.client.spool import delivery as delivery_module
from ottla.testing import LocalCluster

pytestmark = pytest.mark.cluster
CHILD = Path(__file__).with_name("spooling_child.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Return a new topic of two partitions."""
    cluster.heal()
    name = request.node.name.translate({ord("["): "-", ord("]"): None})[:200]
    cluster.create_topic(name, partitions=2)
    return name


async def committed(cluster: LocalCluster, topic: str) -> dict[int, list[bytes]]:
    """Return the values that read-committed consumers see, by partition."""
    found: dict[int, list[bytes]] = {0: [], 1: []}
    async with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        async with asyncio.timeout(60):
            for partition, end in ends.items():
                while await consumer.position(partition) < end:
                    for place, records in (await consumer.getmany(timeout_ms=200)).items():
                        found[place.partition] += [record.value or b"" for record in records]
    return found


def check(found: dict[int, list[bytes]], count: int) -> None:
    """Check that all numbers below `count` are there once, and in order within a partition."""
    assert sorted(int(value) for values in found.values() for value in values) == list(range(count))
    for values in found.values():
        assert values == sorted(values, key=int)


def spooling(cluster: LocalCluster, folder: Path, **options: int) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, spool_dir=folder, **options)


def process(*arguments: str) -> subprocess.Popen[bytes]:
    """Start another Python with this one's module path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, env=environment)


def spool_id(folder: Path) -> str:
    return str(json.loads((folder / "identity").read_bytes().splitlines()[0])["id"])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_broker_that_is_away_at_the_start_and_dies_in_the_middle(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    cluster.kill(1)
    async with spooling(cluster, tmp_path, retry_backoff_max_ms=50) as producer:
        first = await producer.send(topic, b"0", key=b"0")
        await until(lambda: producer.spooled.error)
        assert producer.spooled.records == 1
        await asyncio.to_thread(cluster.restart, 1)
        placed = await first
        assert (placed.topic, placed.offset) == (topic, 0)

        async def send() -> None:
            for number in range(1, 20_000):
                await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
                if number % 100 == 0:
                    await asyncio.sleep(0.001)

        sending = asyncio.create_task(send())
        for _ in range(2):
            await asyncio.sleep(0.05)
            cluster.kill(1)
            await until(lambda: producer.spooled.error or sending.done())
            await asyncio.to_thread(cluster.restart, 1)
        await sending
        async with asyncio.timeout(60):
            await producer.flush()
    check(await committed(cluster, topic), 20_000)


async def test_a_process_that_is_killed_many_times_delivers_each_record_once(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    promised = 0
    for _ in range(8):
        child = process(str(CHILD), cluster.bootstrap_servers, str(tmp_path), topic, str(promised))
        assert child.stdout is not None
        try:
            assert await asyncio.to_thread(child.stdout.readline)
            await asyncio.sleep(chance.random() * 0.4)
        finally:
            child.kill()
            rest = await asyncio.to_thread(child.communicate)
        lines = rest[0].splitlines()
        # Numbering continues after records that were sent and not reported; these are in the spool or in the topic.
        async with spooling(cluster, tmp_path) as producer:
            async with asyncio.timeout(60):
                await producer.flush()
        found = await committed(cluster, topic)
        count = sum(map(len, found.values()))
        check(found, count)
        last = [line for line in lines[:-1] if line]
        assert count > (int(last[-1]) if last else promised), f"seed {seed}"
        promised = count
    assert promised > 100


async def test_killed_again_and_again_before_all_is_delivered(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Each process starts with the previous one's remaining records, and is killed while it delivers them."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    cluster.kill(1)
    async with spooling(cluster, tmp_path) as producer:
        for number in range(60_000):
            await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
    await asyncio.to_thread(cluster.restart, 1)
    code = (
        "import asyncio, sys, ottla\n"
        "async def main():\n"
        "    async with ottla.Producer(bootstrap_servers=sys.argv[1], spool_dir=sys.argv[2]) as producer:\n"
        "        print('up', flush=True)\n"
        "        await producer.flush()\n"
        "asyncio.run(main())\n"
    )
    kills = 0
    for _ in range(12):
        child = process("-c", code, cluster.bootstrap_servers, str(tmp_path))
        assert child.stdout is not None
        await asyncio.to_thread(child.stdout.readline)
        deadline = time.monotonic() + kills * chance.random() * 0.1  # The first has delivered little by then.
        while child.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
        done = child.poll() is not None
        child.kill()
        await asyncio.to_thread(child.communicate)
        if done:
            break
        kills += 1
    print(f"{kills} kills")
    async with spooling(cluster, tmp_path) as producer, asyncio.timeout(60):
        await producer.flush()
    check(await committed(cluster, topic), 60_000)
    assert kills > 0


async def test_the_group_is_gone_and_nothing_was_under_way(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for number in range(3):
            async with spooling(cluster, tmp_path) as producer:
                await producer.send_and_wait(topic, b"%d" % number)
            group = f"ottla-spool-{spool_id(tmp_path)}"
            offsets = await admin.committed_offsets(group)
            assert set(offsets) == {TopicPartition(topic, 0)}
            assert (await admin.delete_groups([group]))[group] is None
    check(await committed(cluster, topic), 3)


async def test_a_topic_that_carried_the_position_is_deleted(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("short-lived", 1, 1)])
        async with spooling(cluster, tmp_path) as producer:
            await producer.send_and_wait(topic, b"0")
            await producer.send_and_wait("short-lived", b"x")
        await admin.delete_topics(["short-lived"])
        async with spooling(cluster, tmp_path) as producer:
            await producer.send_and_wait(topic, b"1")
    check(await committed(cluster, topic), 2)


async def test_what_a_topic_is_too_small_for_is_set_aside(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("small", 1, 1, configs={"max.message.bytes": "1000"})])
    async with spooling(cluster, tmp_path, max_block_ms=1_000) as producer:
        before = await producer.send(topic, b"0", key=b"k")
        fitting = [await producer.send("small", b"%d" % number * 300) for number in range(9)]
        large = await producer.send("small", b"x" * 2_000)
        nowhere = await producer.send("not-there", b"y")
        after = await producer.send(topic, b"1", key=b"k")
        async with asyncio.timeout(60):
            await producer.flush()
        assert (await after).offset > (await before).offset
        offsets = [(await delivery).offset for delivery in fitting]
        assert offsets == sorted(set(offsets))
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await large
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await nowhere
        assert producer.spooled.rejected == 2
    assert sorted(entry.record.topic for entry in read_rejected(tmp_path)) == ["not-there", "small"]
    check(await committed(cluster, topic), 2)


async def test_a_process_that_stood_still_for_longer_than_its_transaction(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Its transaction was aborted and its epoch raised: it goes on, since no other process has delivered from the
    folder.
    """
    async with spooling(cluster, tmp_path) as producer:
        await producer.send_and_wait(topic, b"0", key=b"k")
        other = Producer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"ottla-spool-{spool_id(tmp_path)}"
        )
        async with other:
            pass  # raises the epoch, as a timeout does
        await producer.send_and_wait(topic, b"1", key=b"k")
    check(await committed(cluster, topic), 2)


async def test_other_readers_do_not_wait_while_partitions_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition has no leader, another one too few replicas, and other programs write to the third."""
    monkeypatch.setattr(delivery_module, "ATTEMPT_S", 1.0)
    settings = {"auto.create.topics.enable": "false", "broker.session.timeout.ms": "1000"}
    with LocalCluster(brokers=2, settings=settings) as running:
        servers = running.bootstrap_servers
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.create_topics(
                [
                    NewTopic("led", assignments={0: [1], 1: [2]}),
                    NewTopic("short", assignments={0: [1, 2]}, configs={"min.insync.replicas": "2"}),
                ]
            )
        seen: dict[bytes, float] = {}
        sent: dict[bytes, float] = {}
        copies: list[bytes] = []

        async def read() -> None:
            async with Consumer(
                bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
            ) as consumer:
                consumer.assign([TopicPartition("led", 0)])
                async for record in consumer:
                    copies.append(record.value)
                    seen[record.value] = time.monotonic()

        async def write() -> None:
            async with Producer(bootstrap_servers=servers) as plain:
                for number in itertools.count():
                    sent[b"plain %d" % number] = time.monotonic()
                    await plain.send_and_wait("led", b"plain %d" % number, partition=0)
                    await asyncio.sleep(0.1)

        async with spooling(running, tmp_path) as producer:
            places = [("led", 0), ("short", 0), ("led", 0), ("led", 1)]
            for topic, partition in places:
                await producer.send_and_wait(topic, b"before", partition=partition)
            running.kill(2)
            others = [asyncio.create_task(read()), asyncio.create_task(write())]
            futures = []
            for number in range(40):
                topic, partition = places[number % 4]
                futures.append(await producer.send(topic, b"%d" % number, partition=partition))
            began = time.monotonic()
            await until(lambda: producer.spooled.error)
            assert time.monotonic() - began < 15
            while (
                time.monotonic() - began < 12
            ):  # many transactions of the partition that is short of replicas
                await asyncio.sleep(0.1)
            assert any(name in str(producer.spooled.error) for name in ("short-0", "led-1"))
            held = [seen.get(value, time.monotonic()) - at for value, at in sent.items()]
            assert max(held) < 6, f"transactions kept readers waiting for {max(held):.1f} s"
            await asyncio.to_thread(running.restart, 2)
            async with asyncio.timeout(60):
                await producer.flush()
            offsets = [future.result().offset for future in futures if future.result().topic == "led"]
            assert producer.spooled.error is None
            last = await producer.send_and_wait("led", b"last", partition=0)
            await until(lambda: b"last" in seen)
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        mine = [value for value in copies if not value.startswith(b"plain")]
        wanted = [b"%d" % number for number in range(40) if number % 4 in (0, 2)]
        assert mine == [b"before", b"before", *wanted, b"last"], "each once, and in order"
        assert len(offsets) == 30
        # Two of the forty come before the first for a partition that is away. The chunk that met it was written once
        # more, and each of the others once; markers take offsets, too.
        assert last.offset < len(sent) + 3 * len(mine), "aborted records were not rewritten repeatedly"


def test_without_an_event_loop(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    cluster.kill(1)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "spool_dir": tmp_path}
    calls: list[object] = []
    with ottla.sync.Producer(**options) as producer:
        futures = [producer.send(topic, b"%d" % number, key=b"k") for number in range(100)]
        futures[0].add_done_callback(calls.append)
        assert producer.spooled.records == 100
        producer.sync()
        with pytest.raises(SpoolUnusable):
            ottla.sync.Producer(**options).start()
    with pytest.raises(LeftInSpool):
        futures[0].result()
    assert calls == [futures[0]]
    cluster.restart(1)
    with ottla.sync.Producer(**options) as producer:
        placed = producer.send(topic, b"100", key=b"k").result(30)
        producer.flush(timeout_ms=30_000)
        assert placed.offset == 101  # behind them stands a marker
    check(asyncio.run(committed(cluster, topic)), 101)


CARELESS = """
import sys
import ottla.sync

bootstrap, folder, topic = sys.argv[1:]
producer = ottla.sync.Producer(bootstrap_servers=bootstrap, spool_dir=folder)
producer.start()
for number in range(100):
    producer.send(topic, b"%d" % number, key=b"k")
"""


def test_one_that_was_not_stopped_delivers_at_the_end_of_the_interpreter(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CARELESS, cluster.bootstrap_servers, str(tmp_path), topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.glob("*.spool"))
    check(asyncio.run(committed(cluster, topic)), 100)
