"""The replicas of the cluster with their sizes, and the brokers that may hold them, as plans of moves need them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....client.admin import ClusterDescription, LogDirDescription
from ....client.connections.metadata import PartitionInfo, TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import NotThere, Visit


@dataclass(frozen=True, slots=True)
class PresentPlacement:
    """The replicas of topics, and the brokers.

    `sizes` has the bytes of partitions, and `free` the free bytes in the data folders of brokers, where known.
    `reassigning` are the partitions of which a reassignment is in progress.
    """

    cluster: ClusterDescription
    topics: Mapping[str, TopicInfo]
    sizes: Mapping[TopicPartition, int]
    free: Mapping[int, int]
    reassigning: Collection[TopicPartition]

    @property
    def live(self) -> dict[int, str | None]:
        """The ids of the active brokers, with their racks."""
        return {broker.id: broker.rack for broker in self.cluster.brokers}

    def partitions(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, PartitionInfo]:
        """Return the partitions of these topics, or of all, in order."""
        names = sorted(self.topics if topics is None else topics)
        return {
            TopicPartition(name, index): self.topics[name].partitions[index]
            for name in names
            for index in sorted(self.topics[name].partitions)
        }

    def partition(self, name: TopicPartition) -> PartitionInfo | None:
        """Return a partition; None if it does not exist."""
        topic = self.topics.get(name.topic)
        return None if topic is None else topic.partitions.get(name.partition)


async def placement_of(
    visit: Visit, wanted: Collection[str] | None = None, *, with_sizes: bool = True
) -> PresentPlacement:
    """Return the present placement of these topics, or of all topics.

    Without `with_sizes` it has no sizes and no free bytes. Raises NotThere for a topic that does not exist, and
    KafkaError.
    """
    snapshot = await visit.sampler.snapshot(age_max_s=0)
    names = None if wanted is None else frozenset(wanted)
    topics = {topic.name: topic for topic in snapshot.topics if names is None or topic.name in names}
    for name in names or ():
        if name not in topics:
            raise NotThere(f"there is no topic {name!r}")
    reassigning = await visit.admin.list_partition_reassignments()
    placement = PresentPlacement(snapshot.cluster, topics, {}, {}, reassigning.keys())
    if not with_sizes:
        return placement
    sizes, free = sizes_and_space(await visit.admin.describe_log_dirs(partitions=placement.partitions()))
    return PresentPlacement(snapshot.cluster, topics, sizes, free, reassigning.keys())


def sizes_and_space(
    answers: Mapping[int, Sequence[LogDirDescription] | KafkaError],
) -> tuple[dict[TopicPartition, int], dict[int, int]]:
    """Return the bytes of the largest replica of each partition, and the free bytes of brokers, from the brokers'
    answers about their data folders."""
    sizes: dict[TopicPartition, int] = {}
    free: dict[int, int] = {}
    for broker, folders in answers.items():
        if isinstance(folders, KafkaError):
            continue
        for folder in folders:
            for partition, size in folder.replicas.items():
                sizes[partition] = max(size, sizes.get(partition, 0))
        if (space := free_bytes(folders)) is not None:
            free[broker] = space
    return sizes, free


def free_bytes(folders: Sequence[LogDirDescription]) -> int | None:
    """Return the free bytes in the data folders of a broker that take new replicas; None if it does not report them."""
    usable = [folder for folder in folders if folder.error is None]
    takers = [folder for folder in usable if not folder.is_cordoned] or usable
    if not takers or any(folder.usable_bytes < 0 for folder in takers):
        return None
    return sum(folder.usable_bytes for folder in takers)
