"""The quorum's leader tracks the partitions that wait for their last known members, as commands change them.

The result is compared with a scan of all partitions after each command.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.metadata_quorum.feed import MetadataFeed, Scope
from ottla.metadata_quorum.last_known import LastKnownWatch
from ottla.metadata_quorum.leader_duties import LeaderCommand, LeaderDuties
from ottla.metadata_quorum.liveness import ProgressTable, ReplicaProgress, SessionTracker
from ottla.metadata_quorum.publication import Publication
from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState
from ottla.protocol.cluster.partition_change import Change
from ottla.protocol.messages.broker_commands import UnregisterBroker
from ottla.protocol.messages.cluster_commands import DeclareRestored
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
)
from ottla.protocol.messages.offline_replica_commands import OfflineReplica, ReportOfflineReplicas
from ottla.protocol.messages.partition_commands import (
    AlterPartition,
    AlterPartitionChange,
    ElectionType,
    ElectLastKnown,
    ElectLeaders,
    IsrMember,
)
from ottla.protocol.messages.reassignment_commands import (
    AlterPartitionReassignments,
    TopicReassignment,
    WantedReplicas,
)
from ottla.protocol.messages.topic_commands import CreatePartitions, DeleteTopics, MorePartitions

from .state.harness import ControllerWithBrokers, topic

BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b", "c")
STEPS = (
    *("crash", "crash", "crash", "unfence", "unfence", "unfence", "unfence", *["tell"] * 8),
    *("fence", "isr", "isr", "elect", "move", "create", "grow", "delete", "min_isr", "offline"),
    *("outage", "outage", "back", "back", "snapshot", "restored", "lead", "unregister"),
)

Key = tuple[bytes, int]
Told = set[tuple[bytes, int, int]]
"""Topic id, partition and broker."""


class LooksAtAll:
    """The waiting partitions, found by a scan of every partition."""

    def __init__(self, image: ClusterImage) -> None:
        self._since: dict[Key, tuple[int, int]] = {}
        self.look(image)

    def look(self, image: ClusterImage) -> None:
        waiting = {key: state for key, state in _partitions(image) if _waits(state)}
        self._since = {
            key: self._since[key]
            if key in self._since and self._since[key][0] == state.partition_epoch
            else (state.partition_epoch, image.offset)
            for key, state in waiting.items()
        }

    def ready(self, image: ClusterImage, duties: LeaderDuties) -> Told:
        found: Told = set()
        for (topic_id, index), (_, since) in self._since.items():
            state = image.topics_by_id[topic_id].partitions[index]
            known = {
                entry.broker_id
                for entry in duties.progress.of([(topic_id, index)])
                if (broker := image.brokers.get(entry.broker_id)) is not None
                and broker.usable
                and broker.broker_epoch == entry.broker_epoch
                and duties.progress.has_reported(entry.broker_id, entry.broker_epoch, since)
            }
            if known.difference(state.offline_replicas).issuperset(state.last_known_elr):
                found |= {(topic_id, index, broker_id) for broker_id in known}
        return found


def _partitions(image: ClusterImage) -> Iterator[tuple[Key, PartitionState]]:
    for topic_id, topic_state in image.topics_by_id.items():
        for index, state in topic_state.partitions.items():
            yield (topic_id, index), state


def _waits(state: PartitionState) -> bool:
    return state.leader < 0 and not state.isr and not state.elr and len(state.last_known_elr) > 1


class Histories:
    """A quorum node that applies random commands, and leads most of the time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = ControllerWithBrokers(len(BROKERS))
        self.proposed: list[LeaderCommand] = []
        self.duties = LeaderDuties(
            lambda: self.image,
            SessionTracker(timeout_s=3.0),
            self._propose,
            cluster_id="c",
            imbalance_check_interval_s=float("inf"),
        )
        self._publication = self._follow_machine()
        self.duties.lead(0.0)
        self.looks = LooksAtAll(self.image)
        self.elections = 0

    @property
    def image(self) -> ClusterImage:
        return self.cluster.machine.image

    def _follow_machine(self) -> Publication:
        anything = cast(Any, SimpleNamespace)
        self.cluster.machine.on_changes = self._changed
        return Publication(
            self.cluster.machine,
            anything(applied_index=1),
            MetadataFeed(self.image.offset),
            anything(note=lambda *_: None),
            self.duties,
            anything(changed=list),
            anything(push=lambda _: None),
            lambda: 0.0,
        )

    def _propose(self, command: LeaderCommand, done: Any) -> None:
        self.proposed.append(command)
        done()

    def _changed(self, changes: Sequence[tuple[Scope, Change]], history: int) -> None:
        self._publication.note(changes, history)
        self.looks.look(self.image)
        if self.chance.random() < 0.7:  # A turn may apply several commands.
            self._publication.publish()

    def step(self) -> None:
        getattr(self, f"step_{self.chance.choice(STEPS)}")(self.chance.choice(BROKERS))
        self.proposed.clear()
        self.duties.tick(0.0)
        elections = [command for command in self.proposed if isinstance(command, ElectLastKnown)]
        reported = {
            (end.topic_id, end.partition, end.broker_id) for command in elections for end in command.progress
        }
        assert reported == (self.looks.ready(self.image, self.duties) if self.duties.active else set())
        for command in elections:
            self.elections += 1
            if self.chance.random() < 0.5:
                self.cluster.apply(command)

    # Brokers

    def step_crash(self, broker_id: int) -> None:
        self.cluster.start(broker_id, clean=broker_id in self.image.brokers and self.chance.random() < 0.1)

    def step_unfence(self, broker_id: int) -> None:
        if broker_id in self.image.brokers:
            self.cluster.unfence(broker_id)

    def step_fence(self, broker_id: int) -> None:
        if broker_id in self.image.brokers:
            self.cluster.fence(broker_id)

    def step_outage(self, _broker_id: int) -> None:
        """Cut the power, and bring most brokers back."""
        for broker_id in self.chance.sample(BROKERS, len(BROKERS)):
            self.step_crash(broker_id)
        self.step_back(0)

    def step_back(self, _broker_id: int) -> None:
        for broker_id in BROKERS:
            if self.chance.random() < 0.9:
                self.step_unfence(broker_id)

    def step_unregister(self, broker_id: int) -> None:
        if self.chance.random() < 0.2:
            self.cluster.apply(UnregisterBroker(broker_id=broker_id))

    def step_tell(self, _broker_id: int) -> None:
        """Let most brokers report all their logs, current or slightly outdated."""
        for broker_id, broker in self.image.brokers.items():
            if self.chance.random() < 0.2:
                continue
            for (topic_id, index), state in _partitions(self.image):
                if broker_id in state.replicas:
                    self.duties.progress.note(
                        ReplicaProgress(topic_id, index, broker_id, 1, 7, broker.broker_epoch)
                    )
            offset = self.image.offset - self.chance.choice([0, 0, 0, 1, 5])
            self.duties.progress.reported(broker_id, broker.broker_epoch, offset)

    def step_offline(self, broker_id: int) -> None:
        lost = [
            OfflineReplica(topic_id=topic_id, partition=index)
            for (topic_id, index), state in _partitions(self.image)
            if broker_id in state.replicas and self.chance.random() < 0.2
        ]
        if broker_id in self.image.brokers:
            epoch = self.cluster.epoch(broker_id)
            self.cluster.apply(
                ReportOfflineReplicas(broker_id=broker_id, broker_epoch=epoch, partitions=lost)
            )

    # Topics and partitions

    def step_create(self, broker_id: int) -> None:
        name = NAMES[broker_id % len(NAMES)]
        self.cluster.create(topic(name, 2, self.chance.choice([2, 3, 3]), min_insync_replicas="3"))

    def step_delete(self, _broker_id: int) -> None:
        if self.chance.random() < 0.5:
            self.cluster.apply(DeleteTopics(names=[self.chance.choice(NAMES)]))

    def step_grow(self, broker_id: int) -> None:
        wanted = MorePartitions(name=self.chance.choice(NAMES), count=3)
        self.cluster.apply(CreatePartitions(topics=[wanted], seed=broker_id))

    def step_min_isr(self, broker_id: int) -> None:
        change = ConfigChange(
            name="min.insync.replicas", operation=ConfigOperation.SET, value=str(min(broker_id, 3))
        )
        resource = ConfigResource(resource_type=2, resource_name=self.chance.choice(NAMES), changes=[change])
        self.cluster.apply(AlterConfigs(resources=[resource]))

    def step_isr(self, broker_id: int) -> None:
        if broker_id not in self.image.brokers:
            return
        changes = [
            AlterPartitionChange(
                topic_id=topic_id,
                partition=index,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                new_isr=[
                    IsrMember(broker_id=replica)
                    for replica in state.replicas
                    if replica == broker_id or self.chance.random() < 0.6
                ],
            )
            for (topic_id, index), state in _partitions(self.image)
            if state.leader == broker_id
        ]
        epoch = self.cluster.epoch(broker_id)
        self.cluster.apply(AlterPartition(broker_id=broker_id, broker_epoch=epoch, partitions=changes))

    def step_elect(self, broker_id: int) -> None:
        kind = ElectionType.UNCLEAN if broker_id == 1 else ElectionType.PREFERRED
        self.cluster.apply(ElectLeaders(election_type=kind))

    def step_move(self, broker_id: int) -> None:
        """Start a new reassignment, or end the current one."""
        name = self.chance.choice(NAMES)
        replicas = None if broker_id == 1 else self.chance.sample(BROKERS, self.chance.choice([2, 3]))
        wanted = [WantedReplicas(partition=index, replicas=replicas) for index in (0, 1)]
        self.cluster.apply(
            AlterPartitionReassignments(topics=[TopicReassignment(name=name, partitions=wanted)])
        )

    # This node

    def step_restored(self, _broker_id: int) -> None:
        """Restore the quorum from copies, so that all partitions wait."""
        if self.chance.random() < 0.1:
            self.cluster.apply(DeclareRestored())

    def step_lead(self, _broker_id: int) -> None:
        """Let another node lead, or this one again."""
        if self.duties.active:
            self.duties.follow()
        if self.chance.random() < 0.7:
            self._publication.publish()
            self.duties.lead(0.0)
            self.looks = LooksAtAll(self.image)

    def step_snapshot(self, _broker_id: int) -> None:
        """Send a snapshot instead of the commands, as to a follower."""
        if not self.duties.active:
            restored = Controller()
            restored.restore(list(self.cluster.machine.snapshot()))
            self.cluster.machine.adopt(restored)
            self._publication.publish()


