"""Values that programs get about backups and restorations: cuts, results, and the progress meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MissedRecords:
    """Offsets of a partition that were deleted at the source before they were copied."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class BackupTopic:
    """A topic at a cut of a backup."""

    name: str
    id: bytes
    partitions: int
    offsets: int
    """The number of offsets from the start of each partition to the cut."""
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BackupCut:
    """A cut of a backup: a moment in the cluster's sequence of transactions, with an offset in each partition."""

    cut: str
    """The id of the cut, such as `3-17`. Later cuts have larger numbers."""
    time_ms: int
    """The time in ms since 1970 at which the cluster was asked for the cut, by the clock of the backup."""
    cluster_id: str
    is_consistent: bool
    """True if the cut has no part of a transaction. False if Apache Kafka is the source: each partition ends by
    itself."""
    topics: tuple[BackupTopic, ...]
    groups: str
    """The pattern of the groups whose committed offsets are in the backup; empty for none."""
    acls: int | None
    """The number of ACLs; None if the source has no authorizer, or did not tell them."""
    quotas: int | None
    """The number of entities with client quotas; None if the source did not tell them."""
    missed: tuple[MissedRecords, ...]
    """Records that were deleted between the previous cut and this cut without being copied."""
    left_out: tuple[str, ...]
    """Parts of the source that are not in the backup, each with the reason."""
    copied: int | None = None
    """The bytes of records that were copied for this cut, if it has just been created; None in a listing."""

    @property
    def partitions(self) -> int:
        """The number of partitions of all topics."""
        return sum(topic.partitions for topic in self.topics)

    @property
    def offsets(self) -> int:
        """The number of offsets of all topics."""
        return sum(topic.offsets for topic in self.topics)


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """The progress of one cut, or of the wait before it."""

    partitions: int = 0
    """The number of partitions with new records."""
    partitions_done: int = 0
    offsets: int = 0
    """The number of new offsets of all partitions."""
    size: int = 0
    """The number of bytes copied so far."""
    waits_for: str = ""
    """The reason why nothing is copied yet, such as an earlier run that may still be alive; empty if there is none."""


@dataclass(frozen=True, slots=True)
class BackupVerification:
    """The result of reading every object of a backup."""

    cuts: int
    """The number of cuts that were read."""
    segments: int
    """The number of segments, which are the objects with records, that were read."""
    size: int
    """The bytes of all segments that were read."""
    damages: tuple[str, ...]
    """The damages, each in words: objects that are missing or wrong."""
    broken_cuts: tuple[str, ...]
    """The ids of the cuts that cannot be restored in whole."""


@dataclass(frozen=True, slots=True)
class BackupPruning:
    """The result of a pruning, or with `validate_only` its expected result."""

    cuts: tuple[str, ...]
    """The ids of the cuts that were deleted."""
    kept: tuple[str, ...]
    """The ids of the cuts that remain."""
    segments: int
    """The number of deleted segments, which no remaining cut needs."""
    size: int
    """The bytes of the deleted segments."""


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic that was restored, or with `validate_only` would be restored."""

    name: str
    """The name of the topic in the cluster."""
    source: str
    """The name of the topic in the backup, which differs if the topic is renamed."""
    partitions: int
    offsets: int
    """The number of offsets from the start of each partition to the cut."""
    size: int
    """The bytes of the segments that have the topic's records."""


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """The progress of a restoration."""

    state: str
    """The present step: listing, creating, copying, checking or opening."""
    done: int = 0
    """The bytes that were sent to the cluster by this process."""
    total: int = 0
    """The bytes of all records."""
    partitions_left: int = 0
    """The number of partitions that are not whole yet."""
    trouble: str = ""
    """The reason why a broker cannot continue now; empty if all continue."""


@dataclass(frozen=True, slots=True)
class Restoration:
    """The result of a restoration, or with `validate_only` its expected result."""

    cut: BackupCut
    """The restored cut, with the restored topics under their names in the cluster."""
    topics: tuple[RestoredTopic, ...]
    groups: str
    """The pattern of the groups that got their committed offsets; empty for none."""
    acls: int
    """The number of ACLs that were created."""
    quotas: int
    """The number of entities whose client quotas were set."""
    size: int
    """The bytes of all segments that were restored, with those of committed offsets."""
    refused: tuple[str, ...] = ()
    """Settings of topics, and committed offsets, that the cluster has refused, each with the reason."""

    @property
    def partitions(self) -> int:
        """The number of partitions of all restored topics."""
        return sum(topic.partitions for topic in self.topics)
