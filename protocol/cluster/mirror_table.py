"""Mirrors and the topics that they copy: a part of the cluster's image. Pure.

A topic of a mirror takes no records from producers until the mirror is promoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from typing import Final

from ..messages.mirror_records import (
    MirrorAclRecord,
    MirrorOption,
    MirrorPartitionRecord,
    MirrorRecord,
    MirrorRemovedRecord,
    MirrorTopicRecord,
    RetiredTopicIdRecord,
    SourceEpoch,
)
from .acls import Acl

NO_EPOCH: Final = -1
NO_ROUND: Final = -1
OF_THE_BROKERS: Final = "__"
"""Prefix of the topics that belong to the brokers of their cluster, and are not copied."""
_OFFSETS_COPY: Final = "__mirrored_offsets."
MIRRORED_SETTINGS: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
"""Settings that a copy takes over from its source.

This cluster sets by itself how many brokers it can afford to lose (min.insync.replicas and similar), and how its
brokers compress records of its own producers.
"""

MirrorRecords = (
    MirrorRecord
    | MirrorRemovedRecord
    | MirrorTopicRecord
    | MirrorPartitionRecord
    | RetiredTopicIdRecord
    | MirrorAclRecord
)


class MirrorPhase(IntEnum):
    """Phases of a mirror: active, paused or promoted."""

    ACTIVE = 1
    """The mirror copies its topics."""
    PAUSED = 2
    """The mirror copies nothing for now."""
    PROMOTED = 3
    """The mirror copies no more: its topics take records from producers."""


class FaultKind(IntEnum):
    """Reasons why a partition is not copied any further. To continue in spite of one would silently lose records."""

    NONE = 0
    GAP = 1
    """The source has dropped records that were not copied yet."""
    DIVERGED = 2
    """The source has other records at offsets that were copied, for example after an unclean election."""
    MADE_ANEW = 3
    """The source topic was deleted, and another topic has its name."""
    UNREADABLE = 4
    """The source has batches that cannot be copied: in a format before version 2, or at offsets before the end of the
    copy."""


@dataclass(frozen=True, slots=True)
class MirrorFault:
    """The fault that stops the copying of a partition. It affects the offsets from `first` to before `end`; `reason` is
    a text for the operator."""

    kind: FaultKind
    first: int
    end: int
    reason: str


class ResumptionKind(IntEnum):
    """Rules for a copied partition's log that does not end at the offset at which copying is to continue."""

    EXACT = 0
    """Records after the offset are cut off. Records that are missing before it are left out."""
    CUT = 1
    """Records after the offset are cut off. Records that are missing before it are copied from the source."""
    KEPT = 2
    """Records after the offset remain, and stop the copy until an operator decides. Records that are missing before it
    are copied from the source."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """A continuation of a copied partition's log: in this cluster's leader epoch `leader_epoch` the log continued at
    `offset`, which may differ from its end. `kind` says what becomes of the records between the two."""

    leader_epoch: int
    offset: int
    kind: ResumptionKind = ResumptionKind.EXACT


@dataclass(frozen=True, slots=True)
class MirrorPartition:
    """The state of one partition that is, or was, a mirror's copy: the source's leader epochs, the fault that stopped
    it, and how it continued."""

    lineage: tuple[tuple[int, int], ...] = ()
    """Leader epochs of the source up to where the partition was copied: (epoch, first offset), both rising."""
    fault: MirrorFault | None = None
    resumption: Resumption | None = None
    promoted_epoch: int = NO_EPOCH
    """First leader epoch here in which the partition takes records from producers; NO_EPOCH before."""

    @property
    def keeps_tail(self) -> bool:
        """True if records after the offset of a failback remain, since they were not to be cut off, and nothing was
        copied since."""
        resumed = self.resumption
        return (
            resumed is not None
            and resumed.kind is ResumptionKind.KEPT
            and all(start < resumed.offset for _, start in self.lineage)
        )

    def goes_on_at(self, log_epoch: int, log_end: int, leader_epoch: int) -> int | None:
        """Return the offset at which the copied partition's log has to end before the leader of `leader_epoch` appends;
        None if the log is to keep its present end.

        The log's last epoch is `log_epoch`, and it ends at `log_end`.
        """
        resumed = self.resumption
        if resumed is None or not log_epoch < resumed.leader_epoch <= leader_epoch:
            return None
        if resumed.kind is ResumptionKind.EXACT:
            return resumed.offset
        return None if self.keeps_tail or log_end <= resumed.offset else resumed.offset

    def source_epoch_below(self, offset: int) -> int:
        """Return the source's leader epoch of the last record below `offset`; NO_EPOCH if none is known."""
        return next((epoch for epoch, start in reversed(self.lineage) if start < offset), NO_EPOCH)


