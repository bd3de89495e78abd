"""Events of the cluster, found by comparing two snapshots: changes of leaders, in-sync replicas, brokers, reassignments
and the quorum. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...client.admin.values import QuorumDescription
from ...client.connections.metadata import NO_LEADER, PartitionInfo
from .broker_absences import fence_times
from .snapshots import ClusterSnapshot

NAMED_MAX: Final = 8
"""The most partitions that an event names; further ones are counted."""
BAD, GOOD, NEWS = "bad", "good", "news"
LEFT, JOINED = "left", "joined"
OFFLINE: Final = "lost the leader"
LED_AGAIN: Final = "got a leader again"
LED_BY_ANOTHER: Final = "got another leader"
ISR_SHRANK: Final = "lost an in-sync replica"
ISR_GREW: Final = "gained an in-sync replica"
_EFFECTS: Final = (OFFLINE, LED_AGAIN, LED_BY_ANOTHER, ISR_SHRANK, ISR_GREW)
"""The effects on partitions, in the order in which they are shown."""


class Cause(NamedTuple):
    """The cause of events: a subject such as `broker 3`, and its change, such as LEFT."""

    subject: str
    change: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the cluster; `kind` is BAD, GOOD or NEWS.

    `effect` says what happened to each of the `partitions`, such as `lost an in-sync replica`. The event of the cause
    itself has no effect.
    """

    at_s: float
    kind: str
    text: str
    cause: Cause
    effect: str = ""
    partitions: int = 0


class _Change(NamedTuple):
    """A kind of change of partitions: the effect, and the broker that it names.

    `taken_from` is the former leader if it has left the ISR or the cluster, so that the broker took over.
    """

    effect: str
    broker: int
    taken_from: int | None = None


