"""Which topics a mirror copies: the source's topics that match, with their partitions and settings.

If groups follow, and the source tells cuts, the topic of its committed offsets is copied, too: a promotion at a cut
takes the offsets out of that copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage, TopicState
from ...protocol.cluster.mirror_table import (
    MIRRORED_SETTINGS,
    OF_THE_BROKERS,
    FaultKind,
    Mirror,
    MirrorPartition,
    MirrorTopic,
    offsets_copy,
)
from ...protocol.errors import ErrorCode
from ...protocol.features import MIRROR, MIRROR_WITH_OFFSETS, finalized
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ...protocol.messages.mirror_commands import FollowTopics, MirroredTopic
from ...protocol.messages.topic_commands import NewTopicConfig
from ...protocol.wire.schema import ZERO_UUID
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..patterns import Pattern
from ..quorum.access import Quorum
from ..runtime.matching import matching
from ..runtime.time_slices import pieces
from .first_cut import tells_offsets
from .source import SourceCluster
from .topic_history import copies_of_cluster, is_ottla

TOPICS_AT_ONCE: Final = 100
OFFSETS_STAY_MS: Final = 3_600_000
"""How long an offset stays in the copy of them, though a newer one has come."""
_DEFAULT_CONFIG: Final = 5
"""DescribeConfigs' way to say that nobody has set a value."""
_NEEDS_SETTINGS: Final = (
    "the mirror's user needs DESCRIBE_CONFIGS on it at the source, to know how long records stay"
)


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
        self.offsets_trouble = (
            "the source was not asked yet for its committed offsets" if mirror.groups else ""
        )
        """Why committed offsets are not copied that should be."""
        self.has_offsets = False
        """Whether all committed offsets are copied that the source has, when `has_all` says so."""
        self._mirror = mirror
        self._source = source
        self._quorum = quorum
        self._pattern = pattern
        self._replication_factor = replication_factor
        self._chance = chance
        self._tells_cuts: bool | None = None
        # Whether each of the source's topics matches the pattern, as of the last round.
        self._matches: Mapping[str, bool] = {}

    async def bring_up_to_date(self, metadata: MetadataResponse) -> None:
        """Have all that match, as the source has them now. `metadata` is of all topics. Raises KafkaError."""
        await self._look_at_offsets(metadata)
        names = [topic.name or "" for topic in metadata.topics]
        matched = set(await matching(self._pattern, names))
        self._matches = {name: name in matched for name in names}
        wanted = [topic for topic in metadata.topics if self._wants(topic)]
        skipped: dict[str, str] = {}
        for some in pieces(wanted, TOPICS_AT_ONCE):
            settings, refused = await self._settings([topic.name or "" for topic in some], metadata)
            topics = [
                self._as_wanted(topic, settings.get(topic.name or "", {}))
                for topic in some
                if topic.name not in refused
            ]
            skipped |= {name: why for name, why in refused.items() if why}
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
        return not self.offsets_trouble and all(
            _is_copied(self._quorum.image, self._mirror.name, self._name_here(topic), topic)
            for topic in metadata.topics
            if self._wants(topic) and topic.name not in self.skipped
        )

    @property
    def _wants_offsets(self) -> bool:
        level = finalized(self._quorum.image.features)[MIRROR]
        return bool(self._mirror.groups) and level >= MIRROR_WITH_OFFSETS and self._tells_cuts is True

    async def _look_at_offsets(self, metadata: MetadataResponse) -> None:
        """Whether committed offsets are copied, and whether they can be. Raises KafkaError."""
        if self._tells_cuts is None and self._mirror.groups:
            self._tells_cuts = await is_ottla(self._source, metadata)
        wanted, trouble = self._wants_offsets, ""
        is_unseen = all(topic.name != OFFSETS_TOPIC for topic in metadata.topics)
        if wanted and is_unseen and not await tells_offsets(self._source):
            trouble = f"the mirror's user needs DESCRIBE and READ on {OFFSETS_TOPIC} of the source"
        self.offsets_trouble, self.has_offsets = trouble, wanted

    def _name_here(self, topic: MetadataResponseTopic) -> str:
        return offsets_copy(self._mirror.name) if topic.name == OFFSETS_TOPIC else topic.name or ""

    def _as_wanted(self, topic: MetadataResponseTopic, settings: Mapping[str, str]) -> MirroredTopic:
        if topic.name == OFFSETS_TOPIC:
            settings = {**settings, **_offsets_settings(settings)}
        return MirroredTopic(
            name=self._name_here(topic),
            source_topic_id=topic.topic_id,
            partitions=len(topic.partitions),
            replication_factor=max(
                self._replication_factor, *(len(one.replica_nodes) for one in topic.partitions)
            ),
            configs=[NewTopicConfig(name=key, value=value) for key, value in sorted(settings.items())],
        )

    def _wants(self, topic: MetadataResponseTopic) -> bool:
        name = topic.name or ""
        if name == OFFSETS_TOPIC:
            return topic.error_code == ErrorCode.NONE and self._wants_offsets
        return (
            topic.error_code == ErrorCode.NONE
            and not topic.is_internal
            and not name.startswith(OF_THE_BROKERS)
            and self._matches_pattern(name)
        )

    def _matches_pattern(self, name: str) -> bool:
        """Return what is known since the last round, or find it out for a topic that has come since."""
        known = self._matches.get(name)
        return self._pattern.fullmatch(name) if known is None else known

    async def _settings(
        self, names: Iterable[str], metadata: MetadataResponse
    ) -> tuple[Mapping[str, Mapping[str, str]], Mapping[str, str]]:
        """What somebody has set, of that which copies take over. Where the source does not tell it a copy keeps what it
        has: another `cleanup.policy` or retention might delete its records. For the same reason none is made then: for
        which topics, and why if that lasts."""
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
        settings: dict[str, Mapping[str, str]] = {}
        refused: dict[str, str] = {}
        for result in answer.results:
            name = result.resource_name
            if result.error_code == ErrorCode.NONE:
                settings[name] = {
                    config.name: config.value
                    for config in result.configs
                    if config.value is not None and config.config_source != _DEFAULT_CONFIG
                }
            elif name == OFFSETS_TOPIC:
                settings[name] = {}  # its copy has those that count whatever the source says
            elif name in self._quorum.image.topics:
                settings[name] = _settings_here(self._quorum.image, name)
            else:
                is_denied = result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused[name] = _NEEDS_SETTINGS if is_denied else ""
        return settings, refused


