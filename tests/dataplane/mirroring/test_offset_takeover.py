"""Committed offsets as of a cut are written to the groups that a broker coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.groups.offsets import CommittedOffset, TopicPartition
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.mirroring.offset_commits import commit
from ottla.dataplane.mirroring.offset_takeover import OffsetTakeover
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import offsets_copy
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from ottla.protocol.messages.mirror_commands import ReportOffsetsTaken
from ottla.protocol.messages.mirror_records import (
    MirroredOffset,
    MirrorOffsetsDoneRecord,
    MirrorOffsetsDueRecord,
    MirrorOffsetsTakenRecord,
    MirrorOffsetsToldRecord,
    MirrorPartitionRecord,
    MirrorRecord,
    MirrorTopicRecord,
)
from ottla.protocol.wire.schema import ZERO_UUID
from tests.dataplane.groups.test_shard import LIMITS, Clock, MemoryLog, join
from tests.integration.mirroring import until

OWN = "__consumer_offsets"
TOPIC, COPY, OWN_ID = b"t" * 16, b"c" * 16, b"o" * 16
T0: TopicPartition = ("t", 0)


class Quorum:
    """An image, and the submitted commands."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.submitted: list[Any] = []
        topics = {"t": TOPIC, offsets_copy("m"): COPY, OWN: OWN_ID}
        self.image.apply(MirrorRecord(name="m", source_cluster_id="there", topics="t", groups="g.*", phase=3))
        for name, topic_id in topics.items():
            self.image.apply(TopicRecord(topic_id=topic_id, name=name))
            self.image.apply(PartitionRecord(topic_id=topic_id, partition=0, replicas=[1], isr=[1], leader=1))
        for topic_id in (TOPIC, COPY):
            self.image.apply(MirrorTopicRecord(topic_id=topic_id, mirror="m", source_topic_id=b"s" * 16))

    async def submit(self, command: Any) -> None:
        self.submitted.append(command)


class World:
    """A broker that leads the only partition of offsets, but not the copy of the source's."""

    def __init__(self) -> None:
        self.quorum = Quorum()
        self.groups = GroupCoordinator(
            LIMITS,
            Clock(),
            lambda: 1,
            lambda: self.quorum.image.topics,
            is_withheld=lambda group_id, partition: self.takeover.is_withheld(group_id, partition),
        )
        caught_up: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        caught_up.set_result(ErrorCode.NONE)
        partition = SimpleNamespace(
            leader_epoch=4,
            log=SimpleNamespace(log_end_offset=0),
            high_watermark_at=lambda _offset: caught_up,
        )
        replicas = SimpleNamespace(find=lambda *_: partition, find_by_id=lambda *_: None)
        self.takeover = OffsetTakeover(
            1,
            cast(Any, replicas),
            cast(Any, self.quorum),
            self.groups,
            cast(Any, SimpleNamespace(have_a_place=self._place)),
            lambda: 5,
        )

    async def _place(self) -> None:
        pass

    @property
    def shard(self) -> Shard:
        return self.groups.led()[0]

    async def has(self, group_id: str, offset: int, mirror: str = "") -> None:
        """Commit an offset for a group or a mirror."""
        await commit(self.shard, group_id, {T0: CommittedOffset(offset, -1, "", 1, TOPIC, mirror)})

    def due(self, **offsets: int) -> None:
        """Promote at a cut where these groups had these offsets."""
        image = self.quorum.image
        image.apply(MirrorOffsetsDueRecord(mirror="m", topic_id=COPY))
        mirrored = [
            MirroredOffset(group=name, topic_id=TOPIC, offset=offset) for name, offset in offsets.items()
        ]
        image.apply(MirrorOffsetsToldRecord(mirror="m", is_last=True, offsets=mirrored))
        self.takeover.image_changed(image)

    async def taken(self) -> None:
        """Return once the quorum knows that all is done."""

        async def look() -> bool:
            return bool(self.quorum.submitted)

        await until(look, "a report")
        report = self.quorum.submitted[0]
        assert isinstance(report, ReportOffsetsTaken)
        assert (
            report.topic_id,
            [(partition.partition, partition.leader_epoch) for partition in report.partitions],
        ) == (
            OWN_ID,
            [(0, 4)],
        )

    def offset(self, group_id: str) -> int | None:
        found = self.shard.offsets.get(group_id, T0)
        return None if found is None else found.offset


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.groups.elected(0, MemoryLog())

    async def is_loaded() -> bool:
        return bool(world.groups.led())

    await until(is_loaded, "a shard")
    yield world
    await world.takeover.close()
    world.groups.close()


