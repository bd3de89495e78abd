"""Elections: the leader of a partition, and the resulting ISR and ELR. Pure functions over one partition's state.

Rules (KIP-966): a leader that may continue stays. Otherwise the usable ISR member that is furthest along leads; without
such a member, a usable ELR member. With ISR and ELR empty, one of the last known members leads. Otherwise, only if
unclean election is allowed, any usable replica leads, and the ISR is that replica alone. The only ISR member stays in
the ISR even when it is fenced.

The last known members left ISR or ELR by an unclean stop: each had every acknowledged record and may have lost some.
Only their logs show which. If there are several, a leader is elected only when all of them are back and have reported
their log ends. The member that is furthest along leads, or a replica outside that has more records of the same leader,
and so all of the member's records. A replica whose last records are of a later leader may be missing some: that leader
was perhaps deposed, and wrote while other leaders led.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...protocol.cluster.broker_lists import broker_list
from ...protocol.cluster.cluster_image import NO_LEADER, PartitionState

LogEnd = tuple[int, int]
"""Position of a replica: (leader epoch of the last batch, log end offset)."""

Progress = Mapping[int, LogEnd]
"""Known positions of the replicas of one partition, by broker id."""

_NOTHING_KNOWN: LogEnd = (-1, -1)
NO_PROGRESS: Progress = {}


@dataclass(frozen=True, slots=True)
class Electorate:
    """The inputs of elections in one topic: the brokers that may lead, and the topic's settings."""

    usable: frozenset[int]
    min_isr: int = 1
    unclean_allowed: bool = False

    def of(self, state: PartitionState) -> Electorate:
        """Return the electorate for one partition of the topic, without brokers whose replica of the partition is
        offline."""
        if not state.offline_replicas:
            return self
        return replace(self, usable=self.usable.difference(state.offline_replicas))


class _Membership(NamedTuple):
    """A partition's ISR, ELR, last known members and leader after an election or a change, before the epochs are
    raised."""

    isr: tuple[int, ...]  # in replica order, as the ELR
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    unclean: bool


def _membership(state: PartitionState) -> _Membership:
    return _Membership(state.isr, state.elr, state.last_known_elr, state.leader, state.unclean)


def _successor(old: PartitionState, was: _Membership, new: _Membership) -> PartitionState:
    """Return the partition state that follows `old` with the membership `new`; the same object if nothing changes."""
    return old if new == was else _changed(old, new, broker_list(new.isr))


def _changed(old: PartitionState, new: _Membership | PartitionState, isr: tuple[int, ...]) -> PartitionState:
    """Return the state after `old` with the members and the leader of `new`. The leader epoch rises when the leader
    changes, the partition epoch on any change."""
    return PartitionState(
        old.replicas,
        isr,
        new.elr,
        new.last_known_elr,
        new.leader,
        old.leader_epoch + (new.leader != old.leader),
        old.partition_epoch + 1,
        new.unclean,
        old.adding_replicas,
        old.removing_replicas,
        old.offline_replicas,
    )


def in_replica_order(replicas: Iterable[int], members: Iterable[int]) -> tuple[int, ...]:
    """Return the members in the order of the replicas, preferred replica first."""
    wanted = frozenset(members)
    return tuple([broker_id for broker_id in replicas if broker_id in wanted])


def furthest(candidates: Sequence[int], electorate: Electorate, progress: Progress) -> int:
    """Return the usable candidate that is furthest along, the first of equals; NO_LEADER if none is usable."""
    able = [broker_id for broker_id in candidates if broker_id in electorate.usable]
    if len(able) <= 1 or not progress:
        return able[0] if able else NO_LEADER
    return max(able, key=lambda broker_id: progress.get(broker_id, _NOTHING_KNOWN))


