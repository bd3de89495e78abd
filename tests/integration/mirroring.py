"""Two clusters, one of which copies the other: requests to both, and comparisons."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from ottla import Admin, Consumer, MirrorFault, TopicPartition

DEADLINE_S = 60.0
Isolation = Literal["read_uncommitted", "read_committed"]


async def fault_of(admin: Admin, mirror: str, topic: str, partition: int = 0) -> MirrorFault:
    """Return the fault of a copy, once a fault stops the copy."""

    async def find() -> MirrorFault | None:
        (described,) = await admin.describe_mirrors([mirror])
        found = next((known for known in described.topics if known.name == topic), None)
        return None if found is None else found.faults.get(partition)

    fault: MirrorFault = await until(find, f"a fault of {topic}-{partition}")
    return fault


async def until(ask: Callable[[], Awaitable[Any]], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Return the first true result of `ask`; fail the test, naming `what`, after the deadline."""
    ends = time.monotonic() + deadline_s
    while not (found := await ask()):
        assert time.monotonic() < ends, f"{what}: not within {deadline_s:g} s"
        await asyncio.sleep(0.05)
    return found


async def ends_of(bootstrap: str, topic: str, isolation: Isolation = "read_uncommitted") -> dict[int, int]:
    """Return each partition's end for readers; empty if the topic does not exist."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        if topic not in await admin.list_topics():
            return {}
        (info,) = await admin.describe_topics([topic])
    async with Consumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
        ends = await consumer.end_offsets([TopicPartition(topic, index) for index in info.partitions])
        return {partition.partition: end for partition, end in ends.items()}


async def records_of(
    bootstrap: str, topic: str, isolation: Isolation = "read_uncommitted"
) -> dict[int, list[tuple[Any, ...]]]:
    """Return all records that a reader finds, by partition; they must be equal in both clusters."""
    ends = await ends_of(bootstrap, topic, isolation)
    found: dict[int, list[tuple[Any, ...]]] = {index: [] for index in ends}
    async with Consumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in ends])
        async with asyncio.timeout(DEADLINE_S):
            for index, end in ends.items():
                place = TopicPartition(topic, index)
                while await consumer.position(place) < end:
                    for records in (await consumer.getmany(place, timeout_ms=200)).values():
                        found[index] += [
                            (
                                record.offset,
                                record.timestamp_ms,
                                record.key,
                                record.value,
                                tuple(record.headers),
                            )
                            for record in records
                        ]
    return found


async def is_level(source: str, target: str, *topics: str) -> bool:
    """Return whether the copies end at the same offsets as their topics."""
    for topic in topics:
        theirs = await ends_of(source, topic)
        if not theirs or theirs != await ends_of(target, topic):
            return False
    return True
