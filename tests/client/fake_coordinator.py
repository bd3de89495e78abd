"""The only broker of a cluster, as a group member sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from ottla.client.connections.metadata import ClusterMetadata
from ottla.client.consumer import Consumer
from ottla.client.consuming.membership.subscription import encode_assignment
from ottla.client.failures import ConnectionLost
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.wire.schema import Message

PLACE = TopicPartition("t", 0)
COMMITTED = 7
Answer = Callable[[Any], Awaitable[Message]]


class Coordinator:
    """The only broker of a cluster, as a group member sees it. `answers` replaces its answers."""

    def __init__(self) -> None:
        self.metadata = ClusterMetadata()
        self.request_timeout_ms = 30_000
        self.user = None
        self.generation = 0
        self.commits: list[OffsetCommitRequest] = []
        self.asked: list[str] = []
        """Requests and, where a test adds them, the listeners' notifications, in order."""
        self.given = [0]
        """Partitions that the next generation assigns to the member."""
        self.answers: dict[type, Answer] = {}

    def __call__(self, *_: Any, **__: Any) -> Coordinator:
        return self

    async def any_connection(self) -> Any:
        return SimpleNamespace(
            version_for=lambda _kind, at_most=99: at_most, request=self._request, features={}
        )

    async def connection(self, _broker: int, _lane: str) -> Any:
        return await self.any_connection()

    async def refresh(self, _topics: object = (), *, create: bool = False) -> None:
        pass

    def follow(self, _holder: object, _topics: object) -> None:
        pass

    async def close(self) -> None:
        pass

    async def _request(self, message: Any, **_: Any) -> Message:
        self.asked.append(type(message).__name__)
        if (answer := self.answers.get(type(message))) is not None:
            return await answer(message)
        return self.usual(message)

    def usual(self, message: Any) -> Message:
        match message:
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(node_id=1, host="localhost", port=9092)
            case JoinGroupRequest():
                self.generation += 1
                return JoinGroupResponse(
                    generation_id=self.generation, member_id="me", leader="other", protocol_name="range"
                )
            case SyncGroupRequest():
                return SyncGroupResponse(assignment=encode_assignment({PLACE.topic: self.given}))
            case HeartbeatRequest():
                code = 0 if message.generation_id == self.generation else ErrorCode.REBALANCE_IN_PROGRESS
                return HeartbeatResponse(error_code=code)
            case OffsetFetchRequest():
                partitions = [
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=COMMITTED)
                    for index in message.topics[0].partition_indexes
                ]
                return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)])
            case OffsetCommitRequest():
                self.commits.append(message)
                done = OffsetCommitResponsePartition(partition_index=0)
                return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[done])])
            case LeaveGroupRequest():
                return LeaveGroupResponse()
        raise ConnectionLost(f"nobody asks {type(message).__name__} here")


def member(**options: Any) -> Consumer:
    return Consumer("t", group_id="g", heartbeat_interval_ms=1, auto_offset_reset="earliest", **options)


async def assigned(consumer: Consumer) -> None:
    async with asyncio.timeout(25):
        while PLACE not in consumer.assignment():
            await asyncio.sleep(0.001)
