"""The promises of a mirror, one class each, checked after every step of the target."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from ottla.dataplane.cluster.internal_topics import OFFSETS_TOPIC
from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import (
    NO_EPOCH,
    FaultKind,
    MirrorFault,
    MirrorPartition,
    Resumption,
    ResumptionKind,
)
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.record import NO_COMMIT_INDEX, decode_records, read_control_record
from ottla.protocol.records.record_batch import BatchHeader
from ottla.protocol.wire.schema import ZERO_UUID
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.mirror.images import NewestImage
from tests.simulation.mirror.ledger import (
    UNKNOWN_EPOCH,
    PartitionHistory,
    Place,
    SourceLedger,
    batches_of,
    common_end,
    epoch_at,
    fingerprint,
    first_whole,
    records_of,
)


class FaultsHaveCauses:
    """An invariant: a copy stops only if the source has lost or replaced records, and its fault names exactly these.

    Every accepted loss is remembered, since nothing else may be missing.
    """

    def __init__(
        self, ledger: SourceLedger, target: NewestImage, source: NewestImage, lossy: Collection[str]
    ) -> None:
        """Set the `lossy` topics, the only ones in which the source may lose records."""
        self._ledger = ledger
        self._lossy = lossy
        self._known: dict[Place, MirrorFault | None] = {}
        self._is_made_anew: dict[str, bool] = {}
        self.counts: Counter[str] = Counter()
        self.accepted: defaultdict[Place, list[MirrorFault]] = defaultdict(list)
        self.committed: dict[Place, int] = {}
        """Highest high watermark of each copy since its last accepted loss or its promotion at a cut."""
        self._cut: set[Place] = set()
        self._resumptions: dict[Place, Resumption | None] = {}
        self._source_ids: defaultdict[str, set[bytes]] = defaultdict(set)
        target.listeners.append(self._look)
        source.listeners.append(self._note_ids)

    def _note_ids(self, image: ClusterImage) -> None:
        for topic in image.topics.values():
            self._source_ids[topic.name].add(topic.id)

    def _look(self, image: ClusterImage) -> None:
        for due in image.mirror_offsets.due.values():
            name = "accepted: offsets that nobody could tell"
            self.counts[name] = max(self.counts[name], len(due.given_up))
        for topic_id, topic in image.mirrors.topics.items():
            name = image.topics_by_id[topic_id].name
            for index, copy in topic.partitions.items():
                place = (topic_id, index)
                if place not in self._cut and _is_cut(copy):
                    self._cut.add(place)
                    self.committed[place] = 0
                if self._resumptions.get(place) != copy.resumption:
                    # This also covers a fault that came and went between two observed images.
                    self._resumptions[place] = copy.resumption
                    self.committed[place] = 0
                before = self._known.get(place)
                if copy.fault == before:
                    continue
                self._known[place] = copy.fault
                if before is not None:
                    self.accepted[place].append(before)
                    self.committed[place] = 0
                    self.counts[f"accepted: {before.kind.name}"] += 1
                if copy.fault is not None:
                    self.counts[f"fault: {copy.fault.kind.name}"] += 1
                    if not self._is_true(name, place, topic.source_topic_id, copy, copy.fault):
                        raise InvariantBroken(
                            "faults have causes",
                            f"{name}-{index}: {copy}; the source begins at {self._ledger.starts[f'{name}-{index}']}, "
                            f"had {self._history(name, index, topic.source_topic_id)}",
                        )

    def _is_true(
        self, topic: str, place: Place, source_id: bytes, copy: MirrorPartition, fault: MirrorFault
    ) -> bool:
        index = place[1]
        match fault.kind:
            case FaultKind.GAP:
                # Committed records are not lost here.
                start = self._ledger.starts[f"{topic}-{index}"]
                return self.committed.get(place, 0) <= fault.first < fault.end <= start
            case FaultKind.MADE_ANEW:
                return len(self._source_ids[topic]) > 1
            case FaultKind.DIVERGED:
                history = self._ledger.of((source_id, index))
                return (
                    topic in self._lossy
                    and history is not None
                    and any(
                        common_end(copy.lineage, fault.end, line) == fault.first
                        for line in history.lines.values()
                    )
                )
            case _:
                return False

    def _history(self, topic: str, index: int, source_id: bytes) -> dict[int, list[tuple[int, int]]]:
        found = self._ledger.of((source_id, index))
        return {} if found is None else found.lines


def _is_cut(copy: MirrorPartition) -> bool:
    """Return whether the copy was promoted at a cut, and drops its records after it."""
    return copy.resumption is not None and copy.resumption.leader_epoch == copy.promoted_epoch


@dataclass(slots=True)
class _Walk:
    """The compared part of a copy's leader log."""

    leader_epoch: int
    epoch: int
    """Leader epoch of the source in the last batch."""
    end: int


