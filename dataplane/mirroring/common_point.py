"""Planning of a failback: the topics that become copies, and the offset up to which each log equals the source's. Pure.

Two logs are equal up to an offset if the records below it were written under the same leader epochs, because all
writers of an epoch write the same log. The source knows the leader epochs of this cluster under which it copied, and
the offset at which it began to accept records itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...protocol.cluster.mirror_table import NO_EPOCH, OF_THE_BROKERS, Mirror, MirrorPhase
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.failback import DescribedLineage, LineageTopic
from ...protocol.messages.mirror_records import SourceEpoch
from ...protocol.wire.schema import ZERO_UUID

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """The plan for one partition that a failback turns into a copy: the offset up to which the logs are equal, and the
    ends of its log.
    """

    partition: int
    leader_epoch: int
    """Leader epoch of this cluster in which the log was examined."""
    common_offset: int
    """Offset up to which both logs are equal."""
    log_end_offset: int
    log_start_offset: int
    lineage: tuple[tuple[int, int], ...]
    """Leader epochs of the source that begin below the common offset: (epoch, first offset)."""

    @property
    def lost(self) -> int:
        """Number of offsets of this cluster's log at which the source has another record or no record."""
        return max(0, self.log_end_offset - max(self.common_offset, self.log_start_offset))

    @property
    def cuts(self) -> bool:
        """True if this cluster's log continues after the common offset, so that records are cut off."""
        return self.log_end_offset > self.common_offset


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """The plan for one topic that a failback turns into a copy of the source's topic."""

    name: str
    topic_id: bytes
    source_topic_id: bytes
    partitions: tuple[PlannedPartition, ...]


def common_offset(
    epochs: Iterable[tuple[int, int]], log_end: int, copied: Iterable[tuple[int, int]], copied_end: int
) -> int:
    """Return the largest offset up to which a log with the leader epochs `epochs` equals the log that was copied; 0 if
    they have no epoch in common."""
    ours = dict(_spans(epochs, log_end))
    common = 0
    for epoch, (start, end) in _spans(copied, copied_end):
        our_start, our_end = ours.get(epoch, (0, 0))
        if max(start, our_start) < min(end, our_end):
            common = max(common, min(end, our_end))
    return common


def promoted_offset(epochs: Sequence[tuple[int, int]], promoted_epoch: int) -> int:
    """Return the offset at which the first leader epoch begins that was not copied: the offset of the promotion.

    Returns 0 if the topic never was a copy, and UNKNOWN if the log now begins after that offset.
    """
    if promoted_epoch == NO_EPOCH:
        return 0
    start = next((start for epoch, start in epochs if epoch >= promoted_epoch), UNKNOWN)
    return UNKNOWN if start > 0 and epochs[0][0] >= promoted_epoch else start