def _offsets_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """What is different for the copy of committed offsets. An offset as of a cut is not to go for a newer one that lies
    behind it."""
    lag_ms = max(OFFSETS_STAY_MS, int(settings.get("min.compaction.lag.ms", 0)))
    return {"cleanup.policy": "compact", "min.compaction.lag.ms": str(lag_ms)}


def _settings_here(image: ClusterImage, topic: str) -> dict[str, str]:
    present = image.configs.get((ResourceType.TOPIC, topic), {})
    return {key: present[key] for key in MIRRORED_SETTINGS if key in present}


def _is_news(image: ClusterImage, mirror: str, wanted: MirroredTopic) -> bool:
    """Whether there is anything to do about a topic, as far as this broker knows."""
    topic = image.topics.get(wanted.name)
    copy = None if topic is None else image.mirrors.topics.get(topic.id)
    if topic is None or copy is None or copy.mirror != mirror:
        return True
    here = _settings_here(image, wanted.name)
    there = {config.name: config.value for config in wanted.configs}
    if wanted.source_topic_id not in (ZERO_UUID, copy.source_topic_id):
        return copy.source_topic_id == ZERO_UUID or not _is_known_anew(topic, copy)
    return len(topic.partitions) < wanted.partitions or here != there


def _is_copied(image: ClusterImage, mirror: str, name: str, theirs: MetadataResponseTopic) -> bool:
    topic = image.topics.get(name)
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