def _with_isr(replicas: tuple[int, ...], was: _Membership, isr: tuple[int, ...], min_isr: int) -> _Membership:
    """Return the membership with this ISR, and with the ELR members that still have all acknowledged records.

    Nothing is acknowledged with acks=all while the ISR is smaller than min.insync.replicas. A member that leaves then
    has every acknowledged record; once the ISR is large enough again, replicas outside fall behind.
    """
    if _may_acknowledge(replicas, isr, min_isr):
        return _Membership(isr, (), (), was.leader, was.unclean)
    elr = in_replica_order(replicas, {*was.elr, *was.isr}.difference(isr))
    last_known = in_replica_order(replicas, set(was.last_known_elr).difference(isr))
    return _Membership(isr, elr, last_known, was.leader, was.unclean)


def _may_acknowledge(replicas: tuple[int, ...], isr: tuple[int, ...], min_isr: int) -> bool:
    return len(isr) >= min(min_isr, len(replicas))


def _elected(
    replicas: tuple[int, ...], was: _Membership, electorate: Electorate, progress: Progress
) -> _Membership:
    """Return the membership with a leader, if one can be elected."""
    if was.leader in was.isr and was.leader in electorate.usable:
        return was
    leader = furthest(was.isr, electorate, progress)
    if leader != NO_LEADER:
        if _may_acknowledge(replicas, was.isr, electorate.min_isr):
            # if the minimum was lowered while there was no leader, writes now continue without the others
            return _Membership(was.isr, (), (), leader, False)
        return _Membership(was.isr, was.elr, was.last_known_elr, leader, False)
    leader = furthest(was.elr, electorate, progress)
    if leader != NO_LEADER:
        new = _with_isr(replicas, was, (leader,), electorate.min_isr)
        return new._replace(leader=leader, unclean=False)
    if not was.isr and not was.elr and _comparable(was.last_known_elr, electorate, progress):
        leader = furthest(was.last_known_elr, electorate, progress)
        if len(was.last_known_elr) > 1:
            epoch, _ = progress[leader]
            alike = [replica for replica in replicas if progress.get(replica, _NOTHING_KNOWN)[0] == epoch]
            leader = furthest([leader, *alike], electorate, progress)
        new = _with_isr(replicas, was, (leader,), electorate.min_isr)
        return new._replace(leader=leader, unclean=True)
    if electorate.unclean_allowed:
        leader = furthest(replicas, electorate, progress)
    if leader == NO_LEADER:
        return was._replace(leader=NO_LEADER)
    return _Membership((leader,), (), (), leader, True)


def _comparable(last_known: tuple[int, ...], electorate: Electorate, progress: Progress) -> bool:
    """Return whether the furthest member can be determined: all are back and have reported, or the only member is
    back."""
    back = electorate.usable.issuperset(last_known)
    return bool(last_known) and back and (len(last_known) == 1 or progress.keys() >= set(last_known))


def elect(state: PartitionState, electorate: Electorate, progress: Progress = NO_PROGRESS) -> PartitionState:
    """Return the partition's state after an election, if it has no usable leader and one can be elected; else the same
    state."""
    was = _membership(state)
    return _successor(state, was, _elected(state.replicas, was, electorate.of(state), progress))


