"""Compares Ottla and Apache Kafka in one run, under one load: start-up, memory, throughput, latency, failover.

    python -m benchmarks.compare [FIGURE ...] [--only ottla|kafka] [--rounds N] [--record FILE]

FIGURES: cold memory latency end-to-end throughput codecs failover (all of them without arguments). The load comes from
confluent-kafka (librdkafka) on both sides. Rounds alternate between the two clusters, so that a machine with varying
speed favours neither; medians are shown. `--record FILE` appends the readings as JSON lines.

Throughput and codecs write into free pages that were in use shortly before (`touch_free_pages` explains why), as many
as all brokers need. So 3.3 GB of memory have to be free.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .clusters import Cluster, Node
from .cpu import cpu_s
from .reference_runs import touch_free_pages
from .rounds import Figure, Launch, Row, main, percentile, running

QUICK_RETRY = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 10,
}
CHUNK_BYTES, QUEUED_BYTES = 204_800, 32_768_000
"""Bytes that a producer is given at a time, and its limit of unacknowledged bytes."""
SPARE_PAGES = 1.1
"""Pages to touch for each page that the records fill: indexes and sockets need some, too."""
SEVERAL = 6
"""Number of partitions of a topic with several."""
PACED_S, PACED_WARM, PACED = 0.005, 1_000, 2_000
"""Seconds between paced records, the number of warm-up records, and the number of measured records."""


# ---------------------------------------------------------------- readings of processes


def resident_mb(nodes: Sequence[Node]) -> float:
    """Return the largest resident set among `nodes`, in MB."""
    sizes = []
    for node in nodes:
        pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
        sizes.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
    return max(sizes)


def cpu_seconds(nodes: Sequence[Node]) -> float:
    return sum(cpu_s(node.pid) for node in nodes)


def json_like(size: int) -> bytes:
    """Return fixed text that compresses roughly by half."""
    seeded = random.Random(7)
    text = ""
    while len(text) < size:
        text += json.dumps({"id": seeded.getrandbits(40), "event": seeded.choice(["click", "view", "buy"])})
    return text[:size].encode()


# ---------------------------------------------------------------- small client helpers


def admin_of(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **QUICK_RETRY})


def new_topic(
    cluster: Cluster,
    admin: AdminClient,
    partitions: int,
    replicas: int = 3,
    settings: Mapping[str, str] | None = None,
) -> str:
    """Create a topic, with one replica on each of up to `replicas` brokers, and wait until all replicas are in sync."""
    name = f"bench-{random.getrandbits(40):x}"
    factor = min(replicas, len(cluster.brokers))
    admin.create_topics([NewTopic(name, partitions, factor, config=dict(settings or {}))])[name].result(60)
    wait_in_sync(admin, name, partitions, factor)
    return name


def wait_in_sync(admin: AdminClient, topic: str, partitions: int, factor: int) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, 30).topics[topic].partitions.values()
        if len(found) == partitions and all(p.leader >= 0 and len(p.isrs) >= factor for p in found):
            return
        time.sleep(0.02)
    raise TimeoutError(f"{topic} is not in sync")


def one_by_one(
    producer: Producer, topic: str, value: bytes, count: int, partitions: Sequence[int] = (0,)
) -> list[float]:
    """Return seconds from produce() to the delivery report, with one record in flight, to the partitions in turn."""
    done: list[float] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        done.append(time.perf_counter())

    took = []
    for n in range(count):
        start = time.perf_counter()
        producer.produce(topic, value, partition=partitions[n % len(partitions)], on_delivery=delivered)
        while len(done) <= n:
            producer.poll(1)
        took.append(done[n] - start)
    return took


def until_consumed(
    cluster: Cluster, value: bytes, warm: int, count: int, every_s: float = 0.0
) -> list[float]:
    """Return seconds from produce() until a waiting consumer has the record.

    Replication factor 3, acks=all, one record in flight, at least `every_s` apart. The first `warm` records are not
    counted.
    """
    topic = new_topic(cluster, admin_of(cluster), 1)
    servers = {"bootstrap.servers": cluster.bootstrap}
    producer = Producer({**servers, "linger.ms": 0, "acks": "all"})
    consumer = Consumer({**servers, "group.id": "waiting", "enable.auto.commit": False})
    one_by_one(producer, topic, value, 1)
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    consumer.poll(2)
    took_s = []
    for _ in range(warm + count):
        start = time.perf_counter()
        producer.produce(topic, value, partition=0)
        while (message := consumer.poll(10)) is None:
            if time.perf_counter() > start + 60:
                raise TimeoutError(f"{cluster.name}: a record did not arrive within 60 s")
        if (error := message.error()) is not None:
            raise RuntimeError(f"{cluster.name}: {error}")
        took_s.append(time.perf_counter() - start)
        producer.poll(max(0.0, start + every_s - time.perf_counter()))
    consumer.close()
    return took_s[warm:]


# ---------------------------------------------------------------- figures


def cold(launch: Launch, data: Path) -> Row:
    """Measure from an empty folder to the first acks=all record in a topic of replication factor 3."""
    start = time.monotonic()
    with launch(data) as cluster:
        up = time.monotonic()
        admin = admin_of(cluster)
        topic = f"bench-{random.getrandbits(40):x}"
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, **QUICK_RETRY})
        one_by_one(producer, topic, b"first", 1)
        return {"to cluster up, s": up - start, "to first record, s": time.monotonic() - start}


def memory(cluster: Cluster) -> Row:
    """Measure the resident memory of the largest broker and quorum node, idle after the start."""
    time.sleep(5)
    return {
        "idle broker, MB": resident_mb(cluster.brokers),
        "idle quorum node, MB": resident_mb(cluster.quorum),
    }


def latency(cluster: Cluster) -> Row:
    """Measure 1 KB records, one in flight, acks=all, replication factor 3, and the brokers' CPU for each.

    With one partition, and with several.
    """
    row: Row = {}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": "all"})
    value = json_like(1024)
    for partitions in (1, SEVERAL):
        topic = new_topic(cluster, admin_of(cluster), partitions)
        one_by_one(producer, topic, value, 10_000, range(partitions))  # the JVM compiles code while it runs
        before = cpu_seconds(cluster.brokers)
        took = one_by_one(producer, topic, value, 5_000, range(partitions))
        cpu = cpu_seconds(cluster.brokers) - before
        if partitions == 1:
            row |= {f"acks=all p{p}, ms": percentile(took, p) * 1e3 for p in (50, 99)}
        row[f"broker CPU for one, {partitions} partitions, ms"] = cpu / len(took) * 1e3
    return row


def end_to_end(cluster: Cluster) -> Row:
    """Measure 1 KB records, 200 a second, acks=all, replication factor 3: from produce to a waiting consumer."""
    took = until_consumed(cluster, json_like(1024), PACED_WARM, PACED, PACED_S)
    return {f"p{p}, ms": percentile(took, p) * 1e3 for p in (50, 99)}


def throughput(cluster: Cluster) -> Row:
    """Measure 1 KB records in batches of up to 256 KB, six partitions, acks=all, one producer process, after a
    warm-up.
    """
    write_gigabytes(cluster, 1.0)
    touch_pages_of(cluster, 1.0)
    return write_gigabytes(cluster, 1.0)


def codecs(cluster: Cluster) -> Row:
    """Measure `throughput` for each codec, in bytes before compression."""
    row: Row = {}
    for codec in ("none", "lz4", "zstd", "snappy", "gzip"):
        write_gigabytes(cluster, 0.2, codec)
        touch_pages_of(cluster, 0.5)
        readings = write_gigabytes(cluster, 0.5, codec)
        row |= {f"{codec}, {unit}": reading for unit, reading in readings.items()}
    return row


def touch_pages_of(cluster: Cluster, gigabytes: float) -> None:
    """Prepare recently used free pages for this amount of data in the page cache of every broker."""
    with tempfile.TemporaryDirectory() as folder:
        touch_free_pages(Path(folder), round(len(cluster.brokers) * gigabytes * 1e9 * SPARE_PAGES))


def write_gigabytes(cluster: Cluster, gigabytes: float, codec: str = "none") -> Row:
    topic = new_topic(cluster, admin_of(cluster), SEVERAL)
    return write_to(cluster, topic, gigabytes, {"compression.type": codec})


def write_to(
    cluster: Cluster, topic: str, gigabytes: float, settings: Mapping[str, str], size: int = 1024
) -> Row:
    """Fill a topic with records of `size` bytes; `settings` are further settings of the producer."""
    value = json_like(size)
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 262_144,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 5_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: errors.append(str(error)),
            **settings,
        }
    )
    chunk = [{"value": value}] * max(1, CHUNK_BYTES // size)
    count = int(gigabytes * 1e9 / len(value))
    before, start = cpu_seconds(cluster.brokers), time.monotonic()
    for _ in range(count // len(chunk)):
        producer.produce_batch(topic, chunk)
        producer.poll(0)
        while len(producer) * size > QUEUED_BYTES:
            producer.poll(0.002)
    if producer.flush(120) or errors:
        raise RuntimeError(f"{cluster.name}: {errors[:3]}")
    elapsed = time.monotonic() - start
    cpu = cpu_seconds(cluster.brokers) - before
    return {"MB/s": gigabytes * 1e3 / elapsed, "broker CPU s/GB": cpu / gigabytes}


def failover(cluster: Cluster, trials: int = 6) -> Row:
    """Kill the leader with SIGKILL: the longest silence of a producer of 500 records a second with acks=all."""
    admin = admin_of(cluster)
    topic = new_topic(cluster, admin, 1)
    silences = []
    with steady_writer(cluster, topic) as acknowledged:
        for _ in range(trials):
            wait_in_sync(admin, topic, 1, 3)
            time.sleep(1.5)
            leader = admin.list_topics(topic, 30).topics[topic].partitions[0].leader
            node = cluster.broker(leader)
            killed = time.monotonic()
            cluster.kill(node)
            time.sleep(0.05)
            # Find the first acknowledgement that cannot come from the dead leader's socket buffers.
            while not (later := [a for a in acknowledged[-5_000:] if a > killed + 0.02]):
                if time.monotonic() > killed + 90:
                    raise TimeoutError(f"{cluster.name}: no acknowledgement within 90 s of a kill")
                time.sleep(0.005)
            times = [killed, *(a for a in acknowledged[-5_000:] if killed < a <= later[0] + 0.2)]
            silences.append(max(b - a for a, b in itertools.pairwise(times)))
            time.sleep(0.5)
            cluster.restart(node)
    ms = [s * 1e3 for s in silences]
    return {"failover p50, ms": statistics.median(ms), "failover worst, ms": max(ms)}


@contextmanager
def steady_writer(cluster: Cluster, topic: str, per_second: int = 500) -> Iterator[list[float]]:
    """Run a producer in a thread; the yielded list grows by the time of every acknowledgement."""
    acknowledged: list[float] = []
    stop = threading.Event()
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, **QUICK_RETRY}
    )

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is None:
            acknowledged.append(time.monotonic())

    def write() -> None:
        start, n = time.monotonic(), 0
        while not stop.is_set():
            while (left := start + n / per_second - time.monotonic()) > 0:
                producer.poll(left)
            producer.produce(topic, b"x" * 256, on_delivery=delivered)
            n += 1
        producer.flush(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


FIGURES: dict[str, Figure] = {
    "cold": cold,
    "memory": running(memory),
    "latency": running(latency),
    "end-to-end": running(end_to_end),
    "throughput": running(throughput),
    "codecs": running(codecs),
    "failover": running(failover),
}


if __name__ == "__main__":
    sys.exit(main(__doc__, FIGURES, rounds=3))
