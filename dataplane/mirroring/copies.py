"""The copied partitions that this broker leads, and the state of each relative to its source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.mirror_table import NO_EPOCH, MirrorPartition, is_offsets_copy
from ...protocol.wire.schema import ZERO_UUID
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..replication.replica.partition import Partition

NEVER = -1
NOBODY = -1


class SourceLeadership(NamedTuple):
    """The leader of a partition in the source cluster, its leader epoch, and the topic's id there."""

    topic_id: bytes
    leader: int
    epoch: int


@dataclass(slots=True)
class ReportedCut:
    """The offset of one partition at a cut of the source, as the partition's leader there reported it."""

    offset: int
    source_epoch: int
    """Leader epoch of the source in which its leader was asked."""
    is_certain: bool = False
    """True if that leader epoch lasted at least until the answer. Then the copy equals the source's log up to the cut,
    as far as the copy goes."""


@dataclass(slots=True, eq=False)
class Copy:
    """A copied partition that this broker leads, in one leader epoch, and the state of the source's partition as last
    fetched.
    """

    partition: Partition
    leader_epoch: int
    """Leader epoch of this cluster."""
    source_topic_id: bytes = ZERO_UUID
    source_leader: int = NOBODY
    source_epoch: int = NO_EPOCH
    checked_epoch: int = NEVER
    """Leader epoch of the source in which the logs were last found to be equal."""
    source_high_watermark: int = -1
    bytes_per_record: float = 0.0
    """Average size of the most recently copied records."""
    level_at_ms: int = NEVER
    """Time at which the copy last had all records of the source, in milliseconds of the monotonic clock; NEVER
    before."""
    fetched_s: float = 0.0
    """Loop time at which records last arrived. The copy that has waited longest comes first in a fetch request."""
    not_before_s: float = 0.0
    """Loop time before which the source is not asked for this copy again."""
    trouble: str = ""
    """Reason why nothing can be fetched at the moment; empty if there is none."""
    fetched_epoch: int = NEVER
    """Leader epoch of the source in which the latest fetch was answered."""
    cuts: dict[int, ReportedCut] = field(default_factory=dict)
    """Cuts that were not reported to the quorum yet, by number of the round."""

    @property
    def key(self) -> tuple[str, int]:
        """Name of the copy's topic in this cluster, and partition index."""
        return self.partition.topic, self.partition.index

    @property
    def source_key(self) -> tuple[str, int]:
        """Name of the copied topic in the source cluster, and partition index."""
        return source_name(self.partition.topic), self.partition.index

    @property
    def source_leadership(self) -> SourceLeadership:
        """Leader, leader epoch and topic id of the source's partition, as last reported by the source."""
        return SourceLeadership(self.source_topic_id, self.source_leader, self.source_epoch)

    @property
    def is_led(self) -> bool:
        """True while this broker leads the copy in the same leader epoch."""
        return self.partition.leader is not None and self.partition.leader_epoch == self.leader_epoch

    @property
    def log_end(self) -> int:
        """End offset of the copy."""
        return self.partition.log.log_end_offset

    @property
    def lag(self) -> int:
        """Number of offsets that remain to be copied; 0 if the end of the source is unknown."""
        return max(0, self.source_high_watermark - self.log_end)

    @property
    def lag_bytes(self) -> int:
        """Estimated size in bytes of the records that remain to be copied."""
        return round(self.lag * self.bytes_per_record)

    def behind_ms(self, now_ms: int) -> int:
        """Return the milliseconds since the copy last had all records of the source; NEVER if it did not have them in
        this leadership.

        While the source does not answer, the time counts from its last answer, since its end may have moved.
        """
        if self.lag == 0 and not self.trouble:
            return 0
        return NEVER if self.level_at_ms == NEVER else now_ms - self.level_at_ms

    def fetched_in(self, source_epoch: int) -> None:
        """Note that the partition's leader at the source answered a fetch in the leader epoch `source_epoch`.

        Leader epochs only rise. So a cut that the leader reported between two fetches in one epoch was reported in that
        epoch, and becomes certain.
        """
        if source_epoch != self.source_epoch:
            return
        self.fetched_epoch = source_epoch
        self.cuts = {number: cut for number, cut in self.cuts.items() if cut.source_epoch == source_epoch}
        for cut in self.cuts.values():
            cut.is_certain = True

    def retry_at(self, time_s: float, trouble: str) -> None:
        """Postpone the next fetch of this copy to the loop time `time_s` after a failure; `trouble` is the reason."""
        self.not_before_s, self.trouble = time_s, trouble

    def state(self, image: ClusterImage) -> MirrorPartition:
        """Return the copied partition's record in the metadata of mirrors, which the quorum maintains."""
        return image.mirrors.partition(self.partition.topic_id, self.partition.index) or MirrorPartition()

    def is_due(self, image: ClusterImage, now_s: float) -> bool:
        """Return whether the copy may be fetched from its source at the loop time `now_s`."""
        if not self.is_led or self.source_leader == NOBODY or now_s < self.not_before_s:
            return False
        state = self.state(image)
        return state.fault is None and state.promoted_epoch == NO_EPOCH


def source_name(topic: str) -> str:
    """Return the name in the source cluster of the topic that the topic here copies: they differ for the copy of the
    offsets topic.
    """
    return OFFSETS_TOPIC if is_offsets_copy(topic) else topic
