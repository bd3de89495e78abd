"""The cluster image while one command changes it: emitted records are applied at once and kept for the metadata
feed."""

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
from ...protocol.settings.config_fields import default_text
from .election import NO_PROGRESS, Electorate, LogEnd, Progress
from .reassignment import settled

Scope = frozenset[int] | None
"""Brokers that a record is for; None stands for all."""


ProgressByPartition = Mapping[tuple[bytes, int], Progress]
PartitionChanged = Callable[["Workspace", tuple[bytes, int], PartitionState | None, PartitionState], None]
"""Callback for the new state of a partition, after it is in the image. Changes that it makes belong to the same
command."""


class Workspace:
    """The cluster image under change by one command, the changes so far, and the brokers and settings that elections
    need."""

    def __init__(self, image: ClusterImage, partition_changed: PartitionChanged) -> None:
        self.image = image
        self._partition_changed = partition_changed
        self.changes: list[tuple[Scope, Change]] = []
        #: derived from the brokers and configurations of the image; reset when those change
        self._usable: frozenset[int] | None = None
        self._electorates: dict[bytes, Electorate] = {}
        self._plain_electorate: Electorate | None = None

    def emit(self, record: Record, scope: Scope = None) -> None:
        """Apply a metadata record to the image, and keep it for the feed. `scope` holds the brokers that receive it;
        None stands for all."""
        self.image.apply(record)
        self.changes.append((scope, record))
        if isinstance(record, BrokerRecord | BrokerRemovedRecord | ConfigRecord):
            self._usable = None
            self._electorates.clear()
            self._plain_electorate = None

    def by_partition(self, progress: Iterable[ReplicaLogEnd]) -> ProgressByPartition:
        """Return replicas' log ends that brokers have reported in heartbeats, by partition and broker.

        Reports of replaced processes are left out, because a crash of the machine may have shortened their logs.
        """
        table: dict[tuple[bytes, int], dict[int, LogEnd]] = {}
        for log_end in progress:
            broker = self.image.brokers.get(log_end.broker_id)
            if broker is not None and log_end.broker_epoch in (-1, broker.broker_epoch):
                ends = table.setdefault((log_end.topic_id, log_end.partition), {})
                ends[log_end.broker_id] = (log_end.leader_epoch, log_end.log_end_offset)
        return table

    def set_broker(self, state: BrokerState) -> None:
        """Emit a broker's new state, if it differs from the state in the image."""
        if self.image.brokers.get(state.broker_id) != state:
            self.emit(broker_record(state))

    def set_partition(
        self, topic_id: bytes, index: int, state: PartitionState, progress: Progress = NO_PROGRESS
    ) -> PartitionState:
        """Emit a partition's new state, if it differs from the state in the image, and complete its reassignment if
        possible. Return the resulting state."""
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
        """Yield all partitions, in the order of names and indexes. The image may change meanwhile."""
        for name in sorted(self.image.topics):
            yield from self.partitions_of(name)

    def partitions_of(self, name: str) -> Iterator[tuple[bytes, int, PartitionState]]:
        """Yield the partitions of an existing topic, in the order of indexes."""
        topic = self.image.topics[name]
        for index, state in sorted(topic.partitions.items()):
            yield topic.id, index, state

    @property
    def usable(self) -> frozenset[int]:
        """Ids of the brokers that may lead partitions and join ISRs."""
        if self._usable is None:
            brokers = self.image.brokers.values()
            self._usable = frozenset(broker.broker_id for broker in brokers if broker.usable)
        return self._usable

    def electorate(self, topic_id: bytes) -> Electorate:
        """Return the inputs of elections in this topic: the usable brokers and the topic's settings."""
        found = self._electorates.get(topic_id)
        if found is None:
            found = self._electorates[topic_id] = self._make_electorate(
                self.image.topics_by_id[topic_id].name
            )
        return found

    def _make_electorate(self, topic: str) -> Electorate:
        """Create an electorate. Topics without their own configuration share one."""
        is_plain = (ResourceType.TOPIC, topic) not in self.image.configs
        if is_plain and self._plain_electorate is not None:
            return self._plain_electorate
        made = Electorate(
            self.usable,
            int(self.topic_config(topic, "min.insync.replicas")),
            self.topic_config(topic, "unclean.leader.election.enable") == "true",
        )
        if is_plain:
            self._plain_electorate = made
        return made

    def topic_config(self, topic: str, key: str) -> str:
        """Return a topic's dynamic setting, else the setting for all brokers, else the default."""
        configs = self.image.configs
        own = configs.get((ResourceType.TOPIC, topic), {})
        return own.get(key) or configs.get((ResourceType.BROKER, ""), {}).get(key) or default_text(key)
