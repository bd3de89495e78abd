"""A cluster with mirrors: commands about them, and the controller's knowledge of copies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.metadata_quorum.state.controller import Applied, Controller
from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.cluster.mirror_cuts import CutsOfMirror
from ottla.protocol.cluster.mirror_table import MirrorPartition, MirrorPhase
from ottla.protocol.features import MIRROR, MIRROR_WITH_OFFSETS
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.command import Command, PlainResult
from ottla.protocol.messages.failback_commands import FailBackMirror, ReturningPartition, ReturningTopic
from ottla.protocol.messages.metadata_records import TopicRemovedRecord
from ottla.protocol.messages.mirror_commands import (
    AcceptMirrorFaults,
    AlterMirror,
    AnnounceMirrorCut,
    CreateMirror,
    DeleteMirror,
    FollowTopics,
    FollowTopicsResult,
    MirroredTopic,
    MirroredTopicResult,
    MirrorPartitionReport,
    PromoteMirrorAtCut,
    PromoteMirrorAtCutResult,
    ReachedCut,
    ReconnectMirror,
    ReportMirrorCuts,
    ReportMirrorPartitions,
)
from ottla.protocol.messages.mirror_records import SourceEpoch
from ottla.protocol.messages.topic_commands import NewTopicConfig

from .harness import ControllerWithBrokers

SOURCE = "source cluster"
THERE = b"there" + bytes(11)
"""Id of source topics that have copies here."""
LINEAGE = ((3, 0), (5, 4))
"""Leader epochs of these topics."""


class Mirrors(ControllerWithBrokers):
    """A controller with three brokers, and no mirror yet.

    Every command's records are checked against the change it made.
    """

    def __init__(self, brokers: int = 3, level: int = MIRROR_WITH_OFFSETS) -> None:
        super().__init__(brokers)
        features = [InitialFeature(feature=MIRROR, level=level)]
        self.do(FormCluster(cluster_id="here", features=features), PlainResult)

    def apply(self, command: Command[Any], session: q.Session | None = None) -> Applied:
        before = self.machine.image.frozen()
        applied = super().apply(command, session)
        noted = ImageDelta()
        for _, record in applied.records:
            noted.note(record)
        topics_went = any(isinstance(record, TopicRemovedRecord) for _, record in applied.records)
        between = ImageDelta.between(before, self.machine.image)
        assert noted.mirrors or topics_went or not between.mirrors
        assert between.partitions <= noted.partitions
        self.machine.check()
        return applied

    def create_mirror(self, name: str = "m", **changes: Any) -> PlainResult:
        values: dict[str, Any] = {
            "source_cluster_id": SOURCE,
            "bootstrap_servers": "there:9092",
            "topics": ".*",
            **changes,
        }
        return self.do(CreateMirror(name=name, **values), PlainResult)

    def alter(self, phase: int, name: str = "m") -> PlainResult:
        return self.do(AlterMirror(name=name, phase=phase), PlainResult)

    def promote(self, name: str = "m") -> None:
        assert not self.alter(MirrorPhase.PROMOTED, name).error_code

    def reconnect(self, name: str = "m", **changes: Any) -> PlainResult:
        return self.do(ReconnectMirror(name=name, **changes), PlainResult)

    def delete_mirror(self, name: str = "m") -> PlainResult:
        return self.do(DeleteMirror(name=name), PlainResult)

    def follow(self, *topics: MirroredTopic, mirror: str = "m") -> list[MirroredTopicResult]:
        result = self.follow_all(list(topics), mirror)
        assert not result.error_code, result
        return result.topics

    def follow_all(self, topics: list[MirroredTopic], mirror: str = "m") -> FollowTopicsResult:
        command = FollowTopics(mirror=mirror, topics=topics, seed=7 + self.machine.image.offset)
        return self.do(command, FollowTopicsResult)

    def report(self, name: str = "t", index: int = 0, *, broker: int | None = None, **fields: Any) -> None:
        """Report as the partition's leader, or as another broker."""
        state = self.partition(name, index)
        values: dict[str, Any] = {
            "topic_id": self.topic_id(name),
            "partition": index,
            "leader_epoch": state.leader_epoch,
            **fields,
        }
        sender = state.leader if broker is None else broker
        command = ReportMirrorPartitions(broker_id=sender, partitions=[MirrorPartitionReport(**values)])
        assert not self.do(command, PlainResult).error_code

    def accept(self, *topics: str, mirror: str = "m") -> PlainResult:
        return self.do(AcceptMirrorFaults(mirror=mirror, topics=list(topics)), PlainResult)

    def announce(self, cut: int, mirror: str = "m", copies: int | None = None, **fields: Any) -> PlainResult:
        """Announce a round, by default for all existing copies."""
        known = len(self.machine.image.copies_of(mirror)) if copies is None else copies
        command = AnnounceMirrorCut(
            mirror=mirror, cut=cut, metadata_offset=cut + 100, time_ms=cut + 1000, copies=known, **fields
        )
        return self.do(command, PlainResult)

    def reach(
        self,
        number: int,
        offset: int,
        name: str = "t",
        index: int = 0,
        *,
        broker: int | None = None,
        **fields: Any,
    ) -> None:
        """Report as the partition's leader, or as another broker, the offset at which a copy reached a round."""
        state = self.partition(name, index)
        values: dict[str, Any] = {
            "topic_id": self.topic_id(name),
            "partition": index,
            "leader_epoch": state.leader_epoch,
            "number": number,
            "offset": offset,
            **fields,
        }
        sender = state.leader if broker is None else broker
        command = ReportMirrorCuts(broker_id=sender, partitions=[ReachedCut(**values)])
        assert not self.do(command, PlainResult).error_code

    def cuts(self, mirror: str = "m") -> CutsOfMirror:
        return self.machine.image.mirror_cuts.of(mirror)

    def whole(self, mirror: str = "m") -> int | None:
        """Return the number of the newest complete round."""
        found = self.cuts(mirror).newest_whole(self.machine.image.copies_of(mirror))
        return None if found is None else found.number

    def promote_at_cut(self, name: str = "m") -> PromoteMirrorAtCutResult:
        return self.do(PromoteMirrorAtCut(name=name), PromoteMirrorAtCutResult)

    def partition(self, name: str = "t", index: int = 0) -> PartitionState:
        return self.machine.image.topics[name].partitions[index]

    def copy(self, name: str = "t", index: int = 0) -> MirrorPartition:
        """Return the state of a copy; an empty state without any report."""
        return self.machine.image.mirrors.partition(self.topic_id(name), index) or MirrorPartition()

    def is_copy(self, name: str = "t") -> bool:
        return self.machine.image.mirrors.mirror_of(self.topic_id(name)) is not None

    def restored(self) -> Controller:
        """Return another controller, restored from a snapshot of this one."""
        other = Controller()
        other.restore(list(self.machine.snapshot()))
        return other


