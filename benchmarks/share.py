"""Compares share groups in Ottla and Apache Kafka: records a second, one record at a time, and a leader's death.

    python -m benchmarks.share [FIGURE ...] [--only ottla|kafka] [--rounds N] [--record FILE]

FIGURES: throughput one-record failover (all without arguments). Three brokers, three replicas, states with the default
50 partitions and three replicas.

- throughput: four processes with librdkafka's share consumer take and accept 500,000 records of 1 KB of six partitions.
  The first fifth is a warm-up, and the rate counts up to three fifths. Afterwards the first partitions have no more
  records, and a consumer of librdkafka waits at the leaders of these, one leader at a time. CPU is that of the brokers,
  for a GB of taken records.
- one-record: a connection takes one record and accepts it, again and again (ShareFetch with the record limit 1, then
  ShareAcknowledge), 2,000 times after 500 for warm-up.
- failover: a connection holds records when their leader is killed. The time until the next leader delivers one of them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Final

import uvloop
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.client.connections.cluster import Cluster as Client
from ottla.client.consumer import Consumer
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    AcquireMode,
    FetchPartition,
    FetchTopic,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)

from .clusters import Cluster
from .compare import admin_of, cpu_seconds, new_topic, wait_in_sync, write_to
from .rounds import Figure, Goal, Row, main, percentile, running

CONSUMERS: Final = 4
PARTITIONS: Final = 6
RECORDS: Final = 500_000
RECORD_BYTES: Final = 1024
WARM_SHARE, LAST_SHARE = 0.2, 0.6
"""The shares of the taken records between which the rate is measured."""
WARM_UP, TAKES = 500, 2_000
KILLS: Final = 6
VERSION: Final = 2
ACCEPT: Final = 1
DEADLINE_S: Final = 300.0
GOALS = {
    "records/s": Goal(2, is_least=True),
    "broker CPU s/GB": Goal(0.5, is_least=False),
    "p99, ms": Goal(0.5, is_least=False),
}


# ---------------------------------------------------------------- throughput


def throughput(cluster: Cluster) -> Row:
    """Measure four share consumers."""
    admin = admin_of(cluster)
    topic = new_topic(cluster, admin, PARTITIONS)
    write_to(cluster, topic, RECORDS * RECORD_BYTES / 1e9, {"batch.size": "65536"}, RECORD_BYTES)
    written = _written(cluster, topic)
    with _consumers(cluster, _group(cluster), topic, written) as taken:
        _wait(taken, int(written * WARM_SHARE))
        first, from_s, cpu_s = taken.value, time.monotonic(), cpu_seconds(cluster.brokers)
        _wait(taken, int(written * LAST_SHARE))
        elapsed_s, cpu_s = time.monotonic() - from_s, cpu_seconds(cluster.brokers) - cpu_s
        count = taken.value - first
        _wait(taken, written)
    return {
        "records/s": count / elapsed_s,
        "broker CPU s/GB": cpu_s / (count * RECORD_BYTES / 1e9),
    }


def _written(cluster: Cluster, topic: str) -> int:
    """Return the number of records in a topic."""

    async def ends() -> int:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        async with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
            return sum((await consumer.end_offsets(places)).values())

    return asyncio.run(ends())


@contextmanager
def _consumers(cluster: Cluster, group: str, topic: str, count: int) -> Iterator[Synchronized[int]]:
    """Run the consumers in processes of their own. The yielded number is that of the records they have taken."""
    spawning = multiprocessing.get_context("spawn")
    taken = spawning.Value("q", 0)
    processes = [
        spawning.Process(target=_consume, args=(cluster.bootstrap, group, topic, count, taken))
        for _ in range(CONSUMERS)
    ]
    for process in processes:
        process.start()
    try:
        yield taken
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _consume(bootstrap: str, group: str, topic: str, count: int, taken: Synchronized[int]) -> None:
    """Take and accept records until all have been taken."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "implicit",
            "log_level": 3,
        }
    )
    consumer.subscribe([topic])
    while taken.value < count:
        records = consumer.poll(1.0)
        if records:
            with taken.get_lock():
                taken.value += len(records)
    consumer.close()


def _wait(taken: Synchronized[int], count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while taken.value < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{taken.value} of {count} records within {DEADLINE_S:.0f} s")
        time.sleep(0.005)


def _group(cluster: Cluster) -> str:
    """Return the name of a new group that begins at the first record."""
    name = f"bench-{uuid.uuid4().hex[:10]}"
    settings: Mapping[str, str] = {"share.auto.offset.reset": "earliest"}
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=entries)
    admin = admin_of(cluster)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    return name


# ---------------------------------------------------------------- one record