def _spans(epochs: Iterable[tuple[int, int]], end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield each leader epoch of a log with its first offset and the offset after its last record. A truncated log may
    have had epochs that began after `end`.
    """
    for (epoch, start), (_, next_start) in pairwise([*epochs, (UNKNOWN, end)]):
        yield epoch, (start, min(next_start, end))


def check_is_new(name: str, known: Mapping[str, Mirror], ours: Iterable[LineageTopic]) -> None:
    """Raise KafkaError if a mirror of this name exists.

    A client that got no answer repeats its request. Then the topics are copies already, as the client wanted; the error
    must not advise to promote them. Brokers that describe their logs in `ours` may know a mirror that this broker does
    not know yet.
    """
    mirror = known.get(name)
    if mirror is not None and mirror.phase is MirrorPhase.PROMOTED:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            f"there is a mirror {name!r} already, which is promoted: delete it first, or take another name",
        )
    if mirror is not None or any(topic.is_copy and topic.mirror == name for topic in ours):
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            f"there is a mirror {name!r} already: 'ottla mirror status {name}' tells what it copies",
        )


def planned(ours: LineageTopic, theirs: LineageTopic | None, cluster_id: str) -> PlannedTopic:
    """Return the plan by which a topic of this cluster becomes a copy. `theirs`: the source's topic of the same name.
    Raises KafkaError if the topic cannot become a copy."""
    if ours.is_copy:
        raise _refused(f"topic {ours.name!r} is a copy of mirror {ours.mirror!r} already: promote that first")
    if theirs is None:
        raise _refused(f"the source has no topic {ours.name!r}")
    if theirs.source_topic_id == ZERO_UUID:
        raise _refused(f"the source's topic {ours.name!r} never was a copy")
    if theirs.source_cluster_id not in ("", cluster_id):
        raise _refused(
            f"the source's topic {ours.name!r} is a copy of cluster {theirs.source_cluster_id}, and not of this one"
        )
    if theirs.source_topic_id != ours.topic_id:
        raise _refused(
            f"the source's topic {ours.name!r} is a copy of a topic that was deleted here, and made anew"
        )
    if theirs.is_copy:
        raise _refused(
            f"the source's topic {ours.name!r} is still the copy of its mirror {theirs.mirror!r}: promote that first"
        )
    if theirs.partition_count < ours.partition_count:
        raise _refused(
            f"topic {ours.name!r} has {ours.partition_count} partitions, and {theirs.partition_count} at the source: "
            "give it as many there"
        )
    there = _by_index(theirs, theirs.partition_count, "at the source")
    here = _by_index(ours, ours.partition_count, "here")
    return PlannedTopic(
        ours.name,
        ours.topic_id,
        theirs.topic_id,
        tuple(_planned(here[index], there[index]) for index in range(ours.partition_count)),
    )


def _planned(ours: DescribedLineage, theirs: DescribedLineage) -> PlannedPartition:
    common = 0
    if theirs.promoted_offset != UNKNOWN:
        common = common_offset(
            _pairs(ours.epochs), ours.log_end_offset, _pairs(theirs.lineage), theirs.promoted_offset
        )
        # Records that were deleted here cannot differ from the source's, as far as the source had copied them.
        common = max(common, min(ours.log_start_offset, theirs.promoted_offset))
    lineage = tuple(pair for pair in _pairs(theirs.epochs) if pair[1] < common)
    return PlannedPartition(
        ours.partition, ours.leader_epoch, common, ours.log_end_offset, ours.log_start_offset, lineage
    )


def _pairs(epochs: Iterable[SourceEpoch]) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs]


def _by_index(topic: LineageTopic, count: int, where: str) -> Mapping[int, DescribedLineage]:
    described = {part.partition: part for part in topic.partitions if not part.error_code}
    missing = [index for index in range(count) if index not in described]
    if missing:
        raise KafkaError(
            ErrorCode.LEADER_NOT_AVAILABLE, f"no leader of {topic.name}-{missing[0]} {where} tells of its log"
        )
    return described


def merged(answers: Iterable[Iterable[LineageTopic]]) -> dict[str, LineageTopic]:
    """Merge the answers of brokers, each about the partitions that it leads, by topic name. If two brokers claim to
    lead a partition, the higher leader epoch wins.

    Raises KafkaError if the brokers disagree about the id of a topic.
    """
    found: dict[str, LineageTopic] = {}
    partitions: dict[str, dict[int, DescribedLineage]] = {}
    for answer in answers:
        for topic in answer:
            if topic.name.startswith(OF_THE_BROKERS):
                continue
            known = found.get(topic.name)
            if known is not None and known.topic_id != topic.topic_id:
                raise KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"brokers do not agree yet about topic {topic.name!r}"
                )
            if known is None or topic.partition_count > known.partition_count:
                found[topic.name] = topic
            described = partitions.setdefault(topic.name, {})
            for part in topic.partitions:
                if (
                    part.partition not in described
                    or described[part.partition].leader_epoch < part.leader_epoch
                ):
                    described[part.partition] = part
    for name, topic in found.items():
        topic.partitions = [part for _, part in sorted(partitions[name].items())]
    return dict(sorted(found.items()))


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
