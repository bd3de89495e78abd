"""Common reads of written records, for several tests of compatibility."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Literal, TypeVar

from ottla import Consumer, ConsumerRecord

DEADLINE_S = 30
T = TypeVar("T")
Isolation = Literal["read_uncommitted", "read_committed"]


async def read(
    bootstrap: str, topic: str, count: int, *, isolation: Isolation = "read_uncommitted"
) -> list[ConsumerRecord]:
    """Return the first `count` records of a topic; in order within each partition."""
    found: list[ConsumerRecord] = []
    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                found.append(await consumer.getone())
    return found


async def read_to_the_end(bootstrap: str, topic: str, *, isolation: Isolation) -> list[bytes | None]:
    """Return the values of all records that can be read now under this isolation level."""
    found: list[bytes | None] = []
    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        async with asyncio.timeout(DEADLINE_S):
            for partition, end in ends.items():
                while await consumer.position(partition) < end:
                    for records in (await consumer.getmany(partition, timeout_ms=200)).values():
                        found += [record.value for record in records]
    return found


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; fail after a while."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE_S} s: {what}") from None


async def becomes(look: Callable[[], Awaitable[T]], expected: T) -> None:
    """Return once the result is as expected, since Kafka's brokers learn of changes a moment after these are
    acknowledged.
    """
    found = await look()
    with suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            while found != expected:
                await asyncio.sleep(0.02)
                found = await look()
    assert found == expected


async def poll_all(consumers: Iterable[Consumer], into: list[ConsumerRecord]) -> None:
    """Take the available records of each consumer."""
    for consumer in consumers:
        for records in (await consumer.getmany(timeout_ms=50)).values():
            into += records
