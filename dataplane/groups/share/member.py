"""Members of a share group and their heartbeats."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.share_groups import JOIN_EPOCH
from ...runtime.retained_bytes import RetainedClaim
from ..consumer.member import Partitions


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat. Rack and topics are None if they have not changed since the last heartbeat."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    topics: tuple[str, ...] | None = None

    @property
    def holders(self) -> tuple[str, str]:
        """The principal and the address that claim memory for the member."""
        return self.principal, self.client_host.removeprefix("/")


@dataclass(slots=True)
class ShareMember:
    """A member of a share group. `assigned` are the partitions of which it takes records; other members may take
    records of them, too."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = frozenset()
    session_deadline_ms: int = 0
    claim: RetainedClaim | None = None

    def check_epoch(self, epoch: int) -> None:
        """Raises KafkaError FENCED_MEMBER_EPOCH for an epoch that is neither the member's nor its previous one."""
        if epoch in (JOIN_EPOCH, self.epoch, self.previous_epoch):
            return
        if epoch > self.epoch:
            problem = (
                f"a greater member epoch ({epoch}) than the one known by the group coordinator ({self.epoch})"
            )
        else:
            problem = (
                f"a smaller member epoch ({epoch}) than the one known by the group coordinator ({self.epoch}), and it "
                f"does not match the previous member epoch ({self.previous_epoch})"
            )
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has {problem}. The member must abandon all its partitions and rejoin.",
        )

    def take_over(self, beat: ShareHeartbeat) -> tuple[bool, bool]:
        """Update the member from a heartbeat. Return whether anything changed, and whether the subscription did."""
        before, topics = self._described, self.topics
        if beat.topics is not None:
            self.topics = tuple(sorted(set(beat.topics)))
        if beat.rack_id is not None:
            self.rack_id = beat.rack_id
        self.client_id, self.client_host = beat.client_id, beat.client_host
        return self._described != before, self.topics != topics

    @property
    def _described(self) -> tuple[object, ...]:
        return (self.topics, self.rack_id, self.client_id, self.client_host)
