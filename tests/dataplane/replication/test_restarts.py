"""What a broker does with its logs when it comes back: images of the past, deleted topics, settings, flushes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from ottla.dataplane.image_gate import ImageGate
from ottla.dataplane.log import LogConfig
from ottla.dataplane.log_store import LogStore
from ottla.dataplane.quorum.image_follower import ImageFollower
from ottla.dataplane.replication.isr_updates import Outcome
from ottla.dataplane.replication.partition import ReplicationSettings, wall_ms
from ottla.dataplane.replication.replicas import Replicas, ReplicasConfig, TopicSettings
from ottla.protocol.cluster_image import ClusterImage, ImageDelta
from ottla.protocol.messages.metadata_records import (
    BrokerRecord,
    PartitionRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
    encode_record,
)
from ottla.protocol.messages.quorum_session import FeedSnapshotChunk

from .harness import batch

OLD_TOPIC, NEW_TOPIC = b"o" * 16, b"n" * 16
BEFORE, NOW = b"b" * 16, b"i" * 16
SETTINGS = TopicSettings(LogConfig(), ReplicationSettings())


async def _no_isr_changes(_proposals: Sequence[object]) -> Sequence[Outcome]:
    await asyncio.Event().wait()
    return ()


@contextlib.asynccontextmanager
async def broker(
    directory: Path, image: ClusterImage, settings: TopicSettings = SETTINGS, *, clean: bool = True
) -> AsyncIterator[tuple[LogStore, Replicas]]:
    """Broker 1: its logs and replicas, without a server."""
    logs = LogStore.open([directory], "cluster", 1, wall_ms)
    replicas = Replicas(
        ReplicasConfig(1, "BROKER"), logs, image, lambda _: settings, _no_isr_changes, lambda: 7
    )
    try:
        yield logs, replicas
    finally:
        await replicas.close()
        logs.close(clean=clean, broker_epoch=7)


def fold(image: ClusterImage, *records: Record) -> ImageDelta:
    delta = ImageDelta()
    for record in records:
        delta.note(record)
        image.apply(record)
    return delta


def topic(topic_id: bytes = NEW_TOPIC, **state: Any) -> list[Record]:
    """Topic `t` with one partition, led by broker 1 alone."""
    given = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0} | state
    return [
        TopicRecord(topic_id=topic_id, name="t"),
        PartitionRecord(topic_id=topic_id, partition=0, **given),
    ]


def registration(incarnation: bytes, epoch: int, **state: Any) -> Record:
    return BrokerRecord(broker_id=1, broker_epoch=epoch, incarnation=incarnation, fenced=False, **state)


def produce(replicas: Replicas, values: int, acks: int = 1) -> None:
    for number in range(values):
        replicas.get("t", 0).append(memoryview(batch(b"%d" % number)), required_acks=acks)


async def test_images_of_the_past_give_no_roles_and_delete_no_logs(tmp_path: Path) -> None:
    """The feed is replayed in pushes. None of them may make a broker lead as its predecessor did, rewrite
    the leader epochs of its logs, or take the log of today's topic for that of an older one."""
    history: list[list[Record]] = [
        [registration(BEFORE, 1), *topic(OLD_TOPIC)],
        [TopicRemovedRecord(topic_id=OLD_TOPIC), *topic(leader_epoch=3)],
        [PartitionRecord(topic_id=NEW_TOPIC, partition=0, replicas=[1], isr=[1], leader=1, leader_epoch=5)],
    ]
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        for push in history[1:]:
            replicas.apply(image, fold(image, *_without_removal(push)))
        produce(replicas, 3)

    replayed = ClusterImage()
    gate = ImageGate(1, NOW)
    async with broker(tmp_path, replayed) as (_, replicas):
        for push in history:
            assert gate.passed(replayed, fold(replayed, *push)) is None
        joined = gate.passed(replayed, fold(replayed, registration(NOW, 9)))
        assert joined is not None
        replicas.apply(replayed, joined)
        partition = replicas.get("t", 0)
        assert (partition.log.log_end_offset, partition.leader_epoch) == (3, 5)
        assert partition.log.leader_epochs.entries == ((5, 0),)
        follow_up = fold(replayed, registration(NOW, 9))
        assert gate.passed(replayed, follow_up) is follow_up


def _without_removal(push: Sequence[Record]) -> list[Record]:
    return [record for record in push if not isinstance(record, TopicRemovedRecord)]
