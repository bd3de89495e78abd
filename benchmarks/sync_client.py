"""The Python clients, with asyncio and without: records of 100 bytes per second, and the client's CPU for each.

    python -m benchmarks.sync_client [--rounds N] [--record FILE]

One broker, one partition, acks=all. The kinds of clients take turns; the table has medians over the rounds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from itertools import islice

import ottla
import ottla.sync

from .rates import COUNT, TOPIC, VALUE, Reading, Readings, main, timed


def produce_asyncio(bootstrap: str, readings: list[Reading]) -> None:
    """Call `await send` for each record, then `flush`."""

    async def produce() -> None:
        async with ottla.Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(TOPIC, VALUE)
            with timed(readings):
                for _ in range(COUNT):
                    await producer.send(TOPIC, VALUE)
                await producer.flush()

    asyncio.run(produce())


def produce_sync(bootstrap: str, readings: list[Reading]) -> None:
    """Call `send` for each record, then `flush`."""
    with ottla.sync.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_and_wait(TOPIC, VALUE)
        with timed(readings):
            for _ in range(COUNT):
                producer.send(TOPIC, VALUE)
            producer.flush()


def consume_asyncio(bootstrap: str, readings: list[Reading]) -> None:
    """Read with `async for`."""

    async def consume() -> None:
        options = {"bootstrap_servers": bootstrap}
        async with ottla.Consumer(TOPIC, auto_offset_reset="earliest", **options) as consumer:
            await anext(consumer)
            with timed(readings):
                for _ in range(COUNT):
                    await anext(consumer)

    asyncio.run(consume())


def consume_sync(bootstrap: str, readings: list[Reading]) -> None:
    """Read with `for`."""
    with ottla.sync.Consumer(TOPIC, auto_offset_reset="earliest", bootstrap_servers=bootstrap) as consumer:
        next(consumer)
        with timed(readings):
            for _ in islice(consumer, COUNT):
                pass


KINDS: dict[str, Callable[[str, list[Reading]], None]] = {
    "produce, asyncio": produce_asyncio,
    "produce, ottla.sync": produce_sync,
    "consume, asyncio": consume_asyncio,
    "consume, ottla.sync": consume_sync,
}


def one_round(bootstrap: str, readings: Readings) -> None:
    """Run each kind once."""
    for kind, measure in KINDS.items():
        measure(bootstrap, readings[kind])


if __name__ == "__main__":
    sys.exit(main(__doc__, KINDS, one_round, rounds=5))
