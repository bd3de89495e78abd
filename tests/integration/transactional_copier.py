"""A worker that copies a topic exactly once: its reads, its writes and its next offsets are one transaction.

    python -m tests.integration.transactional_copier aiokafka 127.0.0.1:9092 orders copies --group g --id copier-1

Reads with confluent-kafka, writes and commits offsets with the client that is named; a value goes to the partition that
it came from. Reports each commit, and ends when it has read up to the end at its start. `--dies sent --after 3`:
killed by itself in the fourth transaction, once the records are sent; a test may do the same at any moment.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import threading
import time

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.integration.transactional_clients import (
    DEADLINE_S,
    SOCKET_MS,
    Fenced,
    Producer,
    TransactionalClient,
    open_client,
)

BATCH_MAX = 10
MOMENTS = ("never", "begun", "sent", "offsets", "committing", "committed")
COMMITTING_S = 0.003
"""Seconds after the beginning of a commit at which the worker dies, during the commit or just after it."""


class Source:
    """The source topic, read from the group's committed offsets."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "socket.timeout.ms": SOCKET_MS,
                "log_level": 0,
            }
        )
        partitions = sorted(self._consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions)
        wanted = [TopicPartition(topic, number) for number in partitions]
        committed = _patiently(lambda: self._consumer.committed(wanted, timeout=5))
        self._consumer.assign(
            [TopicPartition(topic, partition.partition, max(partition.offset, 0)) for partition in committed]
        )
        self.left = set(partitions)
        """Partitions whose end has not been reached."""

    def poll(self) -> list[confluent_kafka.Message]:
        """Return some records, or none."""
        found = []
        for message in self._consumer.consume(BATCH_MAX, 0.1):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self.left.discard(message.partition())
        return found


def _patiently(ask):  # type: ignore[no-untyped-def]
    """Repeat until brokers answer, since a group's offsets are not available while a transaction with some is being
    ended.
    """
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return ask()
        except confluent_kafka.KafkaException:
            if time.monotonic() > deadline:
                raise


def copy(options: argparse.Namespace, client: TransactionalClient) -> None:
    """Copy all records, in transactions of a few records each."""
    producer = client.producer(options.id, timeout_ms=options.timeout_ms)
    source = Source(options.bootstrap, options.source, options.group)
    number = 0
    while source.left or options.forever:
        messages = source.poll()
        if not messages:
            continue
        _transfer(options, producer, messages, options.dies if number == options.after else "never")
        number += 1
        print(json.dumps({"committed": number}), flush=True)


def _transfer(
    options: argparse.Namespace, producer: Producer, messages: list[confluent_kafka.Message], dies: str
) -> None:
    producer.begin()
    _die_if(dies == "begun")
    ends: dict[int, int] = {}
    for message in messages:
        partition = message.partition() or 0
        producer.send(options.target, partition, message.value() or b"")
        ends[partition] = (message.offset() or 0) + 1
    if dies == "sent":
        producer.flush()
        _die_if(True)
    producer.send_offsets(options.group, options.source, ends)
    _die_if(dies == "offsets")
    if dies == "committing":
        threading.Timer(COMMITTING_S, _die_if, [True]).start()
    producer.commit()
    _die_if(dies == "committed")


def _die_if(condition: bool) -> None:
    if condition:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Copy until the end, or until another worker has taken over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client")
    parser.add_argument("bootstrap")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--group", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--timeout-ms", type=int, default=60_000)
    parser.add_argument("--dies", choices=MOMENTS, default="never")
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--forever", action="store_true", help="go on at the end, for records to come")
    options = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)
    client = open_client(options.client, options.bootstrap)
    try:
        copy(options, client)
    except Fenced as error:
        print(json.dumps({"fenced": str(error)}), flush=True)
    finally:
        client.close()


if __name__ == "__main__":
    main()
