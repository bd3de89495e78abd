"""A stock Python client as a process that can be killed; it prints what Kafka's verifiable clients print.

    python -m tests.integration.python_client aiokafka consume 127.0.0.1:9092 orders --group readers

SIGTERM ends a producer after the outcome of everything sent is known, and a consumer after it has left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka

BACKOFF_MS = 50
METADATA_AGE_MS = 1_000


class Stop:
    """The arrival of SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, lambda _number, _frame: setattr(self, "asked", True))


def tell(name: str, **what: object) -> None:
    """Print one event."""
    print(json.dumps({"name": name, **what}), flush=True)


def tell_placed(partition: int | None, offset: int | None, value: bytes | None) -> None:
    """Print the acknowledgement of a record."""
    tell("producer_send_success", partition=partition, offset=offset, value=(value or b"").decode())


def tell_failed(error: object) -> None:
    """Print the failure of a record."""
    tell("producer_send_error", message=str(error))


class Membership:
    """A printer of a consumer's changed assignments, and of the records it reads."""

    def __init__(self) -> None:
        self._last: set[int] = set()

    def tell(self, assigned: Iterable[Any], records: Iterable[tuple[int, int, bytes]]) -> None:
        """Print the results of one poll."""
        for partition, offset, value in records:
            tell("record_data", partition=partition, offset=offset, value=value.decode())
        now = {partition.partition for partition in assigned}
        if now != self._last:
            tell("partitions_assigned", partitions=[{"partition": number} for number in sorted(now)])
            self._last = now


def values(options: argparse.Namespace, stop: Stop) -> Iterator[bytes | None]:
    """Yield numbered values at the requested rate; None while there is nothing to send."""
    started, number = time.monotonic(), 0
    while not stop.asked and number != options.count:
        if number < (time.monotonic() - started) * options.per_second:
            yield b"%d %s" % (number, b"x" * 100)
            number += 1
        else:
            yield None


def produce_with_confluent_kafka(options: argparse.Namespace, stop: Stop) -> None:
    """Produce with librdkafka's Python client."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "enable.idempotence": True,
            "compression.type": options.codec,
            "linger.ms": 20,
            "retry.backoff.ms": BACKOFF_MS,
            "log_level": 0,
        }
    )

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            tell_placed(message.partition(), message.offset(), message.value())
        else:
            tell_failed(error)

    for value in values(options, stop):
        if value is not None:
            producer.produce(options.topic, value, on_delivery=delivered)
        producer.poll(0 if value is not None else 0.005)
    producer.flush(60)


def consume_with_confluent_kafka(options: argparse.Namespace, stop: Stop) -> None:
    """Consume with librdkafka's Python client."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": 500,
            "log_level": 0,
        }
    )
    consumer.subscribe([options.topic])
    membership = Membership()
    while not stop.asked:
        came = [message for message in consumer.consume(500, 0.05) if message.error() is None]
        membership.tell(
            consumer.assignment(),
            ((record.partition() or 0, record.offset() or 0, record.value() or b"") for record in came),
        )
    consumer.close()


def produce_with_kafka_python(options: argparse.Namespace, stop: Stop) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=options.bootstrap,
        acks="all",
        enable_idempotence=True,
        compression_type=None if options.codec == "none" else options.codec,
        linger_ms=20,
        retry_backoff_ms=BACKOFF_MS,
        metadata_max_age_ms=METADATA_AGE_MS,
    )
    for value in values(options, stop):
        if value is None:
            time.sleep(0.005)
            continue
        placed = producer.send(options.topic, value)
        placed.add_callback(lambda at, value=value: tell_placed(at.partition, at.offset, value))
        placed.add_errback(tell_failed)
    producer.flush(60)
    producer.close()


def consume_with_kafka_python(options: argparse.Namespace, stop: Stop) -> None:
    consumer = kafka.KafkaConsumer(
        options.topic,
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=500,
        retry_backoff_ms=BACKOFF_MS,
        metadata_max_age_ms=METADATA_AGE_MS,
    )
    membership = Membership()
    while not stop.asked:
        # A poll that ends while its group is being joined leaves it joined without its partitions: no short ones.
        came = [record for records in consumer.poll(3_000).values() for record in records]
        membership.tell(
            consumer.assignment(), ((record.partition, record.offset, record.value) for record in came)
        )
    consumer.close()


def produce_with_aiokafka(options: argparse.Namespace, stop: Stop) -> None:

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=options.bootstrap,
            enable_idempotence=True,
            compression_type=None if options.codec == "none" else options.codec,
            linger_ms=20,
            retry_backoff_ms=BACKOFF_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
        )

        def delivered(value: bytes) -> Callable[[asyncio.Future[Any]], None]:
            def tell_outcome(done: asyncio.Future[Any]) -> None:
                if (error := done.exception()) is not None:
                    tell_failed(error)
                else:
                    tell_placed(done.result().partition, done.result().offset, value)

            return tell_outcome

        async with producer:
            async for value in _paced(values(options, stop)):
                placed = await producer.send(options.topic, value)
                placed.add_done_callback(delivered(value))
            await producer.flush()

    asyncio.run(run())


async def _paced(numbered: Iterator[bytes | None]) -> AsyncIterator[bytes]:
    for value in numbered:
        if value is None:
            await asyncio.sleep(0.005)
        else:
            yield value


def consume_with_aiokafka(options: argparse.Namespace, stop: Stop) -> None:

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            options.topic,
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            auto_offset_reset="earliest",
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=500,
            retry_backoff_ms=BACKOFF_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
        )
        membership = Membership()
        async with consumer:
            while not stop.asked:
                found = await consumer.getmany(timeout_ms=50)
                came = [record for records in found.values() for record in records]
                membership.tell(
                    consumer.assignment(),
                    ((record.partition, record.offset, record.value) for record in came),
                )

    asyncio.run(run())


ROLES: dict[tuple[str, str], Callable[[argparse.Namespace, Stop], None]] = {
    ("confluent-kafka", "produce"): produce_with_confluent_kafka,
    ("confluent-kafka", "consume"): consume_with_confluent_kafka,
    ("kafka-python", "produce"): produce_with_kafka_python,
    ("kafka-python", "consume"): consume_with_kafka_python,
    ("aiokafka", "produce"): produce_with_aiokafka,
    ("aiokafka", "consume"): consume_with_aiokafka,
}


def main() -> None:
    """Run one client until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=sorted({client for client, _ in ROLES}))
    parser.add_argument("role", choices=["produce", "consume"])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--count", type=int, default=-1)
    parser.add_argument("--per-second", type=int, default=100_000)
    parser.add_argument("--group", default="")
    parser.add_argument("--session-timeout-ms", type=int, default=6_000)
    options = parser.parse_args()
    ROLES[options.client, options.role](options, Stop())


if __name__ == "__main__":
    main()
