"""An offset that a group has committed for a partition, as the coordinator keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.wire.schema import ZERO_UUID
from ..runtime.retained_bytes import RetainedClaim

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset that a group has committed for one partition.

    `leader_epoch` is -1 if the client sent none. `commit_time_ms` counts from 1970. `topic_id` distinguishes a topic
    from a later topic of the same name; it is all zeros if unknown. `mirror` names the mirror that committed the
    offset; it is empty if a client did. `claim` is the memory that the offset takes.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    topic_id: bytes = ZERO_UUID
    mirror: str = ""
    claim: RetainedClaim | None = field(default=None, compare=False, repr=False)

    def hold(self, claim: RetainedClaim) -> None:
        """Attach the claim of the memory that the offset takes, which ends with the offset."""
        object.__setattr__(self, "claim", claim)

    def is_of(self, topic_id: bytes) -> bool:
        """Return whether the offset was committed for the topic with this id; true also if the offset has no topic
        id."""
        return self.topic_id in (topic_id, ZERO_UUID)
