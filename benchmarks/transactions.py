"""Compares transactions of Ottla and Apache Kafka in one run, through the same client (librdkafka).

    python -m benchmarks.transactions [FIGURE ...] [--only ottla|kafka] [--rounds N] [--record FILE]

FIGURES: commit rate size visible (all of them without arguments). Three brokers, replication factor 3; rounds alternate
between the two clusters, and medians are shown. `--record FILE` appends the readings as JSON lines.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from .clusters import Cluster
from .compare import admin_of, cpu_seconds, json_like, new_topic
from .rounds import Figure, Row, main, percentile, running

TIMEOUT_S = 60.0
COMMITS = 400
WARM_UP = 100
RATE_S = 8.0
PARTITIONS = 12
VALUE = json_like(1024)
SIZES = (1, 10, 100, 1_000, 10_000)
SIZE_S = 4.0


def transactional(cluster: Cluster, **config: object) -> Producer:
    """Make a producer with a new transactional id, ready to begin."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": uuid.uuid4().hex,
            "linger.ms": 0,
            "log_level": 0,
            **config,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def commit(cluster: Cluster) -> Row:
    """Measure transactions of one record of 1 KB to each of 1 and of 10 partitions.

    The times are from begin to the end of commit_transaction, and from the acknowledgement of the records, which is the
    commit alone.
    """
    row: Row = {}
    for partitions in (1, 10):
        topic = new_topic(cluster, admin_of(cluster), partitions)
        producer = transactional(cluster)
        whole, alone = [], []
        for _ in range(WARM_UP + COMMITS):
            start = time.perf_counter()
            producer.begin_transaction()
            for index in range(partitions):
                producer.produce(topic, VALUE, partition=index)
            producer.flush(TIMEOUT_S)
            written = time.perf_counter()
            producer.commit_transaction(TIMEOUT_S)
            end = time.perf_counter()
            whole.append(end - start)
            alone.append(end - written)
        for name, took in (("transaction", whole[WARM_UP:]), ("commit alone", alone[WARM_UP:])):
            for percent in (50, 99):
                row[f"{name}, {partitions} partitions, p{percent} ms"] = percentile(took, percent) * 1e3
    return row


def rate(cluster: Cluster) -> Row:
    """Measure transactions of one record, by several producers at once, each waiting for its own commits: how many end
    in a second, and the CPU that brokers and quorum nodes take for one.
    """
    topic = new_topic(cluster, admin_of(cluster), PARTITIONS)
    row: Row = {}
    for producers in (1, 8, 64):
        row |= {f"{producers} producers, {name}": value for name, value in rate_of(cluster, topic, producers)}
    return row


def rate_of(cluster: Cluster, topic: str, producers: int) -> Iterator[tuple[str, float]]:
    """Yield the readings of all producers together, from when all are ready."""
    counts = [0] * producers
    kinds = {"brokers": cluster.brokers, "quorum nodes": cluster.quorum}
    before: dict[str, float] = {}
    ready = threading.Barrier(
        producers, lambda: before.update((kind, cpu_seconds(nodes)) for kind, nodes in kinds.items())
    )

    def write(number: int) -> None:
        producer = transactional(cluster)
        ready.wait(TIMEOUT_S)
        end = time.monotonic() + RATE_S
        while time.monotonic() < end:
            producer.begin_transaction()
            producer.produce(topic, VALUE, partition=number % PARTITIONS)
            producer.commit_transaction(TIMEOUT_S)
            counts[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield "transactions/s", sum(counts) / RATE_S
    for kind, nodes in kinds.items():
        yield f"CPU of {kind} for one, ms", (cpu_seconds(nodes) - before[kind]) * 1e3 / sum(counts)


def size(cluster: Cluster) -> Row:
    """Measure records of 1 KB per second over six partitions, in transactions of several sizes, and without
    transactions.
    """
    topic = new_topic(cluster, admin_of(cluster), 6)
    producer = transactional(cluster, **{"queue.buffering.max.messages": 200_000})
    row: Row = {}
    for records in SIZES:
        count, start = 0, time.monotonic()
        while time.monotonic() < start + SIZE_S:
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(topic, VALUE)
            producer.commit_transaction(TIMEOUT_S)
            count += records
        row[f"{records:,} records each, records/s"] = count / (time.monotonic() - start)
    plain = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            "queue.buffering.max.messages": 200_000,
        }
    )
    count, start = 0, time.monotonic()
    while time.monotonic() < start + SIZE_S:
        for _ in range(SIZES[-1]):
            plain.produce(topic, VALUE)
        if plain.flush(TIMEOUT_S):
            raise RuntimeError(f"{cluster.name} did not take {SIZES[-1]} records in time")
        count += SIZES[-1]
    row["without transactions, records/s"] = count / (time.monotonic() - start)
    return row


def visible(cluster: Cluster) -> Row:
    """Measure from the call of commit_transaction until a waiting read-committed consumer has the record."""
    topic = new_topic(cluster, admin_of(cluster), 1)
    producer = transactional(cluster)
    took = []
    with reading(cluster, topic) as arrived:
        for number in range(WARM_UP + COMMITS):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number, partition=0)
            producer.flush(TIMEOUT_S)
            start = time.perf_counter()
            producer.commit_transaction(TIMEOUT_S)
            deadline = time.monotonic() + TIMEOUT_S
            while len(arrived) <= number:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{cluster.name}: a committed record did not become visible")
                time.sleep(0.0002)
            took.append(arrived[number] - start)
    return {f"commit to consumer, p{p} ms": percentile(took[WARM_UP:], p) * 1e3 for p in (50, 99)}


@contextmanager
def reading(cluster: Cluster, topic: str) -> Iterator[list[float]]:
    """Run a read-committed consumer in a thread; the yielded list grows by the time of every record."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    arrived: list[float] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            message: Message | None = consumer.poll(0.2)
            if message is not None and message.error() is None:
                arrived.append(time.perf_counter())
            elif message is not None and message.error().code() != KafkaError._PARTITION_EOF:
                raise RuntimeError(str(message.error()))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield arrived
    finally:
        stop.set()
        thread.join()
        consumer.close()


FIGURES: dict[str, Figure] = {
    "commit": running(commit),
    "rate": running(rate),
    "size": running(size),
    "visible": running(visible),
}


if __name__ == "__main__":
    sys.exit(main(__doc__, FIGURES, rounds=2))
