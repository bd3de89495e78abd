"""States of a record in the window of a share partition, and their durable form.

    AVAILABLE -> ACQUIRED       a member fetches the record; the delivery count rises
    ACQUIRED  -> AVAILABLE      the member releases the record, or its lock ends
    ACQUIRED  -> ACKNOWLEDGED   the member accepts the record
    ACQUIRED  -> ARCHIVED       the member rejects the record, or its last delivery fails
    ACQUIRED  -> ARCHIVING      likewise, in a group with a dead letter topic; in memory only
    ARCHIVING -> ARCHIVED       the dead letter is written

Between a change and its durable write the state is `Changing`. All states are immutable, so that many records share an
object.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import ClassVar, NamedTuple

NEVER_MS = 2**63 - 1
"""Deadline of a state that does not end by itself."""


class DurableState(IntEnum):
    """The state of a range in `__share_group_state`, with Kafka's numbers."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """A range of offsets with one durable state. A finished range has no delivery count."""

    first: int
    last: int
    state: DurableState
    delivery_count: int = 0
    not_before_ms: int = 0
    """Time before which no member acquires the records; 0 without a delay. At a leader it is monotonic, and stored it
    is the time since 1970."""

    def shifted(self, ms: int) -> StateBatch:
        """Return the batch with its time shifted from one clock to another."""
        return self._replace(not_before_ms=max(1, self.not_before_ms + ms)) if self.not_before_ms else self


class AcknowledgeType(IntEnum):
    """The type of an acknowledgement, with its number on the wire (KIP-932, KIP-1222)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class DeathReason(Enum):
    """The reason for which a record goes to the dead letter topic."""

    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery limit"


class _State:
    """Properties of states. Subclasses override the properties that differ."""

    __slots__ = ()
    is_finished: ClassVar[bool] = False
    is_acquirable: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Available(_State):
    """A record that a member may acquire. Its count is 0 before the first delivery."""

    is_acquirable: ClassVar[bool] = True
    delivery_count: int = 0


@dataclass(frozen=True, slots=True)
class Blocked(_State):
    """A record that no member may acquire before an earlier record with the same key is finished."""

    delivery_count: int = 0


@dataclass(frozen=True, slots=True)
class Delayed(_State):
    """A released record that no member may acquire before its deadline."""

    delivery_count: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Acquired(_State):
    """A record that a member holds until the end of its lock."""

    member_id: str
    delivery_count: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Pending(_State):
    """A record that a member has acknowledged in a transaction. The member holds the record until the transaction
    ends."""

    transaction: Hashable
    member_id: str
    delivery_count: int
    type: AcknowledgeType


@dataclass(frozen=True, slots=True)
class Archiving(_State):
    """A record whose dead letter is not yet written."""

    delivery_count: int
    reason: DeathReason


@dataclass(frozen=True, slots=True)
class Finished(_State):
    """A record that is never delivered again: acknowledged or archived."""

    is_finished: ClassVar[bool] = True
    state: DurableState


@dataclass(frozen=True, slots=True)
class Changing(_State):
    """A record whose change is being written. No member may acquire or acknowledge the record."""

    before: Acquired | Pending | Archiving
    after: State
    transition: Hashable
    """Identity of the transition that the write completes."""


State = Available | Blocked | Delayed | Acquired | Pending | Archiving | Finished | Changing

ACKNOWLEDGED = Finished(DurableState.ACKNOWLEDGED)
ARCHIVED = Finished(DurableState.ARCHIVED)
UNTOUCHED = Available()


Waiting = Available | Blocked | Delayed
"""States of a record that no member holds and that is not given up."""


def deadline_of(state: State) -> int:
    """Return the monotonic time in milliseconds at which the state ends by itself, or `NEVER_MS`."""
    return state.deadline_ms if isinstance(state, Acquired | Delayed) else NEVER_MS


def durable_batch(first: int, last: int, state: State) -> StateBatch | None:
    """Return the durable form of a range; None if the range is as before its first delivery.

    An acquisition is not durable. After a failover the records are available, with the delivery count from before the
    acquisition, as in Kafka.
    """
    match state:
        case Changing(before=before):
            return durable_batch(first, last, before)
        case Finished(state=finished):
            return StateBatch(first, last, finished)
        case Delayed(delivery_count=count, deadline_ms=not_before_ms):
            return StateBatch(first, last, DurableState.AVAILABLE, count, not_before_ms)
        case Available(delivery_count=count) | Blocked(delivery_count=count):
            pass
        case Acquired(delivery_count=count) | Pending(delivery_count=count) | Archiving(delivery_count=count):
            count -= 1
    return StateBatch(first, last, DurableState.AVAILABLE, count) if count else None


def restored_state(batch: StateBatch) -> State:
    """Return the state of the records of a durable batch: the inverse of `durable_batch`."""
    match batch.state:
        case DurableState.ACKNOWLEDGED:
            return ACKNOWLEDGED
        case DurableState.ARCHIVED:
            return ARCHIVED
        case DurableState.AVAILABLE if batch.not_before_ms:
            return Delayed(batch.delivery_count, batch.not_before_ms)
        case DurableState.AVAILABLE:
            return Available(batch.delivery_count)


def without_lock(state: State, member_id: str, now_ms: int) -> State:
    """Return the state once a member's lock has ended. A change on its way stays, and has no lock if it fails."""
    match state:
        case Acquired() if state.member_id == member_id:
            return replace(state, deadline_ms=min(state.deadline_ms, now_ms))
        case Changing(before=Acquired() as before) if before.member_id == member_id:
            return replace(state, before=replace(before, deadline_ms=min(before.deadline_ms, now_ms)))
    return state


def add_batch(batches: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch to batches in the order of offsets. The batch extends the last batch if nothing else differs."""
    if batches and batches[-1].last + 1 == batch.first and batches[-1][2:] == batch[2:]:
        batches[-1] = batches[-1]._replace(last=batch.last)
    else:
        batches.append(batch)
