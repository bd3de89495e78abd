"""The relay: it sends the rows of an outbox to a topic, each once and in order.

    python -m examples.outbox.relay --database shop.db --topic orders

The cluster keeps the position, as the committed offset of a group: the number of the next row. A batch of rows and its
position are one transaction. A relay that starts has the same transactional id, so it ends the transaction of a killed
relay, fences a relay that still runs, and then reads the position. Any failure ends the program: start it again.
"""

from __future__ import annotations

import argparse
import asyncio

from ottla import Consumer, Producer, TopicPartition

from .database import Database, opened

PAUSE_S = 0.2
"""Seconds between two looks into an empty outbox."""


async def relay(
    database: Database, bootstrap: str, topic: str, name: str, *, batch: int, is_once: bool
) -> None:
    """Send the rows of the outbox, forever or until it is empty.

    Raises ProducerFenced once another relay with this name has started, and other KafkaErrors.
    """
    place = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        # Only now: the start of the producer has ended the last transaction of an earlier relay.
        position = await committed(bootstrap, name, place)
        database.delete_before(position)
        while True:
            rows = database.rows_from(position, batch)
            if not rows and is_once:
                return
            if not rows:
                await asyncio.sleep(PAUSE_S)
                continue
            async with producer.transaction():
                for row in rows:
                    headers = [("outbox.id", str(row.id).encode())]
                    await producer.send(topic, row.value.encode(), key=row.key.encode(), headers=headers)
                await producer.send_offsets_to_transaction({place: rows[-1].id + 1}, name)
            position = rows[-1].id + 1
            database.delete_before(position)
            print(f"sent rows before {position}", flush=True)


async def committed(bootstrap: str, name: str, place: TopicPartition) -> int:
    """Return the number of the next row to send; 0 before the first row."""
    async with Consumer(
        bootstrap_servers=bootstrap, group_id=name, isolation_level="read_committed"
    ) as consumer:
        return await consumer.committed(place) or 0


def main() -> None:
    """Send the rows of the outbox that the arguments name."""
    options = argparse.ArgumentParser(description="Send the rows of an outbox to a topic.")
    options.add_argument("--database", required=True, help="a file of SQLite, or an address of PostgreSQL")
    options.add_argument("--bootstrap", default="localhost:9092", help="brokers (localhost:9092)")
    options.add_argument("--topic", default="orders", help="the topic (orders)")
    options.add_argument("--name", default="outbox-relay", help="group and transactional id (outbox-relay)")
    options.add_argument("--batch", type=int, default=500, help="rows in a transaction (500)")
    options.add_argument("--once", action="store_true", help="end when the outbox is empty")
    given = options.parse_args()
    with opened(given.database) as database:
        asyncio.run(
            relay(database, given.bootstrap, given.topic, given.name, batch=given.batch, is_once=given.once)
        )


if __name__ == "__main__":
    main()