def elect_preferred(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Return the state with the preferred replica as leader, if that replica may lead cleanly."""
    preferred = state.replicas[0]
    if (
        state.leader == preferred
        or preferred not in state.isr
        or preferred not in electorate.of(state).usable
    ):
        return state
    was = _membership(state)
    return _successor(state, was, was._replace(leader=preferred, unclean=False))


def without(
    state: PartitionState, broker_id: int, electorate: Electorate, progress: Progress = NO_PROGRESS
) -> PartitionState:
    """Return the state after a broker was fenced or began to shut down; `electorate` must not count it as usable.

    The broker leaves the ISR unless it is the last member. The last member stays, without a leader, unless the ELR can
    take over.
    """
    new = was = _membership(state)
    left = tuple([member for member in state.isr if member != broker_id])
    if left and len(left) < len(state.isr):
        new = _with_isr(state.replicas, was, left, electorate.min_isr)
    return _successor(state, was, _elected(state.replicas, new, electorate.of(state), progress))


def after_unclean_stop(
    state: PartitionState, broker_id: int, electorate: Electorate, progress: Progress = NO_PROGRESS
) -> PartitionState:
    """Return the state after a broker returned from an unclean stop, which may have lost acknowledged records.

    The broker leaves the ISR and the ELR. If it would be in the ELR after a clean stop, it becomes a last known member
    instead: it may still have everything, and with ISR and ELR empty only the last known members are left.
    """
    new = was = _membership(state)
    left = tuple([member for member in state.isr if member != broker_id])
    if len(left) < len(state.isr):
        new = _with_isr(state.replicas, was, left, electorate.min_isr)
    if broker_id in new.elr:
        elr = tuple([member for member in new.elr if member != broker_id])
        last_known = in_replica_order(state.replicas, {*new.last_known_elr, broker_id})
        new = new._replace(elr=elr, last_known_elr=last_known)
    return _successor(state, was, _elected(state.replicas, new, electorate.of(state), progress))


Leave = Callable[[PartitionState, int, Electorate, Progress], PartitionState]
"""Either `without` or `after_unclean_stop`."""

_Alike = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int, bool]
"""Inputs of a decision about a partition, except for the leaving broker and the electorate."""


class LeavingBroker:
    """A cache of decisions for a broker that leaves many partitions in one command, by a fence or a shutdown.
    Partitions in equal states are decided only once."""

    def __init__(self, broker_id: int, leave: Leave) -> None:
        self._broker_id = broker_id
        self._leave = leave
        self._decided: dict[Electorate, dict[_Alike, PartitionState | None]] = {}
        #: decisions for the last electorate, since partitions come topic by topic
        self._electorate: Electorate | None = None
        self._here: dict[_Alike, PartitionState | None] = {}

    def after(
        self, state: PartitionState, electorate: Electorate, progress: Progress = NO_PROGRESS
    ) -> PartitionState:
        """Return the state of a partition after the broker has left."""
        if progress:
            return self._leave(state, self._broker_id, electorate, progress)
        if electorate is not self._electorate:
            self._electorate, self._here = electorate, self._decided.setdefault(electorate, {})
        alike = (
            state.replicas,
            state.isr,
            state.elr,
            state.last_known_elr,
            state.offline_replicas,
            state.leader,
            state.unclean,
        )
        if alike not in self._here:
            new = self._leave(state, self._broker_id, electorate, progress)
            self._here[alike] = None if new is state else new
            return new
        first = self._here[alike]
        return state if first is None else _changed(state, first, first.isr)


def with_isr(state: PartitionState, isr: Iterable[int], min_isr: int) -> PartitionState:
    """Return the partition's state after its leader has changed the ISR to `isr`."""
    was = _membership(state)
    members = in_replica_order(state.replicas, isr)
    return _successor(state, was, _with_isr(state.replicas, was, members, min_isr))


def reassigned(
    state: PartitionState,
    replicas: tuple[int, ...],
    electorate: Electorate,
    progress: Progress = NO_PROGRESS,
) -> PartitionState:
    """Return the state with other replicas. This adds no replica to the ISR.

    A removed leader is replaced. A new leader epoch fences each removed replica even if the leader stays. The same
    object is returned if nothing changes.
    """
    was = _membership(state)
    isr = in_replica_order(replicas, state.isr)
    new = _with_isr(replicas, was, isr, electorate.min_isr)
    new = _elected(replicas, new, electorate.of(state), progress)
    if new == was and replicas == state.replicas:
        return state
    fenced = new.leader != state.leader or not set(state.replicas) <= set(replicas)
    return PartitionState(
        replicas,
        new.isr,
        new.elr,
        new.last_known_elr,
        new.leader,
        state.leader_epoch + fenced,
        state.partition_epoch + 1,
        new.unclean,
        in_replica_order(replicas, state.adding_replicas),
        in_replica_order(replicas, state.removing_replicas),
        in_replica_order(replicas, state.offline_replicas),
    )


def with_min_isr(state: PartitionState, min_isr: int) -> PartitionState:
    """Return the state after min.insync.replicas changed. The ELR ends if the ISR suffices for acknowledgements;
    without a leader this waits for the next election."""
    was = _membership(state)
    if state.leader != NO_LEADER and _may_acknowledge(state.replicas, state.isr, min_isr):
        return _successor(state, was, was._replace(elr=(), last_known_elr=()))
    return state
