"""The reader: it applies the records of a topic to a database, each once.

    python -m examples.outbox.reader --database totals.db --topic orders

The database keeps the offsets, and a batch of records is applied in the same transaction as its next offset. So neither
a crash nor a second reader applies a record twice. Any failure ends the program: start it again.
"""

from __future__ import annotations

import argparse
import asyncio

from ottla import Admin, Consumer, ConsumerRecord, TopicPartition

from .database import Database, opened

PAUSE_MS = 200


class MovedMeanwhile(Exception):
    """Another reader has applied records of the partition. The message names it."""


async def read(database: Database, bootstrap: str, topic: str, *, batch: int, is_once: bool) -> None:
    """Apply the records of the topic, forever or until its present end.

    Raises MovedMeanwhile if another reader applies records of the topic, and KafkaError.
    """
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (described,) = await admin.describe_topics([topic])
    places = [TopicPartition(topic, index) for index in described.partitions]
    async with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        starts = await consumer.beginning_offsets(places)
        positions = {place: database.position(*place) for place in places}
        for place, position in positions.items():
            consumer.seek(place, starts[place] if position is None else position)
        ends = await consumer.end_offsets(places) if is_once else {}
        while not is_once or [place for place in places if await consumer.position(place) < ends[place]]:
            found = await consumer.getmany(timeout_ms=PAUSE_MS, max_records=batch)
            for place, records in found.items():
                apply(database, place, positions[place], records)
                positions[place] = records[-1].offset + 1
                print(f"applied records before {positions[place]} of partition {place.partition}", flush=True)


def apply(
    database: Database, place: TopicPartition, position: int | None, records: list[ConsumerRecord]
) -> None:
    """Apply records and move the position of their partition, in one transaction. Raises MovedMeanwhile."""
    with database.transaction():
        if not database.move(*place, position, records[-1].offset + 1):
            raise MovedMeanwhile(f"another reader has applied records of {place.topic}-{place.partition}")
        for record in records:
            database.add_to_total(record.key.decode(), int(record.value))


def main() -> None:
    """Apply the records of the topic that the arguments name."""
    options = argparse.ArgumentParser(description="Apply the records of a topic to a database.")
    options.add_argument("--database", required=True, help="a file of SQLite, or an address of PostgreSQL")
    options.add_argument("--bootstrap", default="localhost:9092", help="brokers (localhost:9092)")
    options.add_argument("--topic", default="orders", help="the topic (orders)")
    options.add_argument("--batch", type=int, default=500, help="most records in a transaction (500)")
    options.add_argument("--once", action="store_true", help="end at the present end of the topic")
    given = options.parse_args()
    with opened(given.database) as database:
        asyncio.run(read(database, given.bootstrap, given.topic, batch=given.batch, is_once=given.once))


if __name__ == "__main__":
    main()
