"""The conditions under which a mirror copies the topic of the source's committed offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC, is_internal
from ottla.dataplane.mirroring.topic_list import OFFSETS_STAY_MS, TopicList
from ottla.dataplane.patterns import compile_pattern
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import offsets_copy
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MIRROR, MIRROR_WITH_OFFSETS
from ottla.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.messages.failback import DescribeLineagesRequest, DescribeLineagesResponse
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.metadata_records import FeatureLevelRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.mirror_commands import FollowTopics, FollowTopicsResult, MirroredTopic
from ottla.protocol.messages.mirror_records import MirrorRecord, MirrorTopicRecord

THERE, COPY = b"s" * 16, b"c" * 16


def as_told(name: str, error: ErrorCode = ErrorCode.NONE) -> MetadataResponseTopic:
    partitions = [MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1])]
    return MetadataResponseTopic(
        name=name, topic_id=THERE, error_code=error, is_internal=is_internal(name), partitions=partitions
    )


class Source:
    """A cluster with one broker."""

    def __init__(self) -> None:
        self.is_ottla = True
        self.failure: KafkaError | None = None
        self.told_by_name = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        """Error for a request for the offsets topic alone."""
        self.topics = [as_told(OFFSETS_TOPIC)]
        self.configs = DescribeConfigsResponse()

    @property
    def everything(self) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1)], topics=self.topics)

    async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        return MetadataResponse(topics=[as_told(name, self.told_by_name) for name in topics])

    async def ask(self, _broker_id: int, message: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        if isinstance(message, DescribeLineagesRequest):
            if not self.is_ottla:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            return DescribeLineagesResponse()
        assert isinstance(message, DescribeConfigsRequest)
        return self.configs


class World:
    def __init__(self, groups: str = "g.*", level: int = MIRROR_WITH_OFFSETS) -> None:
        self.image = ClusterImage()
        self.followed: list[MirroredTopic] = []
        for record in (
            FeatureLevelRecord(feature=MIRROR, level=level),
            MirrorRecord(name="m", source_cluster_id="there", topics=".*", groups=groups, phase=1),
        ):
            self.image.apply(record)
        self.source = Source()
        self.topics = TopicList(
            self.image.mirrors.by_name["m"],
            cast(Any, self.source),
            cast(Any, self),
            compile_pattern(".*", "topics"),
            1,
            lambda: 1,
        )

    async def submit(self, command: FollowTopics) -> FollowTopicsResult:
        """Accept the command as the quorum would, with an empty result."""
        self.followed += command.topics
        return FollowTopicsResult()

    async def look(self) -> list[MirroredTopic]:
        """Return the topics that the quorum is asked to copy."""
        await self.topics.bring_up_to_date(self.source.everything)
        return self.followed

    def copied(self) -> None:
        """Change the image as the quorum would."""
        self.image.apply(TopicRecord(topic_id=COPY, name=offsets_copy("m")))
        self.image.apply(MirrorTopicRecord(topic_id=COPY, mirror="m", source_topic_id=THERE))
        self.image.apply(PartitionRecord(topic_id=COPY, partition=0, replicas=[1], isr=[1], leader=1))


async def test_offsets_of_ottla_are_copied_under_a_name_of_their_own() -> None:
    world = World()
    (wanted,) = await world.look()
    assert (wanted.name, wanted.source_topic_id, wanted.partitions) == (offsets_copy("m"), THERE, 1)
    settings = {config.name: config.value for config in wanted.configs}
    assert settings == {"cleanup.policy": "compact", "min.compaction.lag.ms": str(OFFSETS_STAY_MS)}
    assert not world.topics.has_all(world.source.everything)
    world.copied()
    assert world.topics.has_all(world.source.everything)
    assert world.topics.has_offsets


@pytest.mark.parametrize("world", [World(groups=""), World(level=2)])
async def test_offsets_are_not_copied_that_nobody_takes_over(world: World) -> None:
    assert await world.look() == []
    assert world.topics.has_all(world.source.everything)
    assert not world.topics.has_offsets


async def test_offsets_of_a_source_without_cuts_are_not_copied() -> None:
    world = World()
    world.source.is_ottla = False
    assert await world.look() == []
    assert world.topics.has_all(world.source.everything)
    assert not world.topics.has_offsets


async def test_who_has_not_asked_for_offsets_yet_does_not_take_them_for_none() -> None:
    world = World()
    world.source.failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "slow")
    for _ in range(2):
        assert not world.topics.has_all(MetadataResponse())
        assert "not asked yet" in world.topics.offsets_trouble
        with pytest.raises(KafkaError, match="slow"):
            await world.look()
    world.source.failure = None
    world.source.topics = []
    await world.look()
    assert world.topics.has_all(MetadataResponse())
    assert world.topics.has_offsets


async def test_a_cut_has_offsets_only_once_it_was_looked_whether_they_may_be_read() -> None:
    world = World(level=2)
    world.source.topics = []
    await world.look()
    world.image.apply(FeatureLevelRecord(feature=MIRROR, level=MIRROR_WITH_OFFSETS))
    assert not world.topics.has_offsets
    await world.look()
    assert world.topics.has_offsets


async def test_offsets_that_may_not_be_read_are_no_offsets_that_are_not_there() -> None:
    world = World()
    world.source.topics = []
    await world.look()
    assert world.topics.has_all(world.source.everything), "the source has no groups yet"
    world.source.told_by_name = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await world.look()
    assert not world.topics.has_all(world.source.everything)
    assert OFFSETS_TOPIC in world.topics.offsets_trouble
