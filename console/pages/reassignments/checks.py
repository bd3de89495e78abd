"""Checks of planned moves of replicas: reasons to refuse them, and warnings about their effects. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ....client.connections.metadata import NO_LEADER
from ...area import BadQuestion
from ...formats import numbers, size
from .placement import PresentPlacement
from .plans import ReplicaMove

NAMES_SHOWN: Final = 5
"""The most partitions that a sentence names."""


def check(placement: PresentPlacement, moves: Sequence[ReplicaMove]) -> None:
    """Raise BadQuestion if the moves cannot succeed: the message names each reason."""
    reasons = [
        *_impossible_replicas(placement, moves),
        *_unready_partitions(placement, moves),
        *_full_brokers(placement, moves),
    ]
    if reasons:
        raise BadQuestion("; ".join(reasons))


def names(moves: Iterable[ReplicaMove]) -> str:
    """Return the names of some partitions, and the number of the others."""
    every = [move.name for move in moves]
    others = len(every) - NAMES_SHOWN
    return ", ".join(every[:NAMES_SHOWN]) + (f" and {others:,} more" if others > 0 else "")


def _impossible_replicas(placement: PresentPlacement, moves: Sequence[ReplicaMove]) -> Iterable[str]:
    live = placement.live
    absent = sorted({broker for move in moves for broker in move.added if broker not in live})
    if absent:
        yield f"broker {numbers(absent)} is not active; the active brokers are {numbers(sorted(live))}"
    if empty := [move for move in moves if not move.after]:
        yield f"{names(empty)} would have no replica"
    if doubled := [move for move in moves if len(set(move.after)) < len(move.after)]:
        yield f"{names(doubled)} would have two replicas on one broker"


def _unready_partitions(placement: PresentPlacement, moves: Sequence[ReplicaMove]) -> Iterable[str]:
    if under_way := [move for move in moves if move.partition in placement.reassigning]:
        yield f"{names(under_way)} is being reassigned already: wait for the end, or cancel it"
    leaderless = [
        move
        for move in moves
        if (info := placement.partition(move.partition)) is None or info.leader == NO_LEADER
    ]
    if leaderless:
        yield f"{names(leaderless)} has no leader, so nothing can be copied"


def _full_brokers(placement: PresentPlacement, moves: Sequence[ReplicaMove]) -> Iterable[str]:
    for broker, wanted in sorted(arriving(moves).items()):
        free = placement.free.get(broker)
        if free is not None and wanted > free:
            yield f"broker {broker} has {size(free)} free, and the moves copy {size(wanted)} to it"


def arriving(moves: Sequence[ReplicaMove]) -> Counter[int]:
    """Return the known bytes that each broker has to copy."""
    found: Counter[int] = Counter()
    for move in moves:
        for broker in move.added:
            found[broker] += move.size or 0
    return found


def warnings_of(
    placement: PresentPlacement, moves: Sequence[ReplicaMove], least_in_sync: Mapping[str, int]
) -> str:
    """Return warnings about the effects of moves. `least_in_sync` has `min.insync.replicas` of topics, where known."""
    found = []
    behind = [
        move
        for move in moves
        if (info := placement.partition(move.partition)) and set(info.replicas) - set(info.isr)
    ]
    if behind:
        found.append(f"Under-replicated now: {names(behind)}. The copies add to the load of their leaders.")
    if fewer := [move for move in moves if len(move.after) < len(move.before)]:
        found.append(f"Fewer replicas than now: {names(fewer)}.")
    if unsafe := [move for move in moves if len(move.after) < least_in_sync.get(move.partition.topic, 0)]:
        found.append(
            f"Fewer replicas than min.insync.replicas: {names(unsafe)}. Writes with acks=all will fail."
        )
    racks = placement.live
    if crowded := [move for move in moves if _racks(move.after, racks) < _racks(move.before, racks)]:
        found.append(f"On fewer racks than now: {names(crowded)}.")
    return " ".join(found)


def _racks(replicas: Iterable[int], racks: Mapping[int, str | None]) -> int:
    """Return the number of different racks of brokers that have one."""
    return len({racks[broker] for broker in replicas if racks.get(broker) is not None})
