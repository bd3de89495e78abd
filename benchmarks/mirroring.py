"""Compares Ottla's mirrors with MirrorMaker 2: copying a backlog, the lag of copies, and a promotion.

    python -m benchmarks.mirroring [FIGURE ...] [--only ottla|kafka] [--rounds N] [--json] [--record FILE]

FIGURES: backlog lag from-ottla (all of them without arguments, some six minutes). The source is Apache Kafka, and in
`from-ottla` Ottla. `ottla` is a mirror of Ottla, and `kafka` is MirrorMaker 2 with Apache Kafka as its target. Source
and target have one broker and one quorum node each, and topics one replica.

The counted CPU is that of the copying processes: the target's broker, and MirrorMaker's process. A backlog is timed
from its first third on, when the JVM has compiled its code.

A thread that waits for a processor copies nothing meanwhile. So the lag is shown with the longest such wait: a stall of
the same length was caused by the machine.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla import Admin
from tests.programs.mirroring import MIRROR

from .clusters import Cluster, Node
from .compare import admin_of, cpu_seconds, new_topic, one_by_one, steady_writer, write_to
from .kafka import JVM_FLAGS
from .rounds import Figure, Goal, Launch, Row, main, percentile
from .single_broker import LAUNCHERS, kafka, ottla

PARTITIONS = 6
GIGABYTES, RECORD_BYTES = 1.0, 1024
TOPICS = "bench-.*"
NAME = "bench"
PER_SECOND = 1_000
WARM_S, MEASURED_S = 15.0, 15.0
DEADLINE_S = 120.0
LOOK_EVERY_S = 0.1
STAMPED = {"message.timestamp.type": "LogAppendTime"}
"""Topic setting: the source stamps records when it appends them, in milliseconds. Copies keep the timestamp."""
GOALS = {"MB per CPU s": Goal(3, is_least=True)}


# ---------------------------------------------------------------- copying processes


@contextmanager
def copying(
    source: Cluster, target: Cluster, is_ottla: bool, folder: Path, topics: str = TOPICS
) -> Iterator[list[Node]]:
    """Let the target copy the topics that match a pattern; yield the copying processes."""
    if is_ottla:
        asyncio.run(_create_mirror(source, target, topics))
        yield target.brokers
        return
    properties = folder / "mirror-maker.properties"
    properties.write_text("".join(f"{k} = {v}\n" for k, v in _mirror_maker(source, target, topics).items()))
    argv = ["java", *JVM_FLAGS, "-cp", f"{MIRROR.folder}/*", "org.apache.kafka.connect.mirror.MirrorMaker"]
    with (folder / "mirror-maker.log").open("wb") as log:
        process = subprocess.Popen([*argv, str(properties)], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield [*target.brokers, Node(0, 0, process.pid, argv, str(folder), dict(os.environ))]
    finally:
        process.kill()
        process.wait()


async def _create_mirror(source: Cluster, target: Cluster, topics: str) -> None:
    async with Admin(bootstrap_servers=target.bootstrap) as admin:
        await admin.create_mirror(NAME, source=source.bootstrap, topics=topics)


def _mirror_maker(source: Cluster, target: Cluster, topics: str) -> dict[str, str]:
    """Return MirrorMaker's settings: names are kept, batches and fetches are as large as those of Ottla's mirror, and
    there is a task for each core.
    """
    factors = ("replication", "checkpoints.topic.replication", "heartbeats.topic.replication")
    return {
        "clusters": "from,to",
        "from.bootstrap.servers": source.bootstrap,
        "to.bootstrap.servers": target.bootstrap,
        "from->to.enabled": "true",
        "to->from.enabled": "false",
        "from->to.topics": topics,
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "tasks.max": "2",
        "refresh.topics.interval.seconds": "2",
        "plugin.discovery": "service_load",
        "from.consumer.max.poll.records": "10000",
        "from.consumer.max.partition.fetch.bytes": str(4 << 20),
        "to.producer.batch.size": str(256 << 10),
        "to.producer.buffer.memory": str(64 << 20),
        **{f"{factor}.factor": "1" for factor in (*factors, "offset-syncs.topic.replication")},
        **{f"{store}.storage.replication.factor": "1" for store in ("config", "offset", "status")},
    }


# ---------------------------------------------------------------- figures


def backlog(launch: Launch, data: Path, *, from_kafka: bool = True) -> Row:
    """Copy 1 KB records in six partitions, which are written before copying begins."""
    with (kafka if from_kafka else ottla)(data / "source") as source:
        topic = new_topic(source, admin_of(source), PARTITIONS)
        write_to(source, topic, GIGABYTES, {"acks": "1"}, RECORD_BYTES)
        total = length(admin_of(source), topic)
        with (
            launch(data / "target") as target,
            copying(source, target, launch is ottla, data) as workers,
        ):
            admin = admin_of(target)
            begun_at = copied(admin, topic, total // 3)
            start, before, asked_before = time.monotonic(), cpu_seconds(workers), cpu_seconds(source.brokers)
            ended_at = copied(admin, topic, total)
            elapsed = time.monotonic() - start
            cpu, asked = cpu_seconds(workers) - before, cpu_seconds(source.brokers) - asked_before
    megabytes = (ended_at - begun_at) * RECORD_BYTES / 1e6
    return {
        "MB/s": megabytes / elapsed,
        "CPU s/GB": cpu / megabytes * 1e3,
        "MB per CPU s": megabytes / cpu,
        "CPU s/GB of the source": asked / megabytes * 1e3,
    }


def length(admin: AdminClient, topic: str, partitions: int = PARTITIONS) -> int:
    """Return the number of records of a topic; 0 while it does not exist."""
    places = dict.fromkeys(
        [TopicPartition(topic, partition) for partition in range(partitions)], OffsetSpec.latest()
    )
    try:
        return sum(answer.result(10).offset for answer in admin.list_offsets(places).values())
    except (KafkaException, TimeoutError):
        return 0


def copied(admin: AdminClient, topic: str, goal: int) -> int:
    """Wait until `goal` records are copied; return the number at that time."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := length(admin, topic)) < goal:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found:,} of {goal:,} records were copied within {DEADLINE_S:g} s")
        time.sleep(0.02)
    return found


