"""One step of a member from what it holds towards its target (KIP-848), as a pure function.

A member first gives up partitions that are not in its target, then moves to the epoch of the target, and gets the
partitions that other members have let go of. Its states:

    STABLE     -> STABLE      the target is the same, or there is nothing to give up and nothing is held by others
    STABLE     -> UNREVOKED   it owns partitions that are not in its target
    STABLE     -> UNRELEASED  partitions of its target are still held by others
    UNREVOKED  -> UNREVOKED   it still owns some of these partitions, or the next target takes more away
    UNREVOKED  -> UNRELEASED  it has let go; others have not
    UNREVOKED  -> STABLE      it has let go
    UNRELEASED -> UNRELEASED  others still hold some of its partitions
    UNRELEASED -> UNREVOKED   a newer target takes partitions away
    UNRELEASED -> STABLE      all of its target is its own
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .member import ConsumerMember, MemberState, Partitions, TopicPartition


@dataclass(frozen=True, slots=True)
class ReconciliationStep:
    """A member's epoch, state and partitions after one step of its reconciliation with the target assignment."""

    epoch: int
    state: MemberState
    assigned: Partitions
    revoking: Partitions


def reconcile(
    member: ConsumerMember,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicPartition], bool],
) -> ReconciliationStep:
    """Return the member's next state; the present state if it cannot move.

    `owned` are the partitions that the member reports to own, None if it does not report them. `is_free` returns
    whether no other member holds a partition.
    """
    here = ReconciliationStep(member.epoch, member.state, member.assigned, member.revoking)
    if member.state is MemberState.STABLE:
        if member.epoch == target_epoch:
            return here
        return _next(member, member.epoch, target, target_epoch, owned, is_free)
    if member.state is MemberState.UNRELEASED:
        return _next(member, member.epoch, target, target_epoch, owned, is_free)
    if owned is None or owned & member.revoking:
        return here
    # The member has let go, which is a separate step: its epoch rises even if the next target takes more away.
    epoch = min(member.epoch + 1, target_epoch)
    return _next(member, epoch, target, target_epoch, owned, is_free)


def _next(
    member: ConsumerMember,
    epoch: int,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicPartition], bool],
) -> ReconciliationStep:
    kept, taken = member.assigned & target, member.assigned - target
    if taken and (owned is None or owned & taken):
        return ReconciliationStep(epoch, MemberState.UNREVOKED, kept, taken)
    wanted = target - kept
    given = frozenset(filter(is_free, wanted))
    state = MemberState.STABLE if given == wanted else MemberState.UNRELEASED
    return ReconciliationStep(target_epoch, state, kept | given, frozenset())
