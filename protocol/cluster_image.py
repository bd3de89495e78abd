"""The cluster as the metadata records tell it: a pure fold, the same on quorum nodes and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .messages.metadata_records import (
    BrokerListener,
    BrokerRecord,
    BrokerRemovedRecord,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    TopicRemovedRecord,
)

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
NO_LEADER = -1

PartitionKey = tuple[bytes, int]
"""(topic id, partition index)."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A registered broker; see `BrokerRecord`."""

    broker_id: int
    broker_epoch: int
    incarnation: bytes
    listeners: tuple[BrokerListener, ...]
    rack: str | None
    fenced: bool
    shutting_down: bool
    log_dirs: tuple[bytes, ...]

    @property
    def active(self) -> bool:
        """May lead and may join an ISR."""
        return not self.fenced and not self.shutting_down


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition; see `PartitionRecord`."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    unclean: bool = False

    @classmethod
    def of(cls, record: PartitionRecord) -> PartitionState:
        """The state a record carries."""
        return cls(
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.elr),
            tuple(record.last_known_elr),
            record.unclean,
        )

    def record(self, topic_id: bytes, partition: int) -> PartitionRecord:
        """The record that carries this state."""
        return PartitionRecord(
            topic_id=topic_id,
            partition=partition,
            replicas=list(self.replicas),
            isr=list(self.isr),
            elr=list(self.elr),
            last_known_elr=list(self.last_known_elr),
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            unclean=self.unclean,
        )


@dataclass(slots=True)
class TopicState:
    """A topic and its partitions by index."""

    id: bytes
    name: str
    partitions: dict[int, PartitionState] = field(default_factory=dict)