@pytest.mark.parametrize("seed", range(10))
def test_the_leader_elects_as_if_it_looked_at_all_partitions(seed: int) -> None:
    histories = Histories(seed)
    for _ in range(400):
        histories.step()
    assert histories.elections > 0


class CountedQuestions(ProgressTable):
    """A table that counts the queried partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def of(self, partitions: Iterable[Key]) -> list[ReplicaProgress]:
        keys = list(partitions)
        self.asked += len(keys)
        return super().of(keys)


def test_while_brokers_tell_the_leader_looks_at_no_log_of_theirs() -> None:
    """The leader has a hundred thousand logs when all brokers come back at once, and would check them many times a
    second.
    """
    cluster = ControllerWithBrokers(3)
    cluster.create(topic("a", 10, 3, min_insync_replicas="3"))
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    for broker_id in (1, 2, 3):
        cluster.unfence(broker_id)
    image, progress = cluster.machine.image, CountedQuestions()
    watch = LastKnownWatch(image)
    for (topic_id, index), state in _partitions(image):
        assert _waits(state)
        for broker_id in state.replicas:
            progress.note(ReplicaProgress(topic_id, index, broker_id, 1, 7, cluster.epoch(broker_id)))
    for broker_id in (1, 2):
        progress.reported(broker_id, cluster.epoch(broker_id), image.offset)
    assert list(watch.ready(image, progress)) == []
    assert progress.asked == 0
    progress.reported(3, cluster.epoch(3), image.offset)
    assert len(list(watch.ready(image, progress))) == 10