class Taker:
    """The share session of a member at the leader of the only partition of a topic."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self._client, self._group, self._topic = client, group, topic
        self._member_id = str(uuid.uuid4())
        self._epoch = 0
        self._connection: Any = None
        self._topic_id = b""

    async def connect(self) -> None:
        """Connect to the leader, and begin a new session there. Raises KafkaError."""
        await self._client.refresh([self._topic])
        topic = self._client.metadata.topics[self._topic]
        self._topic_id, self._epoch = topic.id, 0
        self._connection = await self._client.connection(topic.partitions[0].leader)

    async def take(self, count: int, wait_ms: int = 500) -> PartitionData | None:
        """Take records, at most `count`. Raises KafkaError."""
        opening = [FetchTopic(topic_id=self._topic_id, partitions=[FetchPartition(partition_index=0)])]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=count,
            batch_size=count,
            share_acquire_mode=AcquireMode.RECORD_LIMIT,
            topics=opening if self._epoch == 0 else [],
        )
        response = await self._connection.request(request, version=VERSION)
        self._check(response.error_code, response.error_message)
        for topic in response.responses:
            for row in topic.partitions:
                self._check(row.error_code, row.error_message, advances=False)
                if row.acquired_records:
                    return row  # type: ignore[no-any-return]
        return None

    async def accept(self, row: PartitionData) -> None:
        """Accept the records of an answer. Raises KafkaError."""
        batches = [
            AcknowledgementBatch(
                first_offset=found.first_offset, last_offset=found.last_offset, acknowledge_types=[ACCEPT]
            )
            for found in row.acquired_records
        ]
        part = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=[part])],
        )
        response = await self._connection.request(request, version=VERSION)
        self._check(response.error_code, response.error_message)
        (outcome,) = response.responses[0].partitions
        self._check(outcome.error_code, outcome.error_message, advances=False)

    def _check(self, code: int, message: str | None, *, advances: bool = True) -> None:
        if code:
            raise KafkaError(ErrorCode(code), message)
        self._epoch += advances


def one_record(cluster: Cluster) -> Row:
    """Measure a connection that takes and accepts one record at a time."""
    topic = new_topic(cluster, admin_of(cluster), 1)
    write_to(cluster, topic, 2 * (WARM_UP + TAKES) * RECORD_BYTES / 1e9, {"batch.num.messages": "10"})
    took_s = uvloop.run(_takes(cluster, _joined(cluster, topic), topic))
    return {f"p{p}, ms": percentile(took_s, p) * 1e3 for p in (50, 99)}


async def _takes(cluster: Cluster, group: str, topic: str) -> list[float]:
    took_s: list[float] = []
    async with Client(cluster.bootstrap) as client:
        taker = Taker(client, group, topic)
        await taker.connect()
        while len(took_s) < WARM_UP + TAKES:
            began_s = time.perf_counter()
            row = await taker.take(1)
            if row is not None:
                await taker.accept(row)
                took_s.append(time.perf_counter() - began_s)
    return took_s[WARM_UP:]


def _joined(cluster: Cluster, topic: str) -> str:
    """Return a group of which a member has taken records of the topic, so that its state is there."""
    group = _group(cluster)
    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 3})
    consumer.subscribe([topic])
    deadline = time.monotonic() + DEADLINE_S
    while not consumer.poll(0.5):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{cluster.name}: no record for a member of {group}")
    consumer.close()
    return group


# ---------------------------------------------------------------- failover


def failover(cluster: Cluster) -> Row:
    """Kill leaders that have locked records, and measure the time to their next delivery."""
    admin = admin_of(cluster)
    topic = new_topic(cluster, admin, 1)
    write_to(cluster, topic, 20_000 * RECORD_BYTES / 1e9, {"batch.num.messages": "10"})
    group = _joined(cluster, topic)
    took_s = []
    for _ in range(KILLS):
        wait_in_sync(admin, topic, 1, 3)
        time.sleep(1.5)
        leader = cluster.broker(admin.list_topics(topic, 30).topics[topic].partitions[0].leader)
        took_s.append(asyncio.run(_redelivered(cluster, group, topic, partial(cluster.kill, leader))))
        cluster.restart(leader)
    return {
        "first redelivery p50, ms": statistics.median(took_s) * 1e3,
        "first redelivery worst, ms": max(took_s) * 1e3,
    }


async def _redelivered(cluster: Cluster, group: str, topic: str, kill: Any) -> float:
    """Hold records, kill their leader, and return the seconds until one of them is delivered."""
    async with Client(cluster.bootstrap) as client:
        taker = Taker(client, group, topic)
        row = None
        while row is None:
            row = await _attempt(taker, 100)
        held = {found.first_offset for found in row.acquired_records}
        began_s = time.perf_counter()
        kill()
        taker = Taker(client, group, topic)
        while time.perf_counter() < began_s + DEADLINE_S:
            again = await _attempt(taker, 100)
            if again is not None and held & {found.first_offset for found in again.acquired_records}:
                took_s = time.perf_counter() - began_s
                await taker.accept(again)
                return took_s
    raise TimeoutError(f"{cluster.name}: no redelivery within {DEADLINE_S:.0f} s of a kill")


async def _attempt(taker: Taker, count: int) -> PartitionData | None:
    """Take records in a new session; None if there is no leader yet."""
    try:
        await taker.connect()
        return await taker.take(count)
    except (KafkaError, KeyError):
        await asyncio.sleep(0.01)
        return None


FIGURES: dict[str, Figure] = {
    "throughput": running(throughput),
    "one-record": running(one_record),
    "failover": running(failover),
}

if __name__ == "__main__":
    sys.exit(main(__doc__, FIGURES, rounds=2, goals=GOALS))