class ClusterImage:
    """Brokers, topics and settings at one metadata offset (the number of records folded)."""

    def __init__(self) -> None:
        self.offset = 0
        self.cluster_id = ""
        self.brokers: dict[int, BrokerState] = {}
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[bytes, TopicState] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.next_producer_id = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterImage) and self.offset == other.offset and self._same_as(other)

    __hash__ = None  # type: ignore[assignment]  # images change

    def _same_as(self, other: ClusterImage) -> bool:
        return (
            self.cluster_id == other.cluster_id
            and self.brokers == other.brokers
            and self.topics == other.topics
            and self.configs == other.configs
            and self.next_producer_id == other.next_producer_id
        )

    # ------------------------------------------------------------ folding

    def apply(self, record: MetadataRecord) -> None:
        """Fold one record. The stream is consistent: a record about an unknown topic breaks an invariant."""
        match record:
            case PartitionRecord():
                topic = self.topics_by_id[record.topic_id]
                topic.partitions[record.partition] = PartitionState.of(record)
            case BrokerRecord():
                self.brokers[record.broker_id] = _broker_state(record)
            case BrokerRemovedRecord():
                self.brokers.pop(record.broker_id, None)
            case TopicRecord():
                self.topics_by_id[record.topic_id] = TopicState(record.topic_id, record.name)
                self.topics[record.name] = self.topics_by_id[record.topic_id]
            case TopicRemovedRecord():
                removed = self.topics_by_id.pop(record.topic_id)
                del self.topics[removed.name]
                self.configs.pop((TOPIC_RESOURCE, removed.name), None)
            case ConfigRecord():
                self._set_config(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case ClusterRecord():
                self.cluster_id = record.cluster_id
        self.offset += 1

    def _set_config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        if record.value is not None:
            self.configs.setdefault(key, {})[record.config_name] = record.value
            return
        settings = self.configs.get(key)
        if settings is not None:
            settings.pop(record.config_name, None)
            if not settings:
                del self.configs[key]

    def copy(self) -> ClusterImage:
        """An image that later records do not change."""
        twin = ClusterImage()
        twin.offset, twin.cluster_id, twin.next_producer_id = (
            self.offset,
            self.cluster_id,
            self.next_producer_id,
        )
        twin.brokers = dict(self.brokers)
        twin.topics = {n: TopicState(t.id, n, dict(t.partitions)) for n, t in self.topics.items()}
        twin.topics_by_id = {t.id: t for t in twin.topics.values()}
        twin.configs = {key: dict(settings) for key, settings in self.configs.items()}
        return twin

    def records(self) -> Iterator[MetadataRecord]:
        """Records from which an empty image becomes this one as it is now (the caller sets the offset)."""
        return self.copy()._records()

    def _records(self) -> Iterator[MetadataRecord]:
        if self.cluster_id:
            yield ClusterRecord(cluster_id=self.cluster_id)
        for broker in self.brokers.values():
            yield broker_record(broker)
        for topic in self.topics.values():
            yield TopicRecord(topic_id=topic.id, name=topic.name)
            for index, partition in topic.partitions.items():
                yield partition.record(topic.id, index)
        for (kind, name), settings in self.configs.items():
            for key, value in settings.items():
                yield ConfigRecord(resource_type=kind, resource_name=name, config_name=key, value=value)
        if self.next_producer_id:
            yield ProducerIdsRecord(next_producer_id=self.next_producer_id)

    # ------------------------------------------------------------ look-ups

    def partition(self, topic_id: bytes, index: int) -> PartitionState | None:
        """One partition, None if there is no such."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partitions(self) -> Iterator[tuple[TopicState, int, PartitionState]]:
        """Every partition of every topic."""
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def check(self) -> None:
        """Crash on a broken invariant."""
        for topic, index, p in self.partitions():
            name = f"{topic.name}-{index}"
            assert p.replicas, f"{name} has no replicas"
            assert len(set(p.replicas)) == len(p.replicas), f"{name} has a replica twice: {p.replicas}"
            assert set(p.isr) <= set(p.replicas), f"{name}: ISR {p.isr} is not within {p.replicas}"
            assert set(p.elr) <= set(p.replicas), f"{name}: ELR {p.elr} is not within {p.replicas}"
            assert not set(p.isr) & set(p.elr), f"{name}: {p.isr} and ELR {p.elr} overlap"
            assert p.leader == NO_LEADER or p.leader in p.isr, f"{name}: leader {p.leader} not in ISR {p.isr}"
            if p.leader != NO_LEADER:
                assert not self.brokers[p.leader].fenced, f"{name}: leader {p.leader} is fenced"
        assert self.topics_by_id.keys() == {t.id for t in self.topics.values()}, "topic indexes differ"


def _broker_state(record: BrokerRecord) -> BrokerState:
    return BrokerState(
        record.broker_id,
        record.broker_epoch,
        record.incarnation,
        tuple(record.listeners),
        record.rack,
        record.fenced,
        record.shutting_down,
        tuple(record.log_dirs),
    )


def broker_record(state: BrokerState) -> BrokerRecord:
    """The record that carries a broker's state."""
    return BrokerRecord(
        broker_id=state.broker_id,
        broker_epoch=state.broker_epoch,
        incarnation=state.incarnation,
        listeners=list(state.listeners),
        rack=state.rack,
        fenced=state.fenced,
        shutting_down=state.shutting_down,
        log_dirs=list(state.log_dirs),
    )


@dataclass(slots=True)
class ImageDelta:
    """What changed between two images: enough to know what to look at again."""

    brokers: set[int] = field(default_factory=set)
    topics: set[bytes] = field(default_factory=set)
    removed_topics: dict[bytes, str] = field(default_factory=dict)
    partitions: set[PartitionKey] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)

    def note(self, record: MetadataRecord, image: ClusterImage | None = None) -> None:
        """Take in a record that is about to be folded; `image` (before it) tells a removed topic's name."""
        match record:
            case PartitionRecord():
                self.partitions.add((record.topic_id, record.partition))
            case BrokerRecord() | BrokerRemovedRecord():
                self.brokers.add(record.broker_id)
            case TopicRecord():
                self.topics.add(record.topic_id)
            case TopicRemovedRecord():
                known = None if image is None else image.topics_by_id.get(record.topic_id)
                self.removed_topics[record.topic_id] = known.name if known else ""
            case ConfigRecord():
                self.configs.add((record.resource_type, record.resource_name))
            case _:
                return

    @classmethod
    def between(cls, before: ClusterImage, after: ClusterImage) -> ImageDelta:
        """What differs, for a snapshot that replaces an image."""
        delta = cls()
        delta.brokers = {
            broker_id
            for broker_id in before.brokers.keys() | after.brokers.keys()
            if before.brokers.get(broker_id) != after.brokers.get(broker_id)
        }
        delta.topics = set(after.topics_by_id.keys() - before.topics_by_id.keys())
        gone = before.topics_by_id.keys() - after.topics_by_id.keys()
        delta.removed_topics = {topic_id: before.topics_by_id[topic_id].name for topic_id in gone}
        for topic, index, partition in after.partitions():
            if before.partition(topic.id, index) != partition:
                delta.partitions.add((topic.id, index))
        delta.configs = {
            key
            for key in before.configs.keys() | after.configs.keys()
            if before.configs.get(key) != after.configs.get(key)
        }
        return delta
