"""The topics that benchmarks of the lake write, and their records."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Producer

from ottla import NewTopic
from ottla.sync import Admin

from .client_queue import queue_record

PARTITIONS, BYTES = 4, 1_000
FLUSH_TIMEOUT_S = 900.0


def create(bootstrap: str, topic: str, configs: Mapping[str, str], partitions: int = PARTITIONS) -> None:
    """Create a topic with three replicas."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(
            [NewTopic(topic, num_partitions=partitions, replication_factor=3, configs=dict(configs))]
        )


def create_for_lake(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    """Create a topic that the lake writes."""
    create(bootstrap, topic, {"ottla.lake.enable": "true", **settings})


def fill(bootstrap: str, topic: str, values: Iterator[bytes]) -> int:
    """Write records, spread over the partitions. Return the bytes of their values."""
    size = 0
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "log_level": 0})
    for number, value in enumerate(values):
        size += len(value)
        queue_record(producer, topic, value, partition=number % PARTITIONS)
    if left := producer.flush(FLUSH_TIMEOUT_S):
        raise SystemExit(f"{left} records could not be written")
    return size


def raw_values(rows: int) -> Iterator[bytes]:
    """Yield texts of `BYTES` bytes, which compress as prose does."""
    for number in range(rows):
        yield (b"%d the quick brown fox jumps over the lazy dog " % (number * 2654435761) * 20)[:BYTES]


def json_values(rows: int | None = None) -> Iterator[bytes]:
    """Yield objects of five fields, whose `id` counts from 0. `rows`: their number; without it they never end."""
    for number in itertools.count() if rows is None else range(rows):
        order = {"id": number, "customer": f"c{number % 1000}", "amount": number / 4, "paid": number % 3 == 0}
        yield json.dumps({**order, "note": f"{number * 2654435761} the lazy dog " * 30}).encode()


def paced(values: Iterator[bytes], rows_per_s: float) -> Iterator[bytes]:
    """Yield values at a rate, as far as their consumer keeps up."""
    began = time.monotonic()
    for number, value in enumerate(values):
        if (early := began + number / rows_per_s - time.monotonic()) > 0:
            time.sleep(early)
        yield value
