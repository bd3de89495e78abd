"""Which topics a mirror copies: the source's topics that match, with their partitions and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...protocol.cluster_image import ClusterImage, TopicState
from ...protocol.errors import ErrorCode
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ...protocol.messages.mirror_commands import FollowTopics, MirroredTopic
from ...protocol.messages.topic_commands import NewTopicConfig
from ...protocol.mirror_table import (
    MIRRORED_SETTINGS,
    OF_THE_BROKERS,
    FaultKind,
    Mirror,
    MirrorPartition,
    MirrorTopic,
)
from ...protocol.schema import ZERO_UUID
from ..patterns import Pattern
from ..quorum.access import Quorum
from ..runtime.time_slices import pieces
from .lineages import copies_of_cluster
from .source import SourceCluster

TOPICS_AT_ONCE: Final = 100
_DEFAULT_CONFIG: Final = 5
"""DescribeConfigs' way to say that nobody has set a value."""


class TopicList:
    """Of one mirror."""

    def __init__(
        self,
        mirror: Mirror,
        source: SourceCluster,
        quorum: Quorum,
        pattern: Pattern,
        replication_factor: int,
        chance: Callable[[], int],
    ) -> None:
        """`replication_factor`: that of topics here. A copy has as many replicas, and no fewer than at its source."""
        self.skipped: dict[str, str] = {}
        """Topics that match, and are not copied: why."""
        self._mirror = mirror
        self._source = source
        self._quorum = quorum
        self._pattern = pattern
        self._replication_factor = replication_factor
        self._chance = chance

    async def bring_up_to_date(self, metadata: MetadataResponse) -> None:
        """Have all that match, as the source has them now. `metadata` is of all topics. Raises KafkaError."""
        wanted = [topic for topic in metadata.topics if self._wants(topic)]
        skipped: dict[str, str] = {}
        for some in pieces(wanted, TOPICS_AT_ONCE):
            settings = await self._settings([topic.name or "" for topic in some], metadata)
            topics = [
                _as_wanted(topic, settings.get(topic.name or "", {}), self._replication_factor)
                for topic in some
            ]
            news = [topic for topic in topics if _is_news(self._quorum.image, self._mirror.name, topic)]
            loops = await self._loops(news, metadata)
            skipped |= loops
            news = [topic for topic in news if topic.name not in loops]
            if news:
                command = FollowTopics(mirror=self._mirror.name, topics=news, seed=self._chance())
                for result in (await self._quorum.submit(command)).topics:
                    if result.error_code:
                        skipped[result.name] = result.error_message
        self.skipped = skipped

    async def _loops(self, news: Iterable[MirroredTopic], metadata: MetadataResponse) -> dict[str, str]:
        """Topics that would be made here as copies of copies of topics that were here."""
        image = self._quorum.image
        unknown = {topic.name for topic in news if topic.name not in image.topics}
        if not unknown:
            return {}
        copies = await copies_of_cluster(self._source, metadata, self._mirror.topics, image.cluster_id)
        return {
            name: f"it is itself a copy of this cluster, by the source's mirror {mirror!r}"
            for name, mirror in copies.items()
            if name in unknown
        }

    def has_all(self, metadata: MetadataResponse) -> bool:
        """Whether all that match are copied, with all their partitions, but for those that cannot be. `metadata` is of
        all topics."""
        return all(
            _is_copied(self._quorum.image, self._mirror.name, topic)
            for topic in metadata.topics
            if self._wants(topic) and topic.name not in self.skipped
        )

    def _wants(self, topic: MetadataResponseTopic) -> bool:
        name = topic.name or ""
        return (
            topic.error_code == ErrorCode.NONE
            and not topic.is_internal
            and not name.startswith(OF_THE_BROKERS)
            and self._pattern.fullmatch(name) is not None
        )

    async def _settings(
        self, names: Iterable[str], metadata: MetadataResponse
    ) -> Mapping[str, Mapping[str, str]]:
        """What somebody has set, of that which copies take over."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=ResourceType.TOPIC,
                    resource_name=name,
                    configuration_keys=list(MIRRORED_SETTINGS),
                )
                for name in names
            ]
        )
        answer = await self._source.ask(metadata.brokers[0].node_id, request)
        return {
            result.resource_name: {
                config.name: config.value
                for config in result.configs
                if config.value is not None and config.config_source != _DEFAULT_CONFIG
            }
            for result in answer.results
            if result.error_code == ErrorCode.NONE
        }


def _as_wanted(
    topic: MetadataResponseTopic, settings: Mapping[str, str], replication_factor: int
) -> MirroredTopic:
    return MirroredTopic(
        name=topic.name or "",
        source_topic_id=topic.topic_id,
        partitions=len(topic.partitions),
        replication_factor=max(replication_factor, *(len(one.replica_nodes) for one in topic.partitions)),
        configs=[NewTopicConfig(name=key, value=value) for key, value in sorted(settings.items())],
    )


def _is_news(image: ClusterImage, mirror: str, wanted: MirroredTopic) -> bool:
    """Whether there is anything to do about a topic, as far as this broker knows."""
    topic = image.topics.get(wanted.name)
    copy = None if topic is None else image.mirrors.topics.get(topic.id)
    if topic is None or copy is None or copy.mirror != mirror:
        return True
    present = image.configs.get((ResourceType.TOPIC, wanted.name), {})
    here = {key: present[key] for key in MIRRORED_SETTINGS if key in present}
    there = {config.name: config.value for config in wanted.configs}
    if wanted.source_topic_id not in (ZERO_UUID, copy.source_topic_id):
        return copy.source_topic_id == ZERO_UUID or not _is_known_anew(topic, copy)
    return len(topic.partitions) < wanted.partitions or here != there


def _is_copied(image: ClusterImage, mirror: str, theirs: MetadataResponseTopic) -> bool:
    topic = image.topics.get(theirs.name or "")
    copy = None if topic is None else image.mirrors.topics.get(topic.id)
    return (
        topic is not None
        and copy is not None
        and copy.mirror == mirror
        and copy.source_topic_id == theirs.topic_id
        and len(topic.partitions) >= len(theirs.partitions)
    )


def _is_known_anew(topic: TopicState, copy: MirrorTopic) -> bool:
    """Whether the quorum has stopped the copy of each partition for that."""
    faults = [copy.partitions.get(index, MirrorPartition()).fault for index in topic.partitions]
    return all(fault is not None and fault.kind is FaultKind.MADE_ANEW for fault in faults)