@dataclass(slots=True)
class _Changed:
    """The partitions with one kind of change: their number, and the names of the first."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, topic: str, partition: int) -> None:
        """Count a partition."""
        self.count += 1
        if self.count <= NAMED_MAX:
            self.names.append(f"{topic}-{partition}")

    @property
    def text(self) -> str:
        """The names of the partitions, and the number of further partitions."""
        if self.count == 1:
            return self.names[0]
        further = self.count - len(self.names)
        names = ", ".join(self.names) + (f" and {further:,} more" if further else "")
        return f"{partitions_text(self.count)}: {names}"


def partitions_text(number: int) -> str:
    """Format a number of partitions: `1 partition`, `24 partitions`."""
    return f"{number:,} partition{'' if number == 1 else 's'}"


def events_between(before: ClusterSnapshot, after: ClusterSnapshot) -> list[Event]:
    """Return the events between two snapshots of the cluster.

    Their order is the order in which people look for causes: quorum, brokers, leaders, in-sync replicas, reassignments.
    """
    return [
        *_of_quorum(before, after),
        *_of_brokers(before, after),
        *_of_partitions(before, after),
        *_of_reassignments(before, after),
    ]


def _of_quorum(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[Event]:
    old, new = before.quorum, after.quorum
    if old is None or new is None or (old.leader_id, old.term) == (new.leader_id, new.term):
        return
    cause = Cause("the quorum", f"term {new.term}")
    if new.leader_id is None:
        text = f"the quorum has no leader; node {old.leader_id} led it in term {old.term}"
        yield Event(after.at_s, BAD, text, cause)
    else:
        yield Event(after.at_s, NEWS, _leader_text(old, new), cause)


def _leader_text(old: QuorumDescription, new: QuorumDescription) -> str:
    """Return the text of an election, with its cause as far as the voters show it: the former leader is silent."""
    text = f"node {new.leader_id} leads the quorum in term {new.term}"
    if new.leader_id == old.leader_id:
        return f"{text}, as in term {old.term}"
    if old.leader_id in new.silent:
        return f"{text}: node {old.leader_id}, which led in term {old.term}, is silent"
    return text


def _of_brokers(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[Event]:
    old = {broker.id for broker in before.cluster.brokers}
    new = {broker.id for broker in after.cluster.brokers}
    fenced_at_s = fence_times(after)
    for broker in sorted(old - new):
        text = "is fenced" if broker in after.cluster.fenced else "left the cluster"
        at_s = fenced_at_s.get(broker, after.at_s)
        yield Event(at_s, BAD, f"broker {broker} {text}", _broker(broker, LEFT))
    for broker in sorted(new - old):
        text = "is no longer fenced" if broker in before.cluster.fenced else "joined the cluster"
        yield Event(after.at_s, GOOD, f"broker {broker} {text}", _broker(broker, JOINED))


def _of_partitions(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[Event]:
    """Yield an event for each kind of change, with the partitions that have changed."""
    found: defaultdict[_Change, _Changed] = defaultdict(_Changed)
    live = {broker.id for broker in after.cluster.brokers}
    topics = {topic.name: topic.partitions for topic in before.topics}
    for topic in sorted(after.topics, key=lambda topic: topic.is_internal):  # Users' topics are named first.
        known = topics.get(topic.name, {})
        for new in topic.partitions.values():
            old = known.get(new.index)
            if old is None or (old.leader == new.leader and old.isr == new.isr):
                continue
            for change in _of_partition(old, new, live):
                found[change].add(topic.name, new.index)
    for change, changed in sorted(found.items(), key=lambda item: _EFFECTS.index(item[0].effect)):
        yield _event_of(change, changed, after.at_s)


def _of_partition(old: PartitionInfo, new: PartitionInfo, live: Collection[int]) -> Iterator[_Change]:
    """Yield the changes of a partition; `live` are the active brokers."""
    if new.leader != old.leader:
        if new.leader == NO_LEADER:
            yield _Change(OFFLINE, old.leader)
        elif old.leader == NO_LEADER:
            yield _Change(LED_AGAIN, new.leader)
        else:
            is_taken_over = old.leader not in live or old.leader not in new.isr
            yield _Change(LED_BY_ANOTHER, new.leader, old.leader if is_taken_over else None)
    if new.isr != old.isr:
        for broker in old.isr:
            if broker not in new.isr:
                yield _Change(ISR_SHRANK, broker)
        for broker in new.isr:
            if broker not in old.isr:
                yield _Change(ISR_GREW, broker)


def _event_of(change: _Change, changed: _Changed, at_s: float) -> Event:
    effect, broker, taken_from = change
    text = {
        OFFLINE: f"no leader, and broker {broker} led before: {changed.text}",
        LED_AGAIN: f"broker {broker} leads {changed.text}",
        LED_BY_ANOTHER: f"broker {broker} leads {changed.text}",
        ISR_SHRANK: f"broker {broker} left the ISR of {changed.text}",
        ISR_GREW: f"broker {broker} joined the ISR of {changed.text}",
    }[effect]
    kind = {LED_BY_ANOTHER: NEWS, LED_AGAIN: GOOD, ISR_GREW: GOOD}.get(effect, BAD)
    if taken_from is not None:
        cause = _broker(taken_from, LEFT)
    else:
        cause = _broker(broker, LEFT if effect in (OFFLINE, ISR_SHRANK) else JOINED)
    return Event(at_s, kind, text, cause, effect, changed.count)


def _of_reassignments(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[Event]:
    if before.reassigning_trouble or after.reassigning_trouble:
        return
    if begun := len(after.reassigning.keys() - before.reassigning.keys()):
        text = f"the reassignment of {partitions_text(begun)} began"
        yield Event(after.at_s, NEWS, text, Cause("reassignments", "began"))
    if ended := len(before.reassigning.keys() - after.reassigning.keys()):
        text = f"the reassignment of {partitions_text(ended)} ended"
        yield Event(after.at_s, GOOD, text, Cause("reassignments", "ended"))


def _broker(broker: int, change: str) -> Cause:
    return Cause(f"broker {broker}", change)
