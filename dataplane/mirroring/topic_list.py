"""The topics that a mirror copies: the source's topics that match, with their partitions and settings.

If groups are copied and the source reports cuts, the topic of its committed offsets is copied, too. A promotion at a
cut reads the offsets from that copy.
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
from ...protocol.settings.config_fields import default_text
from ...protocol.wire.schema import ZERO_UUID
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..patterns import Pattern
from ..quorum.access import Quorum
from ..runtime.matching import matching
from ..runtime.time_slices import pieces
from .first_cut import tells_offsets
from .source import SourceCluster
from .topic_history import KnownCopies, is_ottla, known_copies

TOPICS_AT_ONCE: Final = 100
OFFSETS_STAY_MS: Final = 3_600_000
"""Minimum time for which an offset remains in the copy of the offsets topic after a newer one was committed."""
_LAG: Final = "min.compaction.lag.ms"
_DEFAULT_CONFIG: Final = 5
"""DescribeConfigs' code for a value that no user has set."""
_NEEDS_SETTINGS: Final = (
    "the mirror's user needs DESCRIBE_CONFIGS on it at the source, to know how long records stay"
)


class TopicList:
    """The topics that one mirror copies: it compares them with the source's topics, and has the quorum create and
    change copies.
    """

    def __init__(
        self,
        mirror: Mirror,
        source: SourceCluster,
        quorum: Quorum,
        pattern: Pattern,
        replication_factor: int,
        chance: Callable[[], int],
    ) -> None:
        """`replication_factor`: the default of this cluster's topics. A copy has at least this number of replicas, and
        at least the number at its source."""
        self.skipped: dict[str, str] = {}
        """Topics that match but are not copied, with the reason."""
        self.offsets_trouble = (
            "the source was not asked yet for its committed offsets" if mirror.groups else ""
        )
        """Reason why committed offsets are not copied although they should be; empty if there is none."""
        self.has_offsets = False
        """True if all committed offsets of the source are copied, provided that `has_all` returns True."""
        self._mirror = mirror
        self._source = source
        self._quorum = quorum
        self._pattern = pattern
        self._replication_factor = replication_factor
        self._chance = chance
        self._tells_cuts: bool | None = None
        # Result of the pattern for each topic of the source, in the last round.
        self._matches: Mapping[str, bool] = {}

    async def bring_up_to_date(self, metadata: MetadataResponse) -> None:
        """Create and change copies to match the source's topics. `metadata` contains all topics. Raises KafkaError."""
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
            copies = await self._copies(news, metadata)
            skipped |= {
                name: f"it is itself a copy of this cluster, by the source's mirror {mirror!r}"
                for name, mirror in copies.loops.items()
            }
            news = [topic for topic in news if topic.name not in copies.loops]
            # A topic with this id may have been deleted here, and positions of its readers be ahead of the new copy.
            # The quorum gives the copy an id of its own if the command names none, and then learns the source's id.
            came_back = [topic for topic in news if topic.name in copies.with_former_ids]
            without_ids = [_without_id(topic) for topic in came_back]
            skipped |= await self._follow(
                [*(topic for topic in news if topic not in came_back), *without_ids]
            )
            await self._follow([topic for topic in came_back if topic.name not in skipped])
        self.skipped = skipped

    async def _follow(self, topics: list[MirroredTopic]) -> dict[str, str]:
        """Have the quorum create or change copies, and return the topics that it refuses, with the reason."""
        if not topics:
            return {}
        command = FollowTopics(mirror=self._mirror.name, topics=topics, seed=self._chance())
        results = (await self._quorum.submit(command)).topics
        return {result.name: result.error_message for result in results if result.error_code}

    async def _copies(self, news: Iterable[MirroredTopic], metadata: MetadataResponse) -> KnownCopies:
        """Return the source's copies among the topics that this cluster does not have. Raises KafkaError."""
        image = self._quorum.image
        unknown = {topic.name for topic in news if topic.name not in image.topics}
        if not unknown:
            return KnownCopies()
        copies = await known_copies(self._source, metadata, self._mirror.topics, image.cluster_id)
        loops = {name: mirror for name, mirror in copies.loops.items() if name in unknown}
        return KnownCopies(loops, copies.with_former_ids & unknown)

    def has_all(self, metadata: MetadataResponse) -> bool:
        """Return whether all matching topics are copied with all partitions, apart from skipped topics. `metadata`
        contains all topics."""
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
        """Determine whether committed offsets of the source's groups are to be copied, and whether the mirror's user
        may read them. Raises KafkaError.
        """
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
                self._replication_factor, *(len(part.replica_nodes) for part in topic.partitions)
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
        """Return whether a topic name matches the mirror's pattern, from the last round if the topic was known then."""
        known = self._matches.get(name)
        return self._pattern.fullmatch(name) if known is None else known

    async def _settings(
        self, names: Iterable[str], metadata: MetadataResponse
    ) -> tuple[Mapping[str, Mapping[str, str]], Mapping[str, str]]:
        """Return the settings of each topic that copies take over, and the topics whose settings are not reported.

        If the settings are missing, an existing copy keeps its own, and no new copy is created: another
        `cleanup.policy` or retention might delete records. The second mapping has the reason for each such topic; an
        empty reason is temporary.
        """
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
                settings[name] = {}  # Committed offsets are copied under fixed settings.
            elif name in self._quorum.image.topics:
                settings[name] = _settings_here(self._quorum.image, name)
            else:
                is_denied = result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused[name] = _NEEDS_SETTINGS if is_denied else ""
        return settings, refused


def _without_id(topic: MirroredTopic) -> MirroredTopic:
    return MirroredTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=topic.configs,
    )


def _offsets_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the copy of committed offsets that differ from the source's. Compaction must not remove an
    offset before a cut in favour of a newer one after the cut."""
    lag_ms = max(OFFSETS_STAY_MS, int(settings.get(_LAG, default_text(_LAG))))
    return {"cleanup.policy": "compact", _LAG: str(lag_ms)}


def _settings_here(image: ClusterImage, topic: str) -> dict[str, str]:
    present = image.configs.get((ResourceType.TOPIC, topic), {})
    return {key: present[key] for key in MIRRORED_SETTINGS if key in present}


def _is_news(image: ClusterImage, mirror: str, wanted: MirroredTopic) -> bool:
    """Return whether a copy has to be created or changed to become `wanted`, as far as this broker knows."""
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
    """Return whether the quorum has already recorded that the source topic was recreated, and stopped the copy of each
    partition.
    """
    faults = [copy.partitions.get(index, MirrorPartition()).fault for index in topic.partitions]
    return all(fault is not None and fault.kind is FaultKind.MADE_ANEW for fault in faults)
