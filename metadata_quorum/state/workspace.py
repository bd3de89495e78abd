"""The image under change by one command: what is emitted is applied at once and kept for the feed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from ...protocol.cluster.cluster_image import (
    BrokerState,
    ClusterImage,
    PartitionState,
    broker_record,
)
from ...protocol.cluster.partition_change import Change, PartitionChange
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.metadata_records import (
    BrokerRecord,
    BrokerRemovedRecord,
    ConfigRecord,
    Record,
)
from ...protocol.messages.partition_commands import ReplicaLogEnd
from .election import Electorate, LogEnd, Progress
from .reassignment import settled

Scope = frozenset[int] | None
"""Which brokers a record is for; None is all of them."""

_NO_PROGRESS: Progress = {}

ProgressByPartition = Mapping[tuple[bytes, int], Progress]
PartitionChanged = Callable[["Workspace", tuple[bytes, int], PartitionState | None, PartitionState], None]
"""Told of the new state of a partition, after it is in the image: what follows from it belongs to the same command."""


class Workspace:
    """The image, the changes of the command being applied, and what elections need to know."""

    def __init__(self, image: ClusterImage, partition_changed: PartitionChanged) -> None:
        self.image = image
        self._partition_changed = partition_changed
        self.changes: list[tuple[Scope, Change]] = []
        #: what follows from the brokers and configurations of the image; forgotten when those change
        self._usable: frozenset[int] | None = None
        self._electorates: dict[bytes, Electorate] = {}
        self._plain_electorate: Electorate | None = None

    def emit(self, record: Record, scope: Scope = None) -> None:
        """Apply a record and keep it for the feed."""
        self.image.apply(record)
        self.changes.append((scope, record))
        if isinstance(record, BrokerRecord | BrokerRemovedRecord | ConfigRecord):
            self._usable = None
            self._electorates.clear()
            self._plain_electorate = None

    def by_partition(self, progress: Iterable[ReplicaLogEnd]) -> ProgressByPartition:
        """What heartbeats told, by partition and replica. Not what a process told that was replaced since: a
        crash of the machine may have shortened its logs."""
        table: dict[tuple[bytes, int], dict[int, LogEnd]] = {}
        for told in progress:
            broker = self.image.brokers.get(told.broker_id)
            if broker is not None and told.broker_epoch in (-1, broker.broker_epoch):
                ends = table.setdefault((told.topic_id, told.partition), {})
                ends[told.broker_id] = (told.leader_epoch, told.log_end_offset)
        return table

    def set_broker(self, state: BrokerState) -> None:
        """Emit the new state of a broker, if it is new."""
        if self.image.brokers.get(state.broker_id) != state:
            self.emit(broker_record(state))

    def set_partition(
        self, topic_id: bytes, index: int, state: PartitionState, progress: Progress = _NO_PROGRESS
    ) -> PartitionState:
        """Emit the new state of a partition, if it is new; with it goes what it completes of a reassignment.
        The state that there is now.
        """
        before = self.image.topics_by_id[topic_id].partitions.get(index)
        if before is not None and before.partition_epoch == state.partition_epoch and before == state:
            return state
        if state.is_moving:
            state = settled(before, state, self.electorate(topic_id), progress)
        self.image.set_partition(topic_id, index, state)
        self.changes.append((None, PartitionChange(topic_id, index, state)))
        self._partition_changed(self, (topic_id, index), before, state)
        return state

    def partitions(self) -> Iterator[tuple[bytes, int, PartitionState]]:
        """All partitions, in the order of names and indexes. The image may change meanwhile."""
        for name in sorted(self.image.topics):
            yield from self.partitions_of(name)

    def partitions_of(self, name: str) -> Iterator[tuple[bytes, int, PartitionState]]:
        """The partitions of a topic that exists, in the order of indexes."""
        topic = self.image.topics[name]
        for index, state in sorted(topic.partitions.items()):
            yield topic.id, index, state

    @property
    def usable(self) -> frozenset[int]:
        """The brokers that may lead and join ISRs."""
        if self._usable is None:
            brokers = self.image.brokers.values()
            self._usable = frozenset(broker.broker_id for broker in brokers if broker.usable)
        return self._usable

    def electorate(self, topic_id: bytes) -> Electorate:
        """What elections in this topic go by."""
        found = self._electorates.get(topic_id)
        if found is None:
            found = self._electorates[topic_id] = self._make_electorate(
                self.image.topics_by_id[topic_id].name
            )
        return found

    def _make_electorate(self, topic: str) -> Electorate:
        """One for all topics that have no configuration of their own."""
        is_plain = (ResourceType.TOPIC, topic) not in self.image.configs
        if is_plain and self._plain_electorate is not None:
            return self._plain_electorate
        made = Electorate(
            self.usable,
            int(self.topic_config(topic, "min.insync.replicas", "1")),
            self.topic_config(topic, "unclean.leader.election.enable", "false") == "true",
        )
        if is_plain:
            self._plain_electorate = made
        return made

    def topic_config(self, topic: str, key: str, default: str) -> str:
        """A topic's dynamic value, else that of all brokers, else `default`."""
        configs = self.image.configs
        own = configs.get((ResourceType.TOPIC, topic), {})
        return own.get(key) or configs.get((ResourceType.BROKER, ""), {}).get(key) or default
