"""Committed offsets in a copy go when its log begins again with other records."""

from __future__ import annotations

import asyncio

from ottla.dataplane.groups.committed_offset import CommittedOffset
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.cluster.mirror_table import (
    MirrorPartition,
    Resumption,
    ResumptionKind,
    mirror_partition_record,
)
from ottla.protocol.messages.metadata_records import PartitionRecord, Record, TopicRecord
from ottla.protocol.messages.mirror_records import MirrorRecord, MirrorTopicRecord

from .test_shard import LIMITS, Clock, MemoryLog

TOPIC = b"t" * 16
COPIED = ((3, 0),)


class World:
    """A broker that coordinates all groups, in a cluster with a copy of two partitions."""

    def __init__(self) -> None:
        self.image, self.clock, self.log = ClusterImage(), Clock(), MemoryLog()
        self.groups = GroupCoordinator(LIMITS, self.clock, lambda: 1, lambda: self.image.topics)
        self.change(
            MirrorRecord(name="m", source_cluster_id="there", topics="t", groups="g", phase=1),
            TopicRecord(topic_id=TOPIC, name="t"),
            MirrorTopicRecord(topic_id=TOPIC, mirror="m", source_topic_id=b"s" * 16),
            *(self.partition(index, 1) for index in range(2)),
            *(mirror_partition_record(TOPIC, index, MirrorPartition(COPIED)) for index in range(2)),
        )

    def partition(self, index: int, leader_epoch: int) -> PartitionRecord:
        return PartitionRecord(
            topic_id=TOPIC, partition=index, replicas=[1], isr=[1], leader=1, leader_epoch=leader_epoch
        )

    def change(self, *records: Record) -> None:
        delta = ImageDelta()
        for record in records:
            self.image.apply(record)
            delta.note(record)
        self.groups.image_changed(self.image, delta)

    def goes_on(
        self, index: int, epoch: int, resumption: Resumption, lineage: tuple[tuple[int, int], ...] = ()
    ) -> None:
        copy = MirrorPartition(lineage, resumption=resumption)
        self.change(mirror_partition_record(TOPIC, index, copy), self.partition(index, epoch))

    async def load(self) -> None:
        self.groups.elected(0, self.log)
        async with asyncio.timeout(60):
            while self.groups.loading:
                await asyncio.sleep(0)

    def commit(self) -> None:
        committed = CommittedOffset(20, -1, "", self.clock(), TOPIC, "m")
        places = {("t", index): committed for index in range(2)}
        self.groups.shard_for("g").commit("g", "", None, -1, places, lambda _outcome: None)

    def kept(self) -> set[int]:
        return {index for _, index in self.groups.shard_for("g").offsets.of_group("g")}


async def test_offsets_go_when_the_log_begins_again_and_later_ones_stay() -> None:
    world = World()
    await world.load()
    world.commit()
    world.goes_on(0, 2, Resumption(2, 0))
    assert world.kept() == {1}
    world.goes_on(0, 2, Resumption(2, 0), COPIED)
    world.commit()
    world.goes_on(0, 3, Resumption(2, 0), COPIED)
    assert world.kept() == {0, 1}, "a change of the leader is no new restart"
    world.groups.close()


async def test_offsets_stay_where_the_log_goes_on() -> None:
    world = World()
    await world.load()
    world.commit()
    world.goes_on(0, 2, Resumption(2, 30), COPIED)
    world.goes_on(1, 2, Resumption(2, 0, ResumptionKind.KEPT), COPIED)
    assert world.kept() == {0, 1}
    world.groups.close()


async def test_a_shard_that_is_loaded_later_has_no_offsets_of_the_former_log() -> None:
    world = World()
    await world.load()
    world.commit()
    world.groups.resigned(0)
    world.clock.now_ms += 1
    world.goes_on(0, 2, Resumption(2, 0), COPIED)
    world.clock.now_ms += 1
    await world.load()
    assert world.kept() == {1}
    world.commit()
    world.groups.resigned(0)
    await world.load()
    assert world.kept() == {0, 1}
    world.groups.close()
