"""Who leads a partition, and what its ISR and ELR become. Pure functions over one partition's state.

Rules (KIP-966): a leader that may go on leading stays. Else the usable ISR member furthest along leads; with
none, a usable ELR member; with ISR and ELR empty, the last known leader; else, only where unclean election is
allowed, any usable replica, and the ISR is that replica alone. A sole ISR member that is fenced stays in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...protocol.cluster_image import NO_LEADER, PartitionState

LogEnd = tuple[int, int]
"""(leader epoch of the last batch, log end offset): how far a replica is along."""

_NOTHING_KNOWN: LogEnd = (-1, -1)


@dataclass(frozen=True, slots=True)
class Electorate:
    """What an election goes by: who may lead, how far each is along, and what the topic asks for."""

    usable: Callable[[int], bool]
    min_isr: int = 1
    unclean_allowed: bool = False
    progress: Mapping[int, LogEnd] = field(default_factory=dict)

    def furthest(self, candidates: Iterable[int]) -> int | None:
        """The usable candidate furthest along; of equals the first."""
        able = [broker_id for broker_id in candidates if self.usable(broker_id)]
        return max(able, key=lambda broker_id: self.progress.get(broker_id, _NOTHING_KNOWN), default=None)


def in_replica_order(state: PartitionState, members: Iterable[int]) -> tuple[int, ...]:
    """The members, preferred replica first."""
    wanted = frozenset(members)
    return tuple(broker_id for broker_id in state.replicas if broker_id in wanted)


def _successor(old: PartitionState, new: PartitionState) -> PartitionState:
    """`new` with its epochs: the leader epoch follows the leader, the partition epoch any change."""
    if new == old:
        return old
    leader_epoch = old.leader_epoch + (new.leader != old.leader)
    return replace(new, leader_epoch=leader_epoch, partition_epoch=old.partition_epoch + 1)


def _with_isr(state: PartitionState, isr: Iterable[int], min_isr: int) -> PartitionState:
    """The state with this ISR, and those in the ELR that still have all acknowledged records.

    Nothing is acknowledged with acks=all while the ISR is smaller than min.insync.replicas, so whoever leaves
    then has all that ever was; once the ISR is large enough again, outsiders fall behind.
    """
    members = frozenset(isr)
    outsiders: Iterable[int] = ()
    if len(members) < min(min_isr, len(state.replicas)):
        outsiders = {*state.elr, *state.isr} - members
    isr_in_order = in_replica_order(state, members)
    last_known = () if members else state.last_known_elr
    return replace(state, isr=isr_in_order, elr=in_replica_order(state, outsiders), last_known_elr=last_known)


def _elected(state: PartitionState, electorate: Electorate) -> PartitionState:
    """The state with a leader, if there can be one; epochs as they were."""
    if state.leader in state.isr and electorate.usable(state.leader):
        return state
    leader = electorate.furthest(in_replica_order(state, state.isr))
    if leader is not None:
        return replace(state, leader=leader, unclean=False)
    leader = electorate.furthest(in_replica_order(state, state.elr))
    if leader is not None:
        return replace(_with_isr(state, (leader,), electorate.min_isr), leader=leader, unclean=False)
    if not state.isr and not state.elr:
        leader = electorate.furthest(state.last_known_elr)
    if leader is None and electorate.unclean_allowed:
        leader = electorate.furthest(state.replicas)
    if leader is None:
        return replace(state, leader=NO_LEADER)
    return replace(state, isr=(leader,), elr=(), last_known_elr=(), leader=leader, unclean=True)


def elect(state: PartitionState, electorate: Electorate) -> PartitionState:
    """The state after an election, if one is needed and possible."""
    return _successor(state, _elected(state, electorate))


def elect_preferred(state: PartitionState, electorate: Electorate) -> PartitionState:
    """The state with the preferred replica as leader, if it may lead cleanly."""
    preferred = state.replicas[0]
    if state.leader == preferred or preferred not in state.isr or not electorate.usable(preferred):
        return state
    return _successor(state, replace(state, leader=preferred, unclean=False))


def without(state: PartitionState, broker_id: int, electorate: Electorate) -> PartitionState:
    """The state after a broker was fenced or began to shut down; `electorate` must not count it as usable.

    It leaves the ISR unless it is the last member; then it stays, leaderless, unless the ELR can take over.
    """
    left = [member for member in state.isr if member != broker_id]
    shrinks = broker_id in state.isr and bool(left)
    state_without = _with_isr(state, left, electorate.min_isr) if shrinks else state
    return _successor(state, _elected(state_without, electorate))


def after_unclean_stop(state: PartitionState, broker_id: int, electorate: Electorate) -> PartitionState:
    """The state after a broker came back from an unclean stop: it may have lost what it acknowledged.

    It leaves the ISR and the ELR. Where that empties the ISR it is kept as the last known leader, which may
    lead again if the ELR is empty too: the partition goes on with what the sole survivor has.
    """
    left = [member for member in state.isr if member != broker_id]
    new = _with_isr(state, left, electorate.min_isr) if broker_id in state.isr else state
    new = replace(new, elr=tuple(member for member in new.elr if member != broker_id))
    if not new.isr and state.isr:
        new = replace(new, last_known_elr=(broker_id,))
    return _successor(state, _elected(new, electorate))


def with_isr(state: PartitionState, isr: Iterable[int], min_isr: int) -> PartitionState:
    """The state after its leader changed the ISR."""
    return _successor(state, _with_isr(state, isr, min_isr))


def with_min_isr(state: PartitionState, min_isr: int) -> PartitionState:
    """The state after min.insync.replicas changed: the ELR ends where acknowledging can go on without it."""
    if state.elr and len(state.isr) >= min(min_isr, len(state.replicas)):
        return _successor(state, replace(state, elr=()))
    return state
