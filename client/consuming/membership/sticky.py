"""The assignment of Kafka's sticky assignors, with few moves. Pure: the same input gives the same assignment.

Members keep the partitions they claim, and free partitions go to the members with fewest. Then partitions move, one
path at a time, from the member with most to a member that has at least two fewer. A path may lead over other members:
if members want different topics, the second gives a partition to the third so that it can take one from the first. If
no such path is left, no other assignment is more balanced. If all members want the same topics, no assignment that
balanced has fewer moves either.

Topics that the same members want are one `_Kind`, within which partitions are interchangeable.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from ...records import TopicPartition
from .subscription import Claim


def sticky(
    wanted: Mapping[str, Collection[str]], counts: Mapping[str, int], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member, in order.

    `wanted`: member id -> topics; `counts`: topic -> number of partitions. Claims to partitions that do not exist, or
    are no longer wanted, are ignored.
    """
    wants = {member: frozenset(wanted[member]) for member in sorted(wanted)}
    owners = {
        partition: member
        for partition, member in holders(claims).items()
        if partition.topic in wants.get(member, ())
    }
    placement = _Placement(wants, counts, owners)
    placement.deal()
    placement.even_out()
    placement.give_back()
    return placement.result()


def holders(claims: Mapping[str, Claim]) -> dict[TopicPartition, str]:
    """Return the holder of each claimed partition: the member with the newest generation, among equals the first id."""
    found: dict[TopicPartition, str] = {}
    for member in sorted(claims):
        generation, partitions = claims[member]
        for partition in partitions:
            if partition not in found or generation > claims[found[partition]].generation:
                found[partition] = member
    return found


@dataclass(slots=True, eq=False)
class _Kind:
    """A kind: a set of topics that the same group members want, so that their partitions are interchangeable."""

    members: list[str]
    free: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True)
class _Held:
    """A member's partitions of one kind: its own, and others by their previous owner ("" for none)."""

    own: list[TopicPartition] = field(default_factory=list)
    others: defaultdict[str, list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))

    def __bool__(self) -> bool:
        return bool(self.own or self.others)

    def take_for(self, taker: str) -> TopicPartition:
        """Remove and return the partition best given away: one that the taker owned, another non-own one, or an own
        one.
        """
        owner = taker if taker in self.others else next(iter(self.others), None)
        if owner is None:
            return self.own.pop()
        partitions = self.others[owner]
        partition = partitions.pop()
        if not partitions:
            del self.others[owner]
        return partition


