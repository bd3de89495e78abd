"""One committed offset of a group."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.wire.schema import ZERO_UUID
from ..runtime.retained_bytes import RetainedClaim

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`leader_epoch` is -1 where the client sent none; times are milliseconds since 1970.

    `topic_id` tells a topic from a later one of the same name; zeros where it is not known. `mirror` has committed it;
    empty for one that a client has committed.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    topic_id: bytes = ZERO_UUID
    mirror: str = ""
    claim: RetainedClaim | None = field(default=None, compare=False, repr=False)

    def hold(self, claim: RetainedClaim) -> None:
        """Claim the memory that the offset takes, as long as it lives."""
        object.__setattr__(self, "claim", claim)

    def is_of(self, topic_id: bytes) -> bool:
        """Whether it was committed for the topic with this id, as far as is known."""
        return self.topic_id in (topic_id, ZERO_UUID)
