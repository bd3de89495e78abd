"""Two clusters, one of which copies the other: what is asked of both, and what must be alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from ottla import Admin, Consumer, TopicPartition
from ottla.client.connections.cluster import Cluster
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.mirrors import (
    AlterMirrorRequest,
    CreateMirrorRequest,
    DescribedMirror,
    DescribedMirrorPartition,
    DescribeMirrorsRequest,
    MirrorAction,
)

DEADLINE_S = 60.0
Isolation = Literal["read_uncommitted", "read_committed"]


@dataclass
class Target:
    """The cluster that copies, as its operator sees it."""

    cluster: Cluster

    async def create(self, name: str, source: str, topics: str, **settings: Any) -> None:
        """Begin to copy."""
        request = CreateMirrorRequest(name=name, bootstrap_servers=source, topics=topics, **settings)
        answer = await self.cluster.ask_any(request)
        assert answer.error_code == ErrorCode.NONE, answer.error_message

    async def alter(self, name: str, action: MirrorAction, *topics: str) -> None:
        """Change its phase, or accept what is lost."""
        request = AlterMirrorRequest(name=name, action=action, topics=list(topics))
        answer = await self.cluster.ask_any(request)
        assert answer.error_code == ErrorCode.NONE, answer.error_message

    async def described(self, name: str) -> list[DescribedMirror]:
        """What each broker that answers says of a mirror."""
        await self.cluster.refresh()
        asked = [
            self.cluster.ask(broker_id, DescribeMirrorsRequest(names=[name]), timeout_ms=2_000)
            for broker_id in list(self.cluster.metadata.brokers)
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [
            answer.mirrors[0]
            for answer in answers
            if not isinstance(answer, BaseException) and answer.mirrors
        ]

    async def partitions(self, name: str) -> dict[tuple[str, int], DescribedMirrorPartition]:
        """What the leaders of copies say."""
        return {
            (topic.name, part.partition): part
            for mirror in await self.described(name)
            for topic in mirror.topics
            for part in topic.partitions
            if part.is_told
        }

    async def fault(self, name: str, topic: str, partition: int = 0) -> DescribedMirrorPartition:
        """The partition, once it is not copied any further."""

        async def find() -> DescribedMirrorPartition | None:
            part = (await self.partitions(name)).get((topic, partition))
            return part if part is not None and part.fault else None

        return await until(find, f"a fault of {topic}-{partition}")


@asynccontextmanager
async def target_of(bootstrap: str) -> AsyncIterator[Target]:
    """The operator's connections."""
    async with Cluster(bootstrap) as cluster:
        yield Target(cluster)


async def until(ask: Callable[[], Awaitable[Any]], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """What `ask` returns once that is something; fails the test, naming `what`, after the deadline."""
    ends = time.monotonic() + deadline_s
    while not (found := await ask()):
        assert time.monotonic() < ends, f"{what}: not within {deadline_s:g} s"
        await asyncio.sleep(0.05)
    return found


async def ends_of(bootstrap: str, topic: str, isolation: Isolation = "read_uncommitted") -> dict[int, int]:
    """Where each partition ends for readers; empty while the topic is not there."""
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
    """All that a reader finds, by partition: what has to be the same in both clusters."""
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
                            (one.offset, one.timestamp_ms, one.key, one.value, tuple(one.headers))
                            for one in records
                        ]
    return found


async def is_level(source: str, target: str, *topics: str) -> bool:
    """Whether the copies end where the topics end."""
    for topic in topics:
        theirs = await ends_of(source, topic)
        if not theirs or theirs != await ends_of(target, topic):
            return False
    return True
