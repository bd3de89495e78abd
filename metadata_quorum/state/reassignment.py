"""Reassignment of replicas (KIP-455), by the rules of Kafka's controller.

A reassignment adds replicas first: the list becomes the target followed by the replicas to remove. The controller
completes it within the change that makes it complete: every added replica is in the ISR (and, if more replicas are
removed than added, the whole target is). The ISR is therefore never smaller than it was without the added replicas, or
than the target. A removed leader is replaced by the ISR member that is furthest along, and each removal of a replica
raises the leader epoch.

A reassignment that replaces a running one cancels that and begins the new one in the same step. Replicas that the first
was adding and the second does not want are removed at once. Only if no other replica is in sync do they stay until the
end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...protocol.cluster.cluster_image import NO_LEADER, PartitionState
from ...protocol.errors import ErrorCode, KafkaError
from . import election
from .election import NO_PROGRESS, Electorate, Progress


def _without(replicas: Iterable[int], gone: Iterable[int]) -> tuple[int, ...]:
    left_out = frozenset(gone)
    return tuple([broker_id for broker_id in replicas if broker_id not in left_out])


def begun(
    state: PartitionState, target: tuple[int, ...], electorate: Electorate, progress: Progress = NO_PROGRESS
) -> PartitionState:
    """Return the partition's state in which the reassignment to the brokers `target` has begun, or is complete
    already."""
    original = _without(state.replicas, state.adding_replicas)
    unwanted = _without(state.adding_replicas, target)
    kept = _without(state.replicas, unwanted)
    if not set(state.isr) & set(kept) or not _would_lead(state, kept, electorate):
        kept = state.replicas
    moving = replace(
        election.reassigned(state, (*target, *sorted(_without(kept, target))), electorate, progress),
        adding_replicas=_without(target, original),
        removing_replicas=tuple(sorted(_without(kept, target))),
    )
    if replace(moving, partition_epoch=0) == replace(state, partition_epoch=0):
        return state
    return completed(replace(moving, partition_epoch=state.partition_epoch + 1), electorate, progress)


def _would_lead(state: PartitionState, replicas: Iterable[int], electorate: Electorate) -> bool:
    """Return whether a partition that has a leader would still have one with these replicas only."""
    able = electorate.of(state).usable.intersection(state.isr)
    return state.leader == NO_LEADER or bool(able.intersection(replicas))


def cancelled(
    state: PartitionState, electorate: Electorate, progress: Progress = NO_PROGRESS
) -> PartitionState:
    """Return the partition's state with the replicas that it had before the running reassignment.

    KafkaError: INVALID_REPLICA_ASSIGNMENT if none of its replicas has all records and unclean elections are not
    allowed, or if none of them could lead now.
    """
    original = _without(state.replicas, state.adding_replicas)
    new = replace(
        election.reassigned(state, original, electorate, progress), adding_replicas=(), removing_replicas=()
    )
    nobody_leads = state.leader != NO_LEADER and new.leader == NO_LEADER
    nobody_can = not (_may_go_on_with(state, original) or electorate.unclean_allowed)
    if not original or nobody_leads or nobody_can:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unable to revert the assignment: of the replicas that would remain none may lead. That would require "
            "an unclean leader election.",
        )
    return replace(new, partition_epoch=state.partition_epoch + 1)


def _may_go_on_with(state: PartitionState, replicas: Iterable[int]) -> bool:
    """Return whether these replicas have all records of the partition, according to ISR, ELR and last known members."""
    trusted = {*state.isr, *state.elr}
    if trusted:
        return not trusted.isdisjoint(replicas)
    return {*state.last_known_elr} <= {*replicas}


def completed(
    state: PartitionState, electorate: Electorate, progress: Progress = NO_PROGRESS
) -> PartitionState:
    """Return the state with its reassignment completed, if that is possible now. The partition epoch is unchanged."""
    if not state.is_moving:
        return state
    target = _without(state.replicas, state.removing_replicas)
    isr = frozenset(_without(state.isr, state.removing_replicas))
    fewer = len(state.adding_replicas) < len(state.removing_replicas)
    if not isr or not isr.issuperset(target if fewer else state.adding_replicas):
        return state
    if not _would_lead(state, target, electorate):
        return state
    new = election.reassigned(state, target, electorate, progress)
    return replace(new, adding_replicas=(), removing_replicas=(), partition_epoch=state.partition_epoch)


def settled(
    before: PartitionState | None,
    after: PartitionState,
    electorate: Electorate,
    progress: Progress = NO_PROGRESS,
) -> PartitionState:
    """Return the partition's state after a change from `before` to `after`, with its reassignment completed if the
    change makes that possible. If the change has begun a leader epoch, the completion begins no further one."""
    new = completed(after, electorate, progress)
    if before is not None and before.leader_epoch < after.leader_epoch < new.leader_epoch:
        return replace(new, leader_epoch=after.leader_epoch)
    return new


def member_ends(leader_epoch: int, ends: Iterable[tuple[int, int]]) -> Progress:
    """Return the log ends of the ISR members, which the leader reported as (broker id, log end offset; -1 unknown), in
    the form that the choice of its successor takes."""
    return {broker_id: (leader_epoch, end) for broker_id, end in ends if end >= 0}