def lag(launch: Launch, data: Path) -> Row:
    """Measure the lag of a thousand records of 256 B a second: from the log of the source to a consumer of the target.

    Then a mirror of Ottla is promoted.
    """
    with (
        kafka(data / "source") as source,
        launch(data / "target") as target,
        copying(source, target, launch is ottla, data) as workers,
    ):
        topic = new_topic(source, admin_of(source), PARTITIONS, settings=STAMPED)
        with steady_writer(source, topic, PER_SECOND):
            copied(admin_of(target), topic, 1)
            with delays(target, topic) as seen:
                time.sleep(WARM_S)
                seen.clear()
                before = cpu_seconds(workers)
                with waits_for_a_processor(workers) as waits:
                    time.sleep(MEASURED_S)
                cpu = cpu_seconds(workers) - before
                found = list(seen)
            row = {f"p{percent}, ms": percentile(found, percent) * 1e3 for percent in (50, 99)}
            row |= {"worst, ms": max(found) * 1e3, "CPU, % of a core": cpu / MEASURED_S * 100}
            row["longest wait for a processor, ms"] = max(waits, default=0.0) * 1e3
            return row | asyncio.run(promotion(target, topic)) if launch is ottla else row


@contextmanager
def delays(cluster: Cluster, topic: str) -> Iterator[list[float]]:
    """Yield a growing list of seconds from the source's timestamp of records until a consumer here has them."""
    seen: list[float] = []
    stop = Event()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, OFFSET_END) for partition in range(PARTITIONS)])

    def read() -> None:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.append(time.time() - message.timestamp()[1] / 1e3)

    thread = Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        consumer.close()


@contextmanager
def waits_for_a_processor(nodes: Sequence[Node]) -> Iterator[list[float]]:
    """Yield a growing list of seconds that runnable threads of these processes waited for a processor.

    The kernel counts a wait when it ends.
    """
    waits: list[float] = []
    stop = Event()

    def look() -> None:
        known: dict[Path, int] = {}
        while not stop.wait(LOOK_EVERY_S):
            for path in (
                path for node in nodes for path in Path(f"/proc/{node.pid}/task").glob("*/schedstat")
            ):
                try:
                    waited_ns = int(path.read_text().split()[1])
                except (OSError, IndexError):
                    continue  # the thread has ended
                waits.append((waited_ns - known.get(path, waited_ns)) / 1e9)
                known[path] = waited_ns

    thread = Thread(target=look)
    thread.start()
    try:
        yield waits
    finally:
        stop.set()
        thread.join()


async def promotion(target: Cluster, topic: str) -> Row:
    """Promote the mirror while the source is written to: time to the answer, and until each partition accepted a
    record.
    """
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, 30)
    async with Admin(bootstrap_servers=target.bootstrap) as admin:
        await admin.describe_mirrors([NAME])
        start = time.monotonic()
        await admin.promote_mirror(NAME)
        told = time.monotonic() - start
        for partition in range(PARTITIONS):
            one_by_one(producer, topic, b"first", 1, [partition])
        return {"promoted, s": told, "each partition written to, s": time.monotonic() - start}


from_ottla: Callable[[Launch, Path], Row] = partial(backlog, from_kafka=False)

FIGURES: dict[str, Figure] = {"backlog": backlog, "lag": lag, "from-ottla": from_ottla}


if __name__ == "__main__":
    sys.exit(main(__doc__, FIGURES, rounds=1, launchers=LAUNCHERS, goals=GOALS))