@dataclass(slots=True)
class MirrorTopic:
    """A topic that is, or was, the copy of another topic."""

    mirror: str
    """Name of the mirror; empty once the mirror was removed."""
    source_topic_id: bytes
    partitions: dict[int, MirrorPartition] = field(default_factory=dict)

    @property
    def has_returned(self) -> bool:
        """True if a failback made the topic a copy, and the failback still determines how its logs continue."""
        resumed = [
            partition.resumption for partition in self.partitions.values() if partition.resumption is not None
        ]
        return any(resumption.kind is not ResumptionKind.EXACT for resumption in resumed)


@dataclass(frozen=True, slots=True)
class Mirror:
    """A mirror: the source cluster that it copies from, the topics that it selects, its phase and its settings."""

    name: str
    source_cluster_id: str
    bootstrap_servers: str
    topics: str
    groups: str
    start: int
    phase: MirrorPhase
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    promoted_round: int = NO_ROUND
    """Number of the round at whose cut the mirror was promoted."""
    bandwidth: int = 0
    """Bytes per second that each broker may fetch from the source; 0: no limit."""
    copies_acls: bool = False
    """True if the mirror copies the ACLs of its topics and groups."""


@dataclass(slots=True)
class MirrorTable:
    """All mirrors, and the state of all topics and partitions that belong or belonged to a mirror."""

    by_name: dict[str, Mirror] = field(default_factory=dict)
    topics: dict[bytes, MirrorTopic] = field(default_factory=dict)
    """Copied topics, by their ids here."""
    retired_ids: set[bytes] = field(default_factory=set)
    """Ids of deleted copies. No topic gets them again."""
    acls: dict[str, frozenset[Acl]] = field(default_factory=dict)
    """ACLs that each mirror has added, by the mirror's name."""

    def mirror_of(self, topic_id: bytes) -> Mirror | None:
        """Return the mirror whose copy this topic is now, so that it is read-only; None for a topic that takes
        records."""
        topic = self.topics.get(topic_id)
        mirror = None if topic is None else self.by_name.get(topic.mirror)
        return None if mirror is None or mirror.phase is MirrorPhase.PROMOTED else mirror

    def partition(self, topic_id: bytes, index: int) -> MirrorPartition | None:
        """Return the mirror state of a partition; None if it never was a copy."""
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def topics_of(self, mirror: str) -> Iterator[tuple[bytes, MirrorTopic]]:
        """Return the topics that a mirror copies, or has copied, by id."""
        return ((topic_id, topic) for topic_id, topic in self.topics.items() if topic.mirror == mirror)

    def apply(self, record: MirrorRecords) -> None:
        """Fold one record."""
        match record:
            case MirrorRecord():
                self.by_name[record.name] = _mirror(record)
            case MirrorRemovedRecord():
                self.by_name.pop(record.name, None)
                self.acls.pop(record.name, None)
                for _, topic in self.topics_of(record.name):
                    topic.mirror = ""
            case MirrorTopicRecord():
                known = self.topics.get(record.topic_id)
                partitions = {} if known is None else known.partitions
                self.topics[record.topic_id] = MirrorTopic(record.mirror, record.source_topic_id, partitions)
            case MirrorPartitionRecord():
                self.topics[record.topic_id].partitions[record.partition] = _partition(record)
            case RetiredTopicIdRecord():
                self.retired_ids.add(record.topic_id)
            case MirrorAclRecord():
                self._own_acl(record)

    def _own_acl(self, record: MirrorAclRecord) -> None:
        known, acl = self.acls.get(record.mirror, frozenset()), Acl.of(record)
        self.acls[record.mirror] = known | {acl} if record.is_copied else known - {acl}
        if not self.acls[record.mirror]:
            del self.acls[record.mirror]

    def topic_removed(self, topic_id: bytes) -> None:
        """Forget a removed topic. The id of a copy is retired."""
        if self.topics.pop(topic_id, None) is not None:
            self.retired_ids.add(topic_id)

    def copy(self) -> MirrorTable:
        """Return a snapshot that remains unchanged while this table changes."""
        topics = {
            topic_id: replace(topic, partitions=dict(topic.partitions))
            for topic_id, topic in self.topics.items()
        }
        return MirrorTable(dict(self.by_name), topics, set(self.retired_ids), dict(self.acls))

    def records(self) -> Iterator[MirrorRecords]:
        """Yield the records that rebuild this table, in a fixed order."""
        for _, mirror in sorted(self.by_name.items()):
            yield mirror_record(mirror)
        for topic_id, topic in sorted(self.topics.items()):
            yield MirrorTopicRecord(
                topic_id=topic_id, mirror=topic.mirror, source_topic_id=topic.source_topic_id
            )
            for index, partition in sorted(topic.partitions.items()):
                yield mirror_partition_record(topic_id, index, partition)
        for topic_id in sorted(self.retired_ids):
            yield RetiredTopicIdRecord(topic_id=topic_id)
        for name, acls in sorted(self.acls.items()):
            for acl in sorted(acls):
                yield MirrorAclRecord(mirror=name, is_copied=True, **acl._asdict())

    def broken(self) -> str:
        """Return a description of an inconsistency; empty if there is none."""
        for topic_id, topic in self.topics.items():
            for index, partition in topic.partitions.items():
                pairs = partition.lineage
                if any(
                    not (earlier[0] < later[0] and earlier[1] <= later[1])
                    for earlier, later in pairwise(pairs)
                ):
                    return (
                        f"the lineage of mirrored partition {topic_id.hex()}-{index} does not rise: {pairs}"
                    )
        return ""