class CopiesAreTheSource:
    """An invariant: until its promotion a copy has its source's batches, each at its offset, byte for byte.

    Nothing is left out unless it was accepted. All of it belongs to one history of the source, whose epochs the quorum
    knows before.
    """

    def __init__(
        self, target: SimulatedCluster, ledger: SourceLedger, newest: NewestImage, faults: FaultsHaveCauses
    ) -> None:
        self._names = {node.name for node in target.brokers.values()}
        self._ledger = ledger
        self._newest = newest
        self._faults = faults
        self._walks: dict[Partition, _Walk] = {}
        self._ends: dict[Place, int] = {}
        """Offset up to which each copy has had everything, except for accepted losses."""
        self._grown: dict[Partition, int] = {}
        """Offset up to which each replica of a copy has had everything, as observed."""
        self.compared = 0
        self.had: defaultdict[Place, dict[int, bytes | None]] = defaultdict(dict)
        """Keys of the records that copies of compacted topics have had, by offset."""

    def observe(self, node: Node) -> None:
        """Check the changed partitions."""
        image = self._newest.image
        if image is None or node.name not in self._names:
            return
        for partition in node.moved():
            # While files are exchanged for what compaction has left of them, the next look has to do.
            with suppress(KafkaError):
                self._note_growth(partition)
                if partition.leader is not None:
                    self.look(node, partition, image)

    def _note_growth(self, partition: Partition) -> None:
        """Note the growth of a replica.

        Followers may have the records of a replaced leader. The source, and so this cluster, may drop them before one
        of the followers leads.
        """
        log, place = partition.log, (partition.topic_id, partition.index)
        known = self._grown.get(partition, self._ends.get(place))
        if known is None or log.log_start_offset > known or partition.topic in self._ledger.compacted:
            return
        end = self._grown[partition] = min(known, log.log_end_offset)
        for header, _ in batches_of(log, end, log.log_end_offset):
            if header.base_offset > end:
                break
            end = self._grown[partition] = header.next_offset

    def look(self, node: Node, partition: Partition, image: ClusterImage) -> None:
        """Check a leader of the target, if it still leads."""
        place = (partition.topic_id, partition.index)
        topic = image.mirrors.topics.get(partition.topic_id)
        known = image.topics_by_id.get(partition.topic_id)
        if topic is None or known is None:
            return
        if known.partitions[partition.index].leader_epoch != partition.leader_epoch:
            return  # The next leader may not have its current records.
        copy = topic.partitions.get(partition.index, MirrorPartition())
        self._check_shrinking(node, partition, place)
        self._compare(node, partition, topic.source_topic_id, copy)

    def _check_shrinking(self, node: Node, partition: Partition, place: Place) -> None:
        before = self._faults.committed.get(place, 0)
        if partition.log.log_end_offset < before:
            raise InvariantBroken(
                "copies keep what they have",
                f"{node.name} leads {partition!r}, which ends at {partition.log.log_end_offset}; {before} was "
                "the high watermark",
            )
        self._faults.committed[place] = max(before, partition.high_watermark)

    def _compare(self, node: Node, partition: Partition, source_id: bytes, copy: MirrorPartition) -> None:
        log, start = partition.log, partition.log.log_start_offset
        walk = self._walks.get(partition)
        epoch = copy.source_epoch_below(log.log_end_offset)
        if walk is None or walk.leader_epoch != partition.leader_epoch or walk.epoch != epoch:
            walk = self._walks[partition] = _Walk(partition.leader_epoch, epoch, start)
        place = (partition.topic_id, partition.index)
        self._check_start(place, partition, start, copy)
        begin = max(start, min(walk.end, log.log_end_offset))
        if begin >= log.log_end_offset:
            return
        histories, own_end = self._histories(partition, source_id), _own_end(copy)
        walk.end = begin
        whole = first_whole(log) if begin == start else begin
        for header, batch in batches_of(log, begin, log.log_end_offset):
            if copy.promoted_epoch != NO_EPOCH and header.partition_leader_epoch >= copy.promoted_epoch:
                break
            source_epoch = epoch_at(copy.lineage, header.base_offset)
            where = f"{node.name}, {partition!r}, at offset {header.base_offset}, lineage {copy.lineage}"
            is_left_out = header.base_offset < own_end and self._is_left_out(place, header.base_offset)
            if is_left_out or (source_epoch == UNKNOWN_EPOCH and header.base_offset < own_end):
                walk.end = self._ends[place] = header.next_offset
                continue  # The source has dropped it, and so will this cluster; or the source has never had it.
            if source_epoch == UNKNOWN_EPOCH:
                raise InvariantBroken("lineages are known before their records", where)
            base = header.base_offset
            # Where the log begins a batch may be cut in two; what counts is how far the copy was.
            end = walk.end if walk.end > start else min(base, self._ends.get(place, base))
            self._check_gap(partition, max(end, whole), base, where)
            if base >= own_end:
                _check_marker(header, batch, where)
            if partition.topic in self._ledger.compacted:
                # Replicas know different beginnings of an epoch whose first records are compacted away.
                if not header.is_control and not header.is_transactional:
                    self.had[place] |= {record.offset: record.key for record in decode_records(batch)}
                for offset, found in records_of(header, batch):
                    if not any(history.records.get((source_epoch, offset)) == found for history in histories):
                        raise InvariantBroken("copies are the source", f"{where}: {found}")
            else:
                self._check_line(histories, epoch, header.base_offset, source_epoch, where)
                key, found = (source_epoch, header.base_offset), fingerprint(header, batch)
                if not any(history.batches.get(key) == found for history in histories):
                    theirs = [history.batches.get(key) for history in histories]
                    raise InvariantBroken(
                        "copies are the source", f"{where}: {found}, and not one of {theirs}"
                    )
            walk.end = header.next_offset
            self._ends[place] = walk.end
            self.compared += 1

    def _is_left_out(self, place: Place, offset: int) -> bool:
        """Return whether an operator accepted that the source, which was a copy of this side before a failback, has
        lost the record.

        A replica here may still have it if an unclean election brought a log start back.
        """
        return any(fault.first <= offset < fault.end for fault in self._faults.accepted[place])

    def _check_start(self, place: Place, partition: Partition, start: int, copy: MirrorPartition) -> None:
        """Check that a copy begins after its former end only if that was accepted."""
        if not copy.lineage:
            self._ends.pop(place, None)  # The copy is recreated.
        end = self._ends.get(place)
        if end is not None and copy.promoted_epoch == NO_EPOCH:
            end = self._ends[place] = max(end, min(start, self._grown.get(partition, end)))
            where = f"{partition!r} begins at {start}"
            self._check_gap(partition, min(end, start), start, where)

    def _histories(self, partition: Partition, source_id: bytes) -> list[PartitionHistory]:
        """Return the source's histories; those of all topics of this name if the quorum does not know the topic's id
        yet.
        """
        ids = self._ledger.ids[partition.topic] if source_id == ZERO_UUID else [source_id]
        found = [self._ledger.of((topic_id, partition.index)) for topic_id in ids]
        return [history for history in found if history is not None]

    def _check_gap(self, partition: Partition, end: int, base: int, where: str) -> None:
        """Check a gap of offsets between two batches of a log."""
        if partition.topic in self._ledger.compacted:
            return
        for fault in sorted(
            self._faults.accepted[partition.topic_id, partition.index], key=lambda fault: fault.first
        ):
            if fault.first <= end < fault.end:
                end = fault.end
        if base > end:
            raise InvariantBroken("nothing is passed over", f"{where}: it ended at {end}")

    def _check_line(
        self,
        histories: list[PartitionHistory],
        epoch: int,
        base: int,
        source_epoch: int,
        where: str,
    ) -> None:
        """Check that the log follows one history of the source: the one that led to the last batch's epoch."""
        lines = [history.line_of(epoch) for history in histories]
        if not any(base < line[0][1] or epoch_at(line, base) == source_epoch for line in lines if line):
            raise InvariantBroken(
                "copies follow one history",
                f"{where}: of epoch {source_epoch}, and the source has up to epoch {epoch} {lines}",
            )


