"""The cluster that is backed up: its topics, a cut through its partitions, and what else a backup keeps."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ....protocol.cluster.mirror_table import MIRRORED_SETTINGS
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.list_offsets import EARLIEST, LATEST
from ....protocol.wire.schema import ZERO_UUID
from ...backup.cut_file import OFFSETS_TOPIC, GroupOffsets
from ...connections.metadata import TopicInfo
from ...failures import BackupRefused
from ...records import TopicPartition
from ..by_partition import settled
from ..values import TOPIC_RESOURCE
from .calls import BackupCalls

_DEFAULT: Final = "default"
_OF_TOPIC: Final = "topic"
_BROKERS_OWN: Final = "__"
_NOT_TOLD: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors of a source that does not tell ACLs or quotas, or not to this user."""


@dataclass(frozen=True, slots=True)
class FoundCut:
    """A cut of the source: the offset at which it divides each partition, and what the cluster had then."""

    time_ms: int
    commit_index: int | None
    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    app_versions: Mapping[str, int] = field(default_factory=dict)
    groups: GroupOffsets = field(default_factory=dict)


class SourceOfBackup:
    """The cluster that is backed up, as its admin client sees it."""

    def __init__(self, admin: BackupCalls, topics: str, groups: str) -> None:
        """`topics` and `groups` are patterns of whole names; an empty `groups` stands for no groups."""
        self.topics_pattern = topics
        self.groups_pattern = groups
        self._admin = admin
        self._topics = re.compile(topics)
        self._groups = re.compile(groups) if groups else None
        self._tells_cuts: bool | None = None

    async def cluster_id(self) -> str:
        """Return the id of the cluster. Raises BackupRefused for a cluster that has none."""
        found = await self._admin.describe_cluster()
        if not found.cluster_id:
            raise BackupRefused("the cluster tells no cluster id: it is too old")
        return found.cluster_id

    async def topics(self) -> dict[str, TopicInfo]:
        """Return the topics of the backup, by name: those that match, and the topic of committed offsets.

        Raises BackupRefused for a cluster without topic ids, and for a user who may not read committed offsets.
        """
        wants_offsets = self._groups is not None and await self._has_cuts()
        metadata = await self._admin.session.metadata()
        if wants_offsets and OFFSETS_TOPIC not in metadata.topics:
            await self._check_offsets_are_seen()
        chosen: dict[str, TopicInfo] = {}
        for name, known in sorted(metadata.topics.items()):
            is_offsets = name == OFFSETS_TOPIC and wants_offsets
            if not is_offsets and not self._wants(name, is_internal=known.is_internal):
                continue
            if known.error:
                raise KafkaError(known.error, f"topic {name!r}: {known.error.message}")
            if known.id == ZERO_UUID:
                raise BackupRefused("the cluster has no topic ids: backups need Apache Kafka 2.8 or later")
            chosen[name] = known.info()
        return chosen

    def _wants(self, name: str, *, is_internal: bool) -> bool:
        return not is_internal and not name.startswith(_BROKERS_OWN) and bool(self._topics.fullmatch(name))

    async def _has_cuts(self) -> bool:
        """Return whether the cluster is of Ottla, and tells cuts."""
        if self._tells_cuts is None:
            try:
                await self._admin.find_cut([])
                self._tells_cuts = True
            except KafkaError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                self._tells_cuts = False
        return self._tells_cuts

    async def _check_offsets_are_seen(self) -> None:
        """Raise BackupRefused if the topic of committed offsets is there, and the user may not see it."""
        named = (await self._admin.session.metadata([OFFSETS_TOPIC])).topics.get(OFFSETS_TOPIC)
        if named is not None and named.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise BackupRefused(
                f"committed offsets need READ and DESCRIBE on the topic {OFFSETS_TOPIC}; --groups '' leaves them out"
            )

    async def find(self) -> tuple[dict[str, TopicInfo], FoundCut]:
        """Return the topics, and a cut through all of their partitions.

        A topic or partition that appears after the list was made may be part of a transaction below the cut. So the
        list is made again after the cut, until it stays the same.
        """
        while True:
            topics = await self.topics()
            found = await self._find(topics)
            again = await self.topics()
            if _places(again) == _places(topics):
                return topics, found

    async def _find(self, topics: Mapping[str, TopicInfo]) -> FoundCut:
        places = sorted(partition for _, partition in _places(topics))
        time_ms = int(time.time() * 1000)
        if not await self._has_cuts():
            return await self._without_cut(time_ms, places)
        cut = await self._admin.find_cut(places)
        offsets = settled(await self._admin.cut_offsets(cut, places))
        starts = await self._starts(places)
        versions = await self._admin.app_versions_at(cut)
        ends = {place: offset.offset for place, offset in offsets.items()}
        return FoundCut(time_ms, cut.commit_index, ends, starts, versions.versions)

    async def _without_cut(self, time_ms: int, places: Sequence[TopicPartition]) -> FoundCut:
        # The groups come first, so that no committed offset is after the end of a partition.
        groups = await self._committed()
        ends = settled(await self._admin.list_offsets(dict.fromkeys(places, LATEST)))
        return FoundCut(time_ms, None, ends, await self._starts(places), groups=groups)

    async def _starts(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return settled(await self._admin.list_offsets(dict.fromkeys(places, EARLIEST)))

    async def _committed(self) -> GroupOffsets:
        if self._groups is None:
            return {}
        listed = [
            group for group in await self._admin.list_groups() if self._groups.fullmatch(group.group_id)
        ]
        committed: dict[str, dict[str, dict[int, int]]] = {}
        for group, offsets in (await self._admin.committed_offsets_of_groups(listed)).items():
            if isinstance(offsets, KafkaError):
                raise offsets
            for place, offset in offsets.items():
                committed.setdefault(group, {}).setdefault(place.topic, {})[place.partition] = offset
        return committed

    async def settings(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic that a backup keeps. Raises KafkaError.

        These are the settings of the topic itself. Settings of the cluster are kept where they decide how long records
        stay, or which records fit.
        """
        entries = await self._admin.describe_configs(TOPIC_RESOURCE, topic)
        return {
            entry.name: entry.value
            for entry in entries
            if entry.value is not None
            and (entry.source == _OF_TOPIC or (entry.name in MIRRORED_SETTINGS and entry.source != _DEFAULT))
        }

    async def acls(self) -> tuple[tuple[Any, ...], ...] | KafkaError:
        """Return all ACLs of the cluster, or the reason why it does not tell them."""
        try:
            return tuple(tuple(acl) for acl in await self._admin.describe_acls())
        except KafkaError as error:
            if error.code not in _NOT_TOLD:
                raise
            return error

    async def quotas(self) -> tuple[tuple[Mapping[str, str | None], Mapping[str, float]], ...] | KafkaError:
        """Return all client quotas of the cluster, or the reason why it does not tell them."""
        try:
            return tuple((dict(entity), values) for entity, values in await self._admin.describe_quotas())
        except KafkaError as error:
            if error.code not in _NOT_TOLD:
                raise
            return error


def _places(topics: Mapping[str, TopicInfo]) -> set[tuple[bytes, TopicPartition]]:
    return {
        (info.id, TopicPartition(name, index)) for name, info in topics.items() for index in info.partitions
    }
