"""Settings of a source's topics that the source does not report: a copy must not follow other rules."""

from __future__ import annotations

from ottla.dataplane.cluster.internal_topics import is_internal
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.config_commands import ResourceType
from ottla.protocol.messages.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.mirror_commands import MirroredTopic
from ottla.protocol.messages.mirror_records import MirrorTopicRecord
from tests.dataplane.mirroring.test_copied_offsets import COPY, THERE, World, as_told

TOPIC = "orders"
DENIED, UNKNOWN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _world(error: ErrorCode = ErrorCode.NONE, *, copied: bool = False) -> World:
    assert not is_internal(TOPIC)
    world = World(groups="")
    world.source.topics = [as_told(TOPIC)]
    _tell(world, error)
    if copied:
        world.image.apply(TopicRecord(topic_id=COPY, name=TOPIC))
        world.image.apply(MirrorTopicRecord(topic_id=COPY, mirror="m", source_topic_id=THERE))
        world.image.apply(PartitionRecord(topic_id=COPY, partition=0, replicas=[1], isr=[1], leader=1))
        for key, value in (("cleanup.policy", "compact"), ("retention.ms", "-1"), ("flush.ms", "5")):
            world.image.apply(
                ConfigRecord(
                    resource_type=ResourceType.TOPIC, resource_name=TOPIC, config_name=key, value=value
                )
            )
    return world


def _tell(world: World, error: ErrorCode) -> None:
    """Answer the request for the topic's settings with an error."""
    configs = [] if error else [DescribeConfigsResourceResult(name="cleanup.policy", value="compact")]
    world.source.configs = DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error, resource_type=ResourceType.TOPIC, resource_name=TOPIC, configs=configs
            )
        ]
    )


def _settings(topic: MirroredTopic) -> dict[str, str]:
    return {config.name: config.value for config in topic.configs}


async def test_a_copy_keeps_its_settings_while_the_source_does_not_tell_them() -> None:
    """A compacted topic would otherwise be deleted by age if the mirror's user lost DESCRIBE_CONFIGS."""
    for error in (DENIED, UNKNOWN):
        assert await _world(error, copied=True).look() == []


async def test_it_grows_all_the_same() -> None:
    world = _world(DENIED, copied=True)
    world.source.topics[0].partitions *= 2
    (wanted,) = await world.look()
    assert wanted.partitions == 2
    assert _settings(wanted) == {"cleanup.policy": "compact", "retention.ms": "-1"}


async def test_a_setting_that_the_source_tells_is_taken_over() -> None:
    (wanted,) = await _world(copied=True).look()
    assert _settings(wanted) == {"cleanup.policy": "compact"}


async def test_no_copy_is_made_whose_settings_may_not_be_read() -> None:
    world = _world(DENIED)
    assert await world.look() == []
    assert "DESCRIBE_CONFIGS" in world.topics.skipped[TOPIC]
    _tell(world, ErrorCode.NONE)
    (wanted,) = await world.look()
    assert _settings(wanted) == {"cleanup.policy": "compact"}
    assert world.topics.skipped == {}


async def test_a_topic_whose_settings_are_not_told_yet_is_still_to_come() -> None:
    world = _world(UNKNOWN)
    assert await world.look() == []
    assert world.topics.skipped == {}
    assert not world.topics.has_all(world.source.everything), "a cut would lack it"
