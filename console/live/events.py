"""Events of the cluster, found by comparing two snapshots: changes of leaders, in-sync replicas, brokers, reassignments
and the quorum. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...client.connections.metadata import NO_LEADER, PartitionInfo
from .snapshots import ClusterSnapshot

TOLD_MAX: Final = 8
"""The most partitions that are named for one kind of change; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the cluster as a line of the overview's timeline; `kind` is "bad", "good" or "news"."""

    at_s: float
    kind: str
    text: str


def events_between(before: ClusterSnapshot, after: ClusterSnapshot) -> list[Event]:
    """Return the events between two snapshots of the cluster.

    Their order is the order in which people look for causes: quorum, brokers, leaders, in-sync replicas, reassignments.
    """
    found = [
        *_of_quorum(before, after),
        *_of_brokers(before, after),
        *_of_partitions(before, after),
        *_of_reassignments(before, after),
    ]
    return [Event(after.at_s, kind, text) for kind, text in found]


def _of_quorum(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    old, new = before.quorum, after.quorum
    if old is None or new is None or (old.leader_id, old.term) == (new.leader_id, new.term):
        return
    if new.leader_id is None:
        yield "bad", f"the quorum has no leader; node {old.leader_id} led it in term {old.term}"
    else:
        yield "news", f"node {new.leader_id} leads the quorum in term {new.term}"


def _of_brokers(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    old = {broker.id for broker in before.cluster.brokers}
    new = {broker.id for broker in after.cluster.brokers}
    for gone in sorted(old - new):
        yield "bad", f"broker {gone} left the cluster"
    for come in sorted(new - old):
        yield "good", f"broker {come} joined the cluster"


def _of_partitions(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    counts: Counter[str] = Counter()
    topics = {topic.name: topic.partitions for topic in before.topics}
    for topic in sorted(after.topics, key=lambda topic: topic.is_internal):  # Users' own topics come first.
        known = topics.get(topic.name, {})
        for new in topic.partitions.values():
            old = known.get(new.index)
            if old is None or (old.leader == new.leader and old.isr == new.isr):
                continue
            for group, kind, text in _of_partition(f"{topic.name}-{new.index}", old, new):
                counts[group] += 1
                if counts[group] <= TOLD_MAX:
                    yield kind, text
    for group, number in counts.items():
        if number > TOLD_MAX:
            yield "news", f"{group} in {number - TOLD_MAX} more partitions"


def _of_partition(name: str, old: PartitionInfo, new: PartitionInfo) -> Iterator[tuple[str, str, str]]:
    if new.leader != old.leader:
        if new.leader == NO_LEADER:
            yield "no leader", "bad", f"{name}: no leader; broker {old.leader} led before"
        else:
            epoch = f", leader epoch {new.leader_epoch}" if new.leader_epoch >= 0 else ""
            yield "another broker leads", "news", f"{name}: broker {new.leader} leads{epoch}"
    for broker in sorted(set(old.isr) - set(new.isr)):
        yield "the ISR shrank", "bad", f"{name}: broker {broker} left the ISR"
    for broker in sorted(set(new.isr) - set(old.isr)):
        yield "the ISR grew", "good", f"{name}: broker {broker} joined the ISR"


def _of_reassignments(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    begun, ended = (
        after.reassigning.keys() - before.reassigning.keys(),
        before.reassigning.keys() - after.reassigning.keys(),
    )
    if begun:
        yield "news", f"{len(begun)} partitions began to be reassigned"
    if ended:
        yield "good", f"{len(ended)} partitions are no longer reassigned"
