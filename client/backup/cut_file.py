"""The content of a cut's object: everything of a cluster but its records, and the offsets at which the cut divides
each partition. Pure.

The object is JSON, compressed by zlib. A reader refuses a later format, and more than CUT_BYTES_MAX bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..failures import BackupUnusable
from .names import CutId, PartitionFolder
from .values import BackupCut, BackupTopic, MissedRecords

FORMAT: Final = 1
CUT_BYTES_MAX: Final = 512 << 20
OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The topic of committed offsets. Its copy has the offsets of all groups as of each cut."""
GroupOffsets = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Committed offsets, by group, topic and partition."""


@dataclass(frozen=True, slots=True)
class BackedPartition:
    """A partition in a backup: the records from `start` to `end` in the segments of one generation."""

    index: int
    generation: int
    start: int
    """The offset at which the log of the source began."""
    end: int
    """The offset at which the cut divides the partition: a batch ends there."""
    leader_epoch: int
    """The leader epoch of the source in which `end` was found."""
    lineage: tuple[tuple[int, int], ...]
    """The leader epochs of the copied records: pairs of an epoch and its first offset."""


@dataclass(frozen=True, slots=True)
class BackedTopic:
    """A topic in a backup: its name, id, settings and partitions."""

    name: str
    topic_id: bytes
    replication_factor: int
    settings: Mapping[str, str]
    partitions: tuple[BackedPartition, ...]

    def folder(self, partition: BackedPartition) -> PartitionFolder:
        """Return the place of a partition's segments."""
        return PartitionFolder(self.topic_id, partition.index, partition.generation)

    @property
    def offsets(self) -> int:
        """The number of offsets from the start of each partition to the cut."""
        return sum(partition.end - partition.start for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class CutFile:
    """The content of a cut."""

    cut: CutId
    time_ms: int
    """The time in ms since 1970 at which the source was asked for the cut, by the clock of the backup."""
    cluster_id: str
    commit_index: int | None
    """The commit index of the cut; None if the source has no cuts, and each partition ends by itself."""
    topics_pattern: str
    groups_pattern: str
    """The pattern of the groups whose offsets are in the backup; empty for none."""
    topics: tuple[BackedTopic, ...]
    groups: GroupOffsets = field(default_factory=dict)
    """The committed offsets, if `commit_index` is None. Otherwise the copy of the offsets topic has them."""
    app_versions: Mapping[str, int] = field(default_factory=dict)
    acls: tuple[tuple[Any, ...], ...] | None = None
    """The ACLs, each with the fields of `Acl`; None if the source has no authorizer, or did not tell them."""
    quotas: tuple[tuple[Mapping[str, str | None], Mapping[str, float]], ...] | None = None
    missed: tuple[MissedRecords, ...] = ()
    """Records that were deleted between the previous cut and this cut without being copied."""
    left_out: tuple[str, ...] = ()
    """Parts of the source that are not in the backup, each with the reason."""

    @property
    def is_whole(self) -> bool:
        """True if the cut tears no transaction."""
        return self.commit_index is not None

    @property
    def user_topics(self) -> tuple[BackedTopic, ...]:
        """The topics without the topic of committed offsets."""
        return tuple(topic for topic in self.topics if topic.name != OFFSETS_TOPIC)

    @property
    def places(self) -> Iterator[tuple[BackedTopic, BackedPartition]]:
        """The partitions, each with its topic."""
        return ((topic, partition) for topic in self.topics for partition in topic.partitions)

    def described(self, copied: int | None = None) -> BackupCut:
        """Return the cut for programs. `copied`: the bytes that were copied for it; None if that is unknown."""
        return BackupCut(
            str(self.cut),
            self.time_ms,
            self.cluster_id,
            self.is_whole,
            tuple(
                BackupTopic(
                    topic.name, topic.topic_id, len(topic.partitions), topic.offsets, dict(topic.settings)
                )
                for topic in self.user_topics
            ),
            self.groups_pattern,
            None if self.acls is None else len(self.acls),
            None if self.quotas is None else len(self.quotas),
            self.missed,
            self.left_out,
            copied,
        )


def written(cut: CutFile) -> bytes:
    """Return the bytes of a cut's object."""
    text = json.dumps(_to_json(cut), separators=(",", ":"), ensure_ascii=True)
    return zlib.compress(text.encode("ascii"), 6)


def read(data: bytes, key: str) -> CutFile:
    """Return the cut in an object's bytes. Raises BackupUnusable with the object's key."""
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, CUT_BYTES_MAX)
        if not unpacking.eof:
            raise ValueError("it is cut short, or too large")
        content = json.loads(text)
        if content["format"] > FORMAT:
            raise BackupUnusable(f"{key} has format {content['format']}; this release reads {FORMAT}")
        return _of_json(content)
    except (zlib.error, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise BackupUnusable(f"{key} is no cut of a backup: {error}") from error


def _to_json(cut: CutFile) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "cut": list(cut.cut),
        "time_ms": cut.time_ms,
        "cluster_id": cut.cluster_id,
        "commit_index": cut.commit_index,
        "topics_pattern": cut.topics_pattern,
        "groups_pattern": cut.groups_pattern,
        "topics": [_topic_to_json(topic) for topic in cut.topics],
        "groups": cut.groups,
        "app_versions": dict(cut.app_versions),
        "acls": cut.acls,
        "quotas": cut.quotas,
        "missed": [[each.topic, each.partition, each.first, each.end] for each in cut.missed],
        "left_out": cut.left_out,
    }


def _topic_to_json(topic: BackedTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.topic_id.hex(),
        "replication_factor": topic.replication_factor,
        "settings": dict(topic.settings),
        "partitions": [
            [part.index, part.generation, part.start, part.end, part.leader_epoch, part.lineage]
            for part in topic.partitions
        ],
    }


def _of_json(content: Mapping[str, Any]) -> CutFile:
    acls, quotas = content["acls"], content["quotas"]
    return CutFile(
        CutId(*content["cut"]),
        content["time_ms"],
        content["cluster_id"],
        content["commit_index"],
        content["topics_pattern"],
        content["groups_pattern"],
        tuple(_topic_of_json(topic) for topic in content["topics"]),
        {
            group: {
                topic: {int(index): offset for index, offset in offsets.items()}
                for topic, offsets in topics.items()
            }
            for group, topics in content["groups"].items()
        },
        content["app_versions"],
        None if acls is None else tuple(tuple(acl) for acl in acls),
        None if quotas is None else tuple((dict(entity), dict(values)) for entity, values in quotas),
        tuple(MissedRecords(*missed) for missed in content["missed"]),
        tuple(content["left_out"]),
    )


def _topic_of_json(content: Mapping[str, Any]) -> BackedTopic:
    return BackedTopic(
        content["name"],
        bytes.fromhex(content["id"]),
        content["replication_factor"],
        content["settings"],
        tuple(
            BackedPartition(index, generation, start, end, epoch, tuple((a, b) for a, b in lineage))
            for index, generation, start, end, epoch, lineage in content["partitions"]
        ),
    )