def offsets_copy(mirror: str) -> str:
    """Return the name of this cluster's internal topic that holds a mirror's copy of its source's committed offsets."""
    return f"{_OFFSETS_COPY}{mirror}"


def is_offsets_copy(topic: str) -> bool:
    """Return whether a topic is, by its name, a mirror's copy of its source's committed offsets."""
    return topic.startswith(_OFFSETS_COPY)


def mirror_record(mirror: Mirror) -> MirrorRecord:
    """Return the metadata record that sets a mirror to this state."""
    return MirrorRecord(
        name=mirror.name,
        source_cluster_id=mirror.source_cluster_id,
        bootstrap_servers=mirror.bootstrap_servers,
        topics=mirror.topics,
        groups=mirror.groups,
        start=mirror.start,
        phase=mirror.phase,
        options=[MirrorOption(name=name, value=value) for name, value in mirror.options],
        promoted_round=mirror.promoted_round,
        bandwidth=mirror.bandwidth,
        acls=mirror.copies_acls,
    )


def mirror_partition_record(topic_id: bytes, index: int, state: MirrorPartition) -> MirrorPartitionRecord:
    """Return the metadata record that sets the copy of a partition to this state."""
    record = MirrorPartitionRecord(
        topic_id=topic_id,
        partition=index,
        lineage=[SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in state.lineage],
        promoted_epoch=state.promoted_epoch,
    )
    if state.fault is not None:
        record.fault, record.fault_reason = state.fault.kind, state.fault.reason
        record.fault_first, record.fault_end = state.fault.first, state.fault.end
    if state.resumption is not None:
        record.resumed_epoch, record.resumed_offset = state.resumption.leader_epoch, state.resumption.offset
        record.resumed_how = state.resumption.kind
    return record


def _mirror(record: MirrorRecord) -> Mirror:
    return Mirror(
        record.name,
        record.source_cluster_id,
        record.bootstrap_servers,
        record.topics,
        record.groups,
        record.start,
        MirrorPhase(record.phase),
        tuple((option.name, option.value) for option in record.options),
        record.promoted_round,
        record.bandwidth,
        record.acls,
    )


def _partition(record: MirrorPartitionRecord) -> MirrorPartition:
    fault = resumption = None
    if record.fault:
        fault_kind = FaultKind(record.fault)
        fault = MirrorFault(fault_kind, record.fault_first, record.fault_end, record.fault_reason)
    if record.resumed_epoch != NO_EPOCH:
        kind = ResumptionKind(record.resumed_how)
        resumption = Resumption(record.resumed_epoch, record.resumed_offset, kind)
    lineage = tuple((entry.epoch, entry.start_offset) for entry in record.lineage)
    return MirrorPartition(lineage, fault, resumption, record.promoted_epoch)
