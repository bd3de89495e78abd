"""Compares the start after kill -9, with much data, in Ottla and Apache Kafka.

    python -m benchmarks.restart [FIGURE ...] [--gb N] [--partitions N] [--only ottla|kafka] [--rounds N]
                                 [--record FILE]

FIGURES: broker everything (both without arguments). One broker and one quorum node. The data is 20 GB in 2,000
partitions, unless `--gb` and `--partitions` say otherwise: records of 1 KB in batches of 64 KB, written with acks=1.
Each figure writes it anew, for one cluster at a time, and deletes it afterwards. So a tenth more than `--gb` has to be
free in the folder of temporary files (`TMPDIR`); the benchmark refuses to begin otherwise.

The data is on disk when a process is killed (`sync`), and as much of it in the page cache as memory holds. `broker`
kills the broker, and `everything` kills both processes. A producer waits with a record for each partition. The times
begin when the killed processes are started again. They end with the first acknowledgement, and with those of all
partitions. Each record must have the next offset of its partition, so that no earlier record is missing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import uvloop
from confluent_kafka import KafkaError, Message, Producer

from ottla.client.connections.connection import Connection
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.connections.opening import connect
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.record import encode_batch

from .clusters import Cluster, Node
from .compare import QUICK_RETRY, admin_of, cpu_seconds, new_topic
from .rounds import Figure, Launch, Row, command_line, compare, parsed
from .single_broker import LAUNCHERS

RECORD_BYTES: Final = 1_000
BATCH_RECORDS: Final = 64
BATCH_BYTES: Final = RECORD_BYTES * BATCH_RECORDS
PARTITIONS_AT_ONCE: Final = 16
"""Partitions in a request, which has a batch for each of them."""
IN_FLIGHT: Final = 8
AGAIN_S: Final = 0.1
BY_NAME: Final = 12
"""The last version of Produce that names topics."""
SPARE: Final = 1.1
"""Bytes on disk for a byte of records: frames of records, indexes, and space to spare."""
DEADLINE_S: Final = 900.0


class Load(NamedTuple):
    """The data that the broker has: gigabytes, and partitions."""

    gb: float
    partitions: int

    @property
    def batches(self) -> int:
        """Return the number of batches in each partition."""
        return max(1, round(self.gb * 1e9 / self.partitions / BATCH_BYTES))


def figure(load: Load, choose: Callable[[Cluster], Sequence[Node]], launch: Launch, data: Path) -> Row:
    """Write the data, and measure a start of the chosen processes."""
    refuse_without_room(load)
    with launch(data) as cluster:
        topic = new_topic(cluster, admin_of(cluster), load.partitions)
        uvloop.run(fill(cluster, topic, load))
        os.sync()
        return restarted(cluster, topic, load, choose(cluster))


def refuse_without_room(load: Load) -> None:
    """End the program if the data does not fit on the disk."""
    folder = tempfile.gettempdir()
    needed, free = load.gb * SPARE, shutil.disk_usage(folder).free / 1e9
    if free < needed:
        raise SystemExit(
            f"{load.gb:g} GB of records need {needed:.1f} GB of disk, and {folder} has {free:.1f} GB free. "
            "Choose a smaller --gb, or a folder on another disk: TMPDIR=FOLDER python -m benchmarks.restart"
        )


async def fill(cluster: Cluster, topic: str, load: Load) -> None:
    """Write the same batch again and again, to all partitions in turn."""
    batch = encode_batch([(None, b"x" * RECORD_BYTES, int(time.time() * 1e3))] * BATCH_RECORDS)
    (broker,) = cluster.brokers
    connection = await connect(BrokerAddress(broker.id, "127.0.0.1", broker.port), client_id="benchmark")
    turns = asyncio.Semaphore(IN_FLIGHT)

    async def write(indexes: Iterable[int]) -> None:
        async with turns:
            while indexes := await _refused(connection, topic, indexes, batch):
                await asyncio.sleep(AGAIN_S)

    with closing(connection):
        for _ in range(load.batches):
            async with asyncio.TaskGroup() as writing:
                for first in range(0, load.partitions, PARTITIONS_AT_ONCE):
                    indexes = range(first, min(load.partitions, first + PARTITIONS_AT_ONCE))
                    writing.create_task(write(indexes))


async def _refused(connection: Connection, topic: str, indexes: Iterable[int], batch: bytes) -> list[int]:
    """Write a batch to each of these partitions. Return the partitions that have no leader at the moment, as happens on
    a busy machine.
    """
    parts = [PartitionProduceData(index=index, records=batch) for index in indexes]
    data = [TopicProduceData(name=topic, partition_data=parts)]
    answer = await connection.request(
        ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), version=BY_NAME
    )
    codes = {part.index: part.error_code for topic in answer.responses for part in topic.partition_responses}
    if wrong := set(codes.values()) - {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}:
        raise RuntimeError(f"a partition did not take the data: {ErrorCode.of(wrong.pop()).name}")
    return [index for index, code in codes.items() if code != ErrorCode.NONE]


def restarted(cluster: Cluster, topic: str, load: Load, nodes: Sequence[Node]) -> Row:
    """Kill the nodes and start them again; return the times until partitions take a record."""
    expected = load.batches * BATCH_RECORDS
    taken_s: list[float] = []
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None or message.offset() != expected:
            failures.append(f"partition {message.partition()}: {error or message.offset()}")
        taken_s.append(time.monotonic())

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "message.timeout.ms": int(DEADLINE_S * 1e3),
            "log_level": 0,
            **QUICK_RETRY,
        }
    )
    producer.list_topics(topic, 30)
    for node in nodes:
        cluster.kill(node)
    began_s = time.monotonic()
    for node in nodes:
        cluster.restart(node)
    for index in range(load.partitions):
        producer.produce(topic, b"after", partition=index, on_delivery=delivered)
    while len(taken_s) < load.partitions:
        producer.poll(0.1)
        if time.monotonic() > began_s + DEADLINE_S:
            raise TimeoutError(f"{cluster.name}: {len(taken_s)} partitions took a record in {DEADLINE_S:g} s")
    if failures:
        raise RuntimeError(f"{cluster.name}: {failures[:3]}; the offset should be {expected}")
    return {
        "to the first write, s": taken_s[0] - began_s,
        "to a write in each partition, s": taken_s[-1] - began_s,
        "CPU of the broker meanwhile, s": cpu_seconds(cluster.brokers),
    }


CHOICES: Final[dict[str, Callable[[Cluster], Sequence[Node]]]] = {
    "broker": lambda cluster: cluster.brokers,
    "everything": lambda cluster: [*cluster.quorum, *cluster.brokers],
}


def main() -> int:
    """Run the benchmark; see the module's documentation."""
    parser = command_line(__doc__, CHOICES, rounds=1)
    parser.add_argument("--gb", type=float, default=20.0, help="of records (20)")
    parser.add_argument("--partitions", type=int, default=2_000)
    args = parsed(parser, CHOICES)
    load = Load(args.gb, args.partitions)
    refuse_without_room(load)
    figures: dict[str, Figure] = {name: partial(figure, load, choose) for name, choose in CHOICES.items()}
    compare(args, figures, LAUNCHERS, load=load._asdict())
    return 0


if __name__ == "__main__":
    sys.exit(main())