def _own_end(copy: MirrorPartition) -> int:
    """Return the offset up to which a failed-back log has local records; 0 for other logs."""
    resumed = copy.resumption
    return 0 if resumed is None or resumed.kind is ResumptionKind.EXACT else resumed.offset


def _check_marker(header: BatchHeader, batch: memoryview, where: str) -> None:
    """Check that a copied marker has no commit index, since cuts follow this cluster's own order of decisions."""
    marker = read_control_record(batch) if header.is_control else None
    if marker is not None and marker.commit_index != NO_COMMIT_INDEX:
        raise InvariantBroken("decisions are this cluster's own", f"{where}: {marker}")


class OffsetsAreReached:
    """An invariant: a copied group offset is never ahead of the copy, so a consumer that moves skips no record."""

    def __init__(self, target: SimulatedCluster, group: str) -> None:
        self._names = {node.name for node in target.brokers.values()}
        self._group = group
        self._reached: Counter[tuple[str, int]] = Counter()
        self.followed = 0

    def observe(self, node: Node) -> None:
        """Check brokers whose offsets topic has changed, since offsets change with that topic."""
        if node.name not in self._names:
            return
        has_offsets = False
        for partition in node.moved():
            key = (partition.topic, partition.index)
            self._reached[key] = max(self._reached[key], partition.high_watermark)
            has_offsets |= partition.topic == OFFSETS_TOPIC
        if has_offsets:
            self.look(node)

    def look(self, node: Node) -> None:
        """Check the groups that a broker coordinates."""
        for key, offset in offsets_at(node, self._group).items():
            self.followed += 1
            if offset > self._reached[key]:
                raise InvariantBroken(
                    "offsets are reached",
                    f"{node.name} has {offset} for {key} of group {self._group}, and the copy has never had more "
                    f"than {self._reached[key]}",
                )


def offsets_at(node: Node, group: str) -> dict[tuple[str, int], int]:
    """Return the committed offsets of a group that this broker coordinates."""
    parts = node.parts
    return {
        key: committed.offset
        for shard in (() if parts is None else parts.groups.shards())
        for key, committed in shard.offsets.of_group(group).items()
    }