def at_source(
    name: str = "t", partitions: int = 1, factor: int = 1, source_id: bytes = b"s" * 16, **configs: str
) -> MirroredTopic:
    """Return a topic of the source; keys have `_` in place of dots."""
    return MirroredTopic(
        name=name,
        source_topic_id=source_id,
        partitions=partitions,
        replication_factor=factor,
        configs=[NewTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def failback_of(
    cluster: ControllerWithBrokers, names: Iterable[str], common: int, mirror: str, **changes: Any
) -> FailBackMirror:
    """Return a failback command for topics in their current state."""
    copies = []
    for name in names:
        topic = cluster.machine.image.topics[name]
        parts = [
            ReturningPartition(
                partition=index,
                leader_epoch=state.leader_epoch,
                common_offset=common,
                lineage=epochs(*((epoch, start) for epoch, start in LINEAGE if start < common)),
            )
            for index, state in sorted(topic.partitions.items())
        ]
        copies.append(ReturningTopic(topic_id=topic.id, source_topic_id=THERE, partitions=parts))
    values: dict[str, Any] = {
        "source_cluster_id": SOURCE,
        "bootstrap_servers": "there:9092",
        "topics": ".*",
        "copies": copies,
        **changes,
    }
    return FailBackMirror(name=mirror, **values)


def epochs(*pairs: tuple[int, int]) -> list[SourceEpoch]:
    """Return epochs of pairs (leader epoch of the source, first offset)."""
    return [SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in pairs]
