"""The copies that this broker leads, and how each stands with its source."""

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
    """Who leads a partition at the source."""

    topic_id: bytes
    leader: int
    epoch: int


@dataclass(slots=True)
class ToldCut:
    """Where the source cuts a partition, as its leader has told."""

    offset: int
    source_epoch: int
    """The source's leader epoch in which it was asked."""
    is_certain: bool = False
    """Whether that epoch lasted until it was told: then the copy agrees with the source up to there, as far as it goes.
    """


@dataclass(slots=True, eq=False)
class Copy:
    """A partition that this broker leads, in one leadership, and its source as it was last seen."""

    partition: Partition
    leader_epoch: int
    """Of ours."""
    source_topic_id: bytes = ZERO_UUID
    source_leader: int = NOBODY
    source_epoch: int = NO_EPOCH
    checked_epoch: int = NEVER
    """The source's leader epoch in which the logs were last found to agree."""
    source_high_watermark: int = -1
    bytes_per_record: float = 0.0
    """Of what was copied last."""
    level_at_ms: int = NEVER
    """When the copy last had all that the source had, on the monotonic clock."""
    fetched_s: float = 0.0
    """Loop time at which records last came. Who has waited longest is asked for first."""
    not_before_s: float = 0.0
    """Loop time before which it is not asked for again."""
    trouble: str = ""
    """Why nothing can be fetched at the moment."""
    fetched_epoch: int = NEVER
    """The source's leader epoch in which something was fetched last."""
    cuts: dict[int, ToldCut] = field(default_factory=dict)
    """By number of the round: what the quorum has not been told yet."""

    @property
    def key(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.partition.topic, self.partition.index

    @property
    def source_key(self) -> tuple[str, int]:
        """Topic and partition, as the source names them."""
        return source_name(self.partition.topic), self.partition.index

    @property
    def source_leadership(self) -> SourceLeadership:
        """As it was last seen."""
        return SourceLeadership(self.source_topic_id, self.source_leader, self.source_epoch)

    @property
    def is_led(self) -> bool:
        """Whether the leadership lasts."""
        return self.partition.leader is not None and self.partition.leader_epoch == self.leader_epoch

    @property
    def log_end(self) -> int:
        """Where the copy ends."""
        return self.partition.log.log_end_offset

    @property
    def lag(self) -> int:
        """Offsets that are still to be copied, where the source's end is known."""
        return max(0, self.source_high_watermark - self.log_end)

    @property
    def lag_bytes(self) -> int:
        """The same in bytes, estimated."""
        return round(self.lag * self.bytes_per_record)

    def behind_ms(self, now_ms: int) -> int:
        """How long ago it had all that the source had; NEVER if it has not had that in this leadership. While the
        source does not answer nobody knows what it has."""
        if self.lag == 0 and not self.trouble:
            return 0
        return NEVER if self.level_at_ms == NEVER else now_ms - self.level_at_ms

    def fetched_in(self, source_epoch: int) -> None:
        """The source's leader has answered a fetch, as the leader in this epoch. Its epochs only rise: what it told of
        cuts between two fetches in one epoch it told in that epoch."""
        if source_epoch != self.source_epoch:
            return
        self.fetched_epoch = source_epoch
        self.cuts = {number: told for number, told in self.cuts.items() if told.source_epoch == source_epoch}
        for told in self.cuts.values():
            told.is_certain = True

    def retry_at(self, time_s: float, trouble: str) -> None:
        """Something is wrong for now."""
        self.not_before_s, self.trouble = time_s, trouble

    def state(self, image: ClusterImage) -> MirrorPartition:
        """What the quorum knows of it."""
        return image.mirrors.partition(self.partition.topic_id, self.partition.index) or MirrorPartition()

    def is_due(self, image: ClusterImage, now_s: float) -> bool:
        """Whether it is to be copied further, now."""
        if not self.is_led or self.source_leader == NOBODY or now_s < self.not_before_s:
            return False
        state = self.state(image)
        return state.fault is None and state.promoted_epoch == NO_EPOCH


def source_name(topic: str) -> str:
    """The name at the source of the topic whose copy is a topic here."""
    return OFFSETS_TOPIC if is_offsets_copy(topic) else topic