class _Placement:
    """An assignment under construction: call `deal`, `even_out` and `give_back` in this order."""

    def __init__(
        self,
        wanted: Mapping[str, frozenset[str]],
        counts: Mapping[str, int],
        owners: dict[TopicPartition, str],
    ) -> None:
        self._owners = owners
        self._load = dict.fromkeys(wanted, 0)
        self._held: dict[str, dict[_Kind, _Held]] = {member: {} for member in self._load}
        self._at: dict[TopicPartition, str] = {}
        self._kinds = _kinds(wanted, counts)
        for topic in sorted(self._kinds):
            kind = self._kinds[topic]
            for index in range(counts[topic]):
                partition = TopicPartition(topic, index)
                if partition in owners:
                    self._put(owners[partition], kind, partition)
                else:
                    kind.free.append(partition)

    def result(self) -> dict[str, list[TopicPartition]]:
        return {
            member: sorted(
                partition
                for held in kinds.values()
                for some in (held.own, *held.others.values())
                for partition in some
            )
            for member, kinds in self._held.items()
        }

    def deal(self) -> None:
        """Give free partitions to the members with fewest, beginning with the kinds that fewest members want.

        Partitions of other kinds have more choice.
        """
        kinds = {id(kind): kind for kind in self._kinds.values()}.values()
        for kind in sorted(kinds, key=lambda candidate: len(candidate.members)):
            heap = [(self._load[member], member) for member in kind.members]
            heapify(heap)
            for partition in kind.free:
                load, member = heap[0]
                self._put(member, kind, partition)
                heapreplace(heap, (load + 1, member))

    def even_out(self) -> None:
        """Move partitions along paths from the member with most, until no path leads to a member with two fewer."""
        heap = [(-load, member) for member, load in self._load.items()]
        heapify(heap)
        settled: set[str] = set()
        while heap:
            load, source = heappop(heap)
            if source in settled or -load != self._load[source]:
                continue
            path = self._path(source, settled)
            for giver, kind, taker in path:
                self._move(giver, kind, taker)
            for member in {source, path[-1][2]} if path else ():
                heappush(heap, (-self._load[member], member))

    def give_back(self) -> None:
        """Return moved partitions to their previous owners, directly or by an exchange, where balance is kept."""
        for partition, owner in sorted(self._owners.items()):
            kind = self._kinds.get(partition.topic)
            while (
                kind is not None
                and self._at.get(partition, owner) != owner
                and self._returned(partition, kind, owner)
            ):
                pass

    def _returned(self, partition: TopicPartition, kind: _Kind, owner: str) -> bool:
        keeper = self._at[partition]
        if self._load[owner] >= self._load[keeper]:
            received = (other for other, held in self._held[owner].items() if held.others)
            instead = next((other for other in received if keeper in other.members), None)
            if instead is None:
                return False
            self._move(owner, instead, keeper)
        self._move(keeper, kind, owner)
        return True

    def _path(self, source: str, settled: set[str]) -> list[tuple[str, _Kind, str]]:
        """Return the shortest path to a member with at least two fewer, as moves; none settles all members reached.

        A reached member has at most one partition fewer than the source, and can give only to other reached members.
        Later moves among members with fewer partitions therefore never lead there again.
        """
        came: dict[str, tuple[str, _Kind] | None] = {source: None}
        queue, seen = deque([source]), set[_Kind]()
        while queue:
            giver = queue.popleft()
            for kind in [kind for kind, held in self._held[giver].items() if held and kind not in seen]:
                seen.add(kind)
                least = min(kind.members, key=self._load.__getitem__)
                if self._load[least] <= self._load[source] - 2:
                    came[least] = (giver, kind)
                    return _moves(came, least)
                takers = [member for member in kind.members if member not in came and member not in settled]
                came.update(dict.fromkeys(takers, (giver, kind)))
                queue.extend(takers)
        settled.update(came)
        return []

    def _put(self, member: str, kind: _Kind, partition: TopicPartition) -> None:
        held = self._held[member].setdefault(kind, _Held())
        owner = self._owners.get(partition, "")
        (held.own if owner == member else held.others[owner]).append(partition)
        self._at[partition] = member
        self._load[member] += 1

    def _move(self, giver: str, kind: _Kind, taker: str) -> None:
        self._put(taker, kind, self._held[giver][kind].take_for(taker))
        self._load[giver] -= 1


def _moves(came: Mapping[str, tuple[str, _Kind] | None], end: str) -> list[tuple[str, _Kind, str]]:
    moves: list[tuple[str, _Kind, str]] = []
    while (step := came[end]) is not None:
        moves.append((step[0], step[1], end))
        end = step[0]
    return moves


def _kinds(wanted: Mapping[str, frozenset[str]], counts: Mapping[str, int]) -> dict[str, _Kind]:
    """Return the kind of each topic that exists and has a member that wants it."""
    alike: dict[frozenset[str], list[str]] = {}
    for member, topics in wanted.items():
        alike.setdefault(topics, []).append(member)
    groups: dict[str, list[int]] = {}
    for index, topics in enumerate(alike):
        for topic in topics:
            if topic in counts:
                groups.setdefault(topic, []).append(index)
    members = list(alike.values())
    kinds: dict[tuple[int, ...], _Kind] = {}
    for indexes in groups.values():
        if tuple(indexes) not in kinds:
            kinds[tuple(indexes)] = _Kind([member for index in indexes for member in members[index]])
    return {topic: kinds[tuple(indexes)] for topic, indexes in groups.items()}
