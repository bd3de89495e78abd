"""Heartbeats of a share group, and the answers that Apache Kafka 4.4.0 gave to them.

The broker had group.share.max.size=3 and group.share.assignment.interval.ms=0, so that it computed each assignment at
once. Topic a has two partitions, b three, c one.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ottla.dataplane.groups.consumer.member import HeartbeatReply
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.limits import GroupLimits, ShareGroupLimits
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.groups.share.member import ShareHeartbeat
from ottla.protocol.errors import KafkaError
from tests.dataplane.groups.persister import MemoryPersister
from tests.dataplane.groups.test_consumer_group import Topics
from tests.dataplane.groups.test_shard import Clock, MemoryLog


class Beat(NamedTuple):
    """A heartbeat with its member, epoch and topics, and the answer: the epoch and the number of partitions by topic,
    or the error and its message."""

    member_id: str
    epoch: int
    topics: list[str] | None
    answer: tuple[int | str, dict[str, int] | str | None]


SETTLED = None
"""Kafka was given the time to initialize the states of all partitions."""

SMALLER = (
    "The share group member has a smaller member epoch (1) than the one known by the group coordinator (3), and it "
    "does not match the previous member epoch (2). The member must abandon all its partitions and rejoin."
)
GREATER = (
    "The share group member has a greater member epoch (10) than the one known by the group coordinator (3). The "
    "member must abandon all its partitions and rejoin."
)
FULL = "The share group has reached its maximum capacity of 3 members."
HISTORY = [
    Beat("m1", 1, None, ("GROUP_ID_NOT_FOUND", "Share group g not found.")),
    Beat("m1", -1, None, ("GROUP_ID_NOT_FOUND", "Group g not found.")),
    Beat("m1", 0, ["a"], (2, {})),
    SETTLED,
    Beat("m1", 2, None, (3, {"a": 2})),
    Beat("m1", 2, None, (3, None)),
    Beat("m1", 3, None, (3, None)),
    Beat("m1", 3, ["a"], (3, {"a": 2})),
    Beat("m1", 0, ["a"], (3, {"a": 2})),
    Beat("m1", 1, None, ("FENCED_MEMBER_EPOCH", SMALLER)),
    Beat("m1", 10, None, ("FENCED_MEMBER_EPOCH", GREATER)),
    Beat("x", 1, None, ("UNKNOWN_MEMBER_ID", "Member x is not a member of group g.")),
    Beat("x", -1, None, ("UNKNOWN_MEMBER_ID", "Member x is not a member of group g.")),
    Beat("m2", 0, ["a"], (4, {"a": 1})),
    Beat("m2", 4, None, (4, None)),
    Beat("m1", 3, None, (4, {"a": 1})),
    Beat("m1", 4, None, (4, None)),
    Beat("m3", 0, ["a", "b"], (5, {"a": 1})),
    Beat("m4", 0, ["a"], ("GROUP_MAX_SIZE_REACHED", FULL)),
    Beat("m4", 7, None, ("GROUP_MAX_SIZE_REACHED", FULL)),
    SETTLED,
    Beat("m3", 5, None, (6, {"a": 1, "b": 3})),
    Beat("m1", 4, None, (6, {"a": 2})),
    Beat("m2", 4, None, (6, None)),
    Beat("m3", 6, None, (6, None)),
    Beat("m1", 6, ["b"], (7, {"b": 2})),
    Beat("m2", 6, None, (7, None)),
    Beat("m3", 6, None, (7, {"a": 1, "b": 1})),
    Beat("m1", 7, [], (8, {})),
    Beat("m2", 7, None, (8, None)),
    Beat("m3", 7, None, (8, {"a": 1, "b": 3})),
    Beat("m3", -1, None, (-1, None)),
    Beat("m3", 8, None, ("UNKNOWN_MEMBER_ID", "Member m3 is not a member of group g.")),
    Beat("m2", 8, None, (9, {"a": 2})),
    Beat("m2", -1, None, (-1, None)),
    Beat("m1", -1, None, (-1, None)),
    Beat("m1", 0, ["nosuch"], (12, {})),
    Beat("m1", 0, ["c"], (13, {})),
    SETTLED,
    Beat("m1", 13, None, (14, {"c": 1})),
]


async def test_heartbeats_are_answered_as_kafka_answers_them() -> None:
    topics = Topics(a=2, b=3, c=1)
    dependencies = GroupDependencies(topics.catalog, persister=MemoryPersister())
    shard = Shard(MemoryLog(), GroupLimits(share=ShareGroupLimits(max_size=3)), Clock(), dependencies)
    await shard.load()
    for step, beat in enumerate(HISTORY):
        if beat is None:
            for _ in range(10):
                await asyncio.sleep(0)
            continue
        replies: list[HeartbeatReply | KafkaError] = []
        said = ShareHeartbeat(
            beat.member_id, beat.epoch, topics=None if beat.topics is None else tuple(beat.topics)
        )
        shard.share.heartbeat("g", said, replies.append)
        (reply,) = replies
        if isinstance(reply, KafkaError):
            assert (reply.code.name, reply.message) == beat.answer, step
            continue
        epoch, counts = beat.answer
        assert reply.epoch == epoch, step
        assert (reply.assigned is None) == (counts is None), step
        if reply.assigned is None:
            continue
        assert isinstance(counts, dict), step
        held = [topics.catalog.names[topic_id] for topic_id, _ in reply.assigned]
        assert set(held) == counts.keys(), step
        # Where shares are unequal by one, Kafka and we give the larger share to different members.
        assert all(abs(held.count(topic) - count) <= 1 for topic, count in counts.items()), step
