"""Plans of moves of replicas: spread over chosen brokers, off a broker, or to exactly the named brokers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....client.admin.reassignment_plan import NoPlan, plan
from ....client.connections.metadata import PartitionInfo
from ....client.records import TopicPartition
from ...area import BadQuestion
from .placement import PresentPlacement

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """New replicas of a partition, preferred leader first; `size` is the bytes of a replica, None if unknown."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int | None

    @property
    def name(self) -> str:
        """The topic and the number of the partition."""
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def added(self) -> tuple[int, ...]:
        """The brokers that have to copy the partition."""
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def copied(self) -> int | None:
        """The bytes to copy; None if they are unknown."""
        if not self.added:
            return 0
        return None if self.size is None else self.size * len(self.added)


def spread(
    placement: PresentPlacement,
    partitions: Iterable[TopicPartition],
    brokers: Collection[int],
    count: int | None,
) -> list[ReplicaMove]:
    """Plan to spread replicas evenly over the chosen brokers, with as little copying as possible.

    `count` is the number of replicas of each partition; None keeps the present numbers. Raises BadQuestion.
    """
    infos = _existing(placement, partitions)
    wanted: dict[Key, Sequence[int]] = {
        name: resized(info, brokers, len(info.replicas) if count is None else count)
        for name, info in infos.items()
    }
    racks = {broker: rack for broker, rack in placement.live.items() if broker in brokers}
    try:
        found = plan(wanted, racks, sizes=_by_key(placement.sizes), hosts=placement.cluster.hosts)
    except NoPlan as error:
        raise BadQuestion(str(error)) from None
    after = {name: found.moves[name].after if name in found.moves else tuple(wanted[name]) for name in infos}
    return _moves(placement, infos, after)


def resized(partition: PartitionInfo, brokers: Collection[int], count: int) -> tuple[int, ...]:
    """Return `count` replicas of a partition as the start of a plan.

    Replicas outside `brokers` go first, then replicas outside the ISR. Each missing replica is a negative number, which
    no broker has, so that the plan chooses a broker for it.
    """
    present = partition.replicas
    if count >= len(present):
        return (*present, *range(-1, len(present) - count - 1, -1))
    by_worth = sorted(present, key=lambda broker: (broker not in brokers, broker not in partition.isr))
    kept = set(by_worth[:count])
    return tuple(broker for broker in present if broker in kept)


def off(
    placement: PresentPlacement, broker: int, targets: Collection[int], topics: Iterable[str] | None
) -> list[ReplicaMove]:
    """Plan to move all replicas off a broker, to those of the brokers `targets` with the fewest replicas.

    `topics` limits the moves to these topics. Raises BadQuestion.
    """
    infos = placement.partitions(topics)
    holders = {holder for info in infos.values() for holder in info.replicas}
    # Other brokers that are down keep their replicas, and get none.
    racks: dict[int, str | None] = {**dict.fromkeys(sorted(holders)), **placement.live}
    try:
        found = plan(
            {name: info.replicas for name, info in infos.items()},
            racks,
            leaving=[broker],
            sizes=_by_key(placement.sizes),
            hosts=placement.cluster.hosts,
            balance=False,
            targets=targets,
        )
    except NoPlan as error:
        raise BadQuestion(str(error)) from None
    return _moves(placement, infos, {name: found.moves[name].after for name in infos if name in found.moves})


def exact(placement: PresentPlacement, wanted: Mapping[TopicPartition, Sequence[int]]) -> list[ReplicaMove]:
    """Plan to move partitions to exactly these replicas. Raises BadQuestion for a partition that does not exist."""
    infos = _existing(placement, wanted)
    return _moves(placement, infos, {name: tuple(replicas) for name, replicas in wanted.items()})


def _existing(
    placement: PresentPlacement, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionInfo]:
    found = {}
    for name in partitions:
        if (info := placement.partition(name)) is None:
            last = len(placement.topics[name.topic].partitions) - 1
            raise BadQuestion(f"{name.topic} has the partitions 0 to {last}, not {name.partition}")
        found[name] = info
    return found


def _moves(
    placement: PresentPlacement,
    infos: Mapping[TopicPartition, PartitionInfo],
    after: Mapping[TopicPartition, tuple[int, ...]],
) -> list[ReplicaMove]:
    """Return the moves of the partitions whose replicas change."""
    return [
        ReplicaMove(name, infos[name].replicas, replicas, placement.sizes.get(name))
        for name, replicas in after.items()
        if infos[name].replicas != replicas
    ]


def _by_key(sizes: Mapping[TopicPartition, int]) -> dict[Key, int]:
    return {(name.topic, name.partition): size for name, size in sizes.items()}