async def test_a_group_goes_on_where_it_was_at_the_cut(world: World) -> None:
    await world.has("g", 50, "m")
    world.due(g=30, g2=7)
    await world.taken()
    assert (world.offset("g"), world.offset("g2")) == (30, 7)
    assert world.shard.offsets.of_group("g")[T0].mirror == "", "later commits are its own"


async def test_what_came_from_the_source_behind_the_cut_goes(world: World) -> None:
    await world.has("g", 50, "m")
    await world.has("g2", 50, "another")
    await world.has("g3", 50)
    world.due()
    await world.taken()
    assert [world.offset(group) for group in ("g", "g2", "g3")] == [None, 50, 50]


async def test_all_that_came_from_a_source_without_offsets_at_the_cut_goes(world: World) -> None:
    await world.has("g", 50, "m")
    await world.has("g2", 50)
    world.quorum.image.apply(MirrorOffsetsDueRecord(mirror="m", topic_id=ZERO_UUID))
    world.takeover.image_changed(world.quorum.image)
    with pytest.raises(KafkaError, match="being taken over"):
        world.groups.shard_for("g")
    await world.taken()
    assert [world.offset(group) for group in ("g", "g2")] == [None, 50]


async def test_whose_offsets_are_lost_keeps_its_own_up_to_the_cut(world: World) -> None:
    image = world.quorum.image
    copy = {"resumed_epoch": 2, "resumed_offset": 40, "promoted_epoch": 2}
    image.apply(MirrorPartitionRecord(topic_id=TOPIC, partition=0, **copy))
    await world.has("g", 30, "m")
    await world.has("g2", 50, "m")
    await world.has("g3", 50)
    image.apply(MirrorOffsetsDueRecord(mirror="m", topic_id=COPY))
    some = [MirroredOffset(group="g", topic_id=TOPIC, offset=7), MirroredOffset(group="g4", topic_id=TOPIC)]
    image.apply(MirrorOffsetsToldRecord(mirror="m", offsets=some))
    image.apply(MirrorOffsetsToldRecord(mirror="m", is_last=True, is_given_up=True))
    world.takeover.image_changed(image)
    await world.taken()
    assert [world.offset(group) for group in ("g", "g2", "g3", "g4")] == [30, 40, 50, None]


async def test_who_has_members_here_keeps_its_offsets(world: World) -> None:
    await world.has("g", 50)
    assert join(world.shard).error is ErrorCode.NONE
    assert world.shard.has_members("g")
    world.due(g=30)
    assert world.groups.shard_for("g") is world.shard
    await world.taken()
    assert world.offset("g") == 50


async def test_nobody_asks_for_offsets_that_are_yet_to_come(world: World) -> None:
    world.due(g=30)
    with pytest.raises(KafkaError, match="being taken over") as refusal:
        world.groups.shard_for("g")
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.groups.shard_for("other"), "a group that does not match"
    await world.taken()
    with pytest.raises(KafkaError, match="being taken over"):
        world.groups.shard_for("g")
    world.quorum.image.apply(MirrorOffsetsTakenRecord(mirror="m", partitions=[0]))
    assert world.groups.shard_for("g") is world.shard


async def test_what_is_done_is_not_done_again(world: World) -> None:
    world.due(g=30)
    await world.taken()
    world.quorum.image.apply(MirrorOffsetsTakenRecord(mirror="m", partitions=[0]))
    await world.has("g", 35)
    world.quorum.submitted.clear()
    world.takeover.image_changed(world.quorum.image)
    world.quorum.image.apply(MirrorOffsetsDoneRecord(mirror="m"))
    world.takeover.image_changed(world.quorum.image)
    assert world.offset("g") == 35
    assert not world.quorum.submitted
