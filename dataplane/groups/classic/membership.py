"""The requests to a classic group's state machine, its members, and its effects: replies, and requests to store the
group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import getsizeof

from ....protocol.errors import ErrorCode
from ....protocol.messages.offsets import NO_GENERATION
from ...runtime.retained_bytes import RetainedClaim

_PENDING_ID_BYTES = 300


@dataclass(slots=True)
class ClassicMember:
    """A member of a classic group.

    `protocols` are pairs of assignor name and subscription bytes in the member's order of preference. A ticket is
    present while a JoinGroup or SyncGroup of the member waits. `joined_once` is true if the member has been in a
    generation.
    """

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
        """Names of the assignors that the member knows."""
        return frozenset(name for name, _ in self.protocols)

    @property
    def expires(self) -> bool:
        """True if the session of the member can expire.

        A member that waits for a join or a sync counts as alive, unless it has never been in a generation.
        """
        if self.join_ticket is not None:
            return not self.joined_once
        return self.sync_ticket is None

    def heard_of(self, now_ms: int) -> None:
        """Restart the member's session timeout at `now_ms`, since the member has sent a request."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def metadata_for(self, protocol: str | None) -> bytes:
        """Return the subscription that the member sent with `protocol`; empty if the member does not know the
        protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def answer_waiting(self, error: ErrorCode) -> list[Effect]:
        """Return error replies to the JoinGroup or SyncGroup of the member that waits; the wait ends here."""
        effects: list[Effect] = []
        if self.join_ticket is not None:
            effects.append(JoinReply(self.join_ticket, error, self.member_id))
        if self.sync_ticket is not None:
            effects.append(SyncReply(self.sync_ticket, error))
        self.join_ticket = self.sync_ticket = None
        return effects


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The contents of a JoinGroup request.

    `require_known_id` is set from version 4 on (KIP-394), `can_skip_assignment` from version 9. `claim` is the claim of
    the memory for the member, or for the id that it gets.
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
        """The names to whose account the memory of the request is claimed: the client's principal and its address."""
        return self.principal, self.client_host.removeprefix("/")


@dataclass(frozen=True, slots=True)
class PendingId:
    """A member id that a client has got but not yet joined with (KIP-394). The client may join until `deadline_ms`."""

    deadline_ms: int
    claim: RetainedClaim | None = None

    @classmethod
    def given_out(cls, member_id: str, deadline_ms: int, claim: RetainedClaim | None) -> PendingId:
        """Return a member id that was sent to a client and is not joined with yet (KIP-394).

        Its memory claim is reduced to the size of the id, which alone is kept of the request.
        """
        if claim is not None:
            claim.count(_PENDING_ID_BYTES + getsizeof(member_id))
        return cls(deadline_ms, claim)


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a JoinGroup; only the leader gets `members` (id, instance id, subscription)."""

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
    """The answer to a SyncGroup: an error, or the member's assignment."""

    ticket: object
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """A request to the caller: write the group's metadata to its log, then call `ClassicGroup.stored` with this
    generation.

    `then` turns the outcome into a reply that is due in any case, even if the group has ended meanwhile.
    """

    generation: int
    then: Callable[[ErrorCode], JoinReply] | None = None


Effect = JoinReply | SyncReply | StoreGroup


def common_protocols(members: Sequence[ClassicMember]) -> set[str]:
    """Return the assignors that all of these members know. At least one member is required."""
    return set(members[0].assignors).intersection(*(m.assignors for m in members))


def select_protocol(members: Sequence[ClassicMember]) -> str:
    """Return the assignor with most votes. Every member votes for the first of its assignors that all members know."""
    common = common_protocols(members)
    votes = Counter(next(name for name, _ in m.protocols if name in common) for m in members)
    return votes.most_common(1)[0][0]
