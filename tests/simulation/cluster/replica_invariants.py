"""Invariants between the replicas of a partition, checked at every step."""

from __future__ import annotations

from collections.abc import Collection

from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import Node, SimulatedCluster

Place = tuple[bytes, int]


class InSyncHaveWhatIsCommitted:
    """An invariant: every in-sync replica has all records up to the highest high watermark of any leader. So any
    elected member has all acknowledged and visible records.

    A restarted broker that is not registered yet does not count as a member of the quorum's ISR.
    """

    def __init__(self, cluster: SimulatedCluster, lossy: Collection[str]) -> None:
        """Set the `lossy` topics, in which a replica with fewer records may be elected."""
        self._cluster = cluster
        self._lossy = lossy
        self._committed: dict[Place, int] = {}
        self._image_offset = -1
        self._states: dict[Place, PartitionState] = {}
        self._broker_epochs: dict[int, int] = {}

    def observe(self, node: Node) -> None:
        if node.broker is not None:
            for partition in node.moved():
                if partition.leader is not None:
                    self._note_watermark(partition)
        elif (image := node.image()) is not None and image.offset > self._image_offset:
            self._note_image(image)

    def _note_watermark(self, partition: Partition) -> None:
        place, watermark = (partition.topic_id, partition.index), partition.high_watermark
        if watermark > self._committed.get(place, 0) and partition.topic not in self._lossy:
            self._committed[place] = watermark
            self._check(place)

    def _note_image(self, image: ClusterImage) -> None:
        self._image_offset = image.offset
        self._broker_epochs = {number: broker.broker_epoch for number, broker in image.brokers.items()}
        before = self._states
        self._states = {
            (topic.id, index): state
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
        }
        for place, state in self._states.items():
            if state is not before.get(place):
                self._check(place)

    def _check(self, place: Place) -> None:
        """Check against the newest image, since quorum nodes apply a decision before any broker acts on it."""
        state, committed = self._states.get(place), self._committed.get(place, 0)
        for member in () if state is None else state.isr:
            replica = self._replica(member, place)
            if replica is not None and replica.log.log_end_offset < committed:
                raise InvariantBroken(
                    "in-sync replicas have what is committed",
                    f"{replica!r} is in sync at broker-{member}, ends at {replica.log.log_end_offset}, "
                    f"and {committed} was the high watermark; {state}",
                )

    def _replica(self, member: int, place: Place) -> Partition | None:
        """Return the member's replica, if its broker incarnation is the one that the quorum knows."""
        parts = self._cluster.brokers[member].parts
        if parts is None or parts.session.broker_epoch != self._broker_epochs.get(member):
            return None
        return next(
            (replica for replica in parts.replicas if (replica.topic_id, replica.index) == place), None
        )


class FollowersCopyTheirLeader:
    """An invariant: a follower appends in a leader epoch exactly the leader's records."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._ends: dict[Partition, tuple[int, int]] = {}

    def observe(self, node: Node) -> None:
        for partition in node.moved():
            if partition.follower is None:
                continue
            epoch, end = partition.leader_epoch, partition.log.log_end_offset
            known_epoch, known_end = self._ends.get(partition, (-1, 0))
            if (epoch, end) == (known_epoch, known_end):
                continue
            self._ends[partition] = (epoch, end)
            if epoch == known_epoch and end > known_end:
                self._check(node, partition, end)

    def _check(self, node: Node, partition: Partition, end: int) -> None:
        leader = self._leader_of(partition)
        if leader is None:
            return
        ours = partition.log.leader_epochs.epoch_at(end - 1)
        theirs = leader.log.leader_epochs.epoch_at(end - 1)
        # A log has no epoch for dropped offsets, and each replica drops by its own clock.
        both_have_it = end > max(partition.log.log_start_offset, leader.log.log_start_offset)
        # Offsets that a copy leaves out hold no record either.
        both_have_it &= not partition.log.segment_list.is_empty_from(end - 1)
        if end > leader.log.log_end_offset or (both_have_it and ours != theirs):
            raise InvariantBroken(
                "followers copy their leader",
                f"{node.name} follows {partition!r} in leader epoch {partition.leader_epoch} and has offset {end - 1} "
                f"of epoch {ours}; its leader has epoch {theirs} there and ends at {leader.log.log_end_offset}",
            )

    def _leader_of(self, partition: Partition) -> Partition | None:
        """Return the leader of this epoch, while it leads."""
        for node in self._cluster.brokers.values():
            for other in node.led():
                same = (other.topic_id, other.index) == (partition.topic_id, partition.index)
                if same and other.leader_epoch == partition.leader_epoch:
                    return other
        return None
