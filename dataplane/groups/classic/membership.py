"""What goes into a group's state machine and what comes out: requests, members, replies, and a request to store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import getsizeof

from ....protocol.errors import ErrorCode
from ...runtime.retained_bytes import RetainedClaim

NO_GENERATION = -1
_PENDING_ID_BYTES = 300


@dataclass(slots=True)
class ClassicMember:
    """One member; `protocols` are (assignor name, subscription bytes) in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    session_deadline_ms: int = 0
    join_ticket: object | None = None
    sync_ticket: object | None = None
    joined_once: bool = False
    claim: RetainedClaim | None = None

    @property
    def assignors(self) -> frozenset[str]:
        """Names of the assignors it knows."""
        return frozenset(name for name, _ in self.protocols)

    @property
    def expires(self) -> bool:
        """Who waits for a join or a sync is alive by that, save one that has never been in a generation."""
        if self.join_ticket is not None:
            return not self.joined_once
        return self.sync_ticket is None

    def heard_of(self, now_ms: int) -> None:
        """Its session starts anew."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def metadata_for(self, protocol: str | None) -> bytes:
        """The subscription this member sent with `protocol` (empty if it does not know it)."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def answer_waiting(self, error: ErrorCode) -> list[Effect]:
        """Whatever the member waits for ends with an error."""
        effects: list[Effect] = []
        if self.join_ticket is not None:
            effects.append(JoinReply(self.join_ticket, error, self.member_id))
        if self.sync_ticket is not None:
            effects.append(SyncReply(self.sync_ticket, error))
        self.join_ticket = self.sync_ticket = None
        return effects


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a JoinGroup says; `require_known_id` from version 4 (KIP-394), `can_skip_assignment` from 9.

    `claim` is to the memory that the member takes, or the id that is given out to it.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    require_known_id: bool = False
    can_skip_assignment: bool = False
    principal: str = ""
    claim: RetainedClaim | None = None

    @property
    def holders(self) -> tuple[str, str]:
        """Return who claims memory for it: the principal and the address."""
        return self.principal, self.client_host.removeprefix("/")


@dataclass(frozen=True, slots=True)
class PendingId:
    """A member id that was only given out (KIP-394), and until when its client may join with it, in milliseconds."""

    deadline_ms: int
    claim: RetainedClaim | None = None

    @classmethod
    def given_out(cls, member_id: str, deadline_ms: int, claim: RetainedClaim | None) -> PendingId:
        """Return one whose claim is as small as what is kept of the request: the id alone."""
        if claim is not None:
            claim.count(_PENDING_ID_BYTES + getsizeof(member_id))
        return cls(deadline_ms, claim)


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to one JoinGroup; `members` (id, instance id, subscription) only goes to the leader."""

    ticket: object
    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The answer to one SyncGroup."""

    ticket: object
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Write the group's metadata to its log, then call `Group.stored` with the same generation.

    `then` makes of the outcome a reply that is due in any case, even if the group has ended meanwhile.
    """

    generation: int
    then: Callable[[ErrorCode], JoinReply] | None = None


Effect = JoinReply | SyncReply | StoreGroup


def common_protocols(members: Sequence[ClassicMember]) -> set[str]:
    """Assignors that all of these members know; there is at least one member."""
    return set(members[0].assignors).intersection(*(m.assignors for m in members))


def select_protocol(members: Sequence[ClassicMember]) -> str:
    """Every member votes for the first of its assignors that all of them know."""
    common = common_protocols(members)
    votes = Counter(next(name for name, _ in m.protocols if name in common) for m in members)
    return votes.most_common(1)[0][0]
