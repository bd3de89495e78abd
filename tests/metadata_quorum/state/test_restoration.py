"""A quorum that was restored from copies assigns no number twice, and trusts no ISR."""

from __future__ import annotations

from ottla.metadata_quorum.state.restoration import EPOCHS_SKIPPED, PRODUCER_IDS_SKIPPED
from ottla.protocol.cluster.cluster_image import NO_LEADER
from ottla.protocol.messages.cluster_commands import DeclareRestored
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.partition_commands import ElectLastKnown, ReplicaLogEnd
from ottla.protocol.messages.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    TopicReassignment,
    WantedReplicas,
)

from .harness import ControllerWithBrokers, assigned


def test_every_partition_begins_a_leadership_above_all_there_can_have_been() -> None:
    cluster = ControllerWithBrokers(3)
    cluster.create(assigned("orders", [1, 2, 3]), assigned("alone", [2]))
    image = cluster.machine.image
    before = {name: cluster.machine.image.topics[name].partitions[0] for name in ("orders", "alone")}
    producer_ids = image.next_producer_id
    assert cluster.do(DeclareRestored(), PlainResult).error_code == 0
    many, alone = (image.topics[name].partitions[0] for name in ("orders", "alone"))
    assert (many.leader, many.isr, many.elr, many.last_known_elr) == (NO_LEADER, (), (), (1, 2, 3))
    assert (alone.leader, alone.isr) == (2, (2,))
    for name, state in (("orders", many), ("alone", alone)):
        assert state.leader_epoch >= before[name].leader_epoch + EPOCHS_SKIPPED
        assert state.partition_epoch >= before[name].partition_epoch + EPOCHS_SKIPPED
    assert image.next_producer_id == producer_ids + PRODUCER_IDS_SKIPPED
    cluster.machine.check()


def test_a_partition_on_its_way_begins_a_leadership_above_all_there_can_have_been() -> None:
    """Its replicas would otherwise take records of leaders after the copies for records of an earlier leader."""
    cluster = ControllerWithBrokers(3)
    cluster.create(assigned("orders", [1, 2]))
    move = TopicReassignment(name="orders", partitions=[WantedReplicas(partition=0, replicas=[1, 3])])
    moved = cluster.do(AlterPartitionReassignments(topics=[move]), AlterPartitionReassignmentsResult)
    assert [partition.error_code for partition in moved.partitions] == [0]
    before = cluster.machine.image.topics["orders"].partitions[0]
    assert before.is_moving
    cluster.do(DeclareRestored(), PlainResult)
    state = cluster.machine.image.topics["orders"].partitions[0]
    assert state.leader_epoch >= before.leader_epoch + EPOCHS_SKIPPED
    assert state.partition_epoch >= before.partition_epoch + EPOCHS_SKIPPED
    assert state.is_moving
    cluster.machine.check()


def test_the_replica_that_is_furthest_along_leads_whatever_the_isr_was() -> None:
    cluster = ControllerWithBrokers(3)
    cluster.create(assigned("orders", [1, 2, 3]))
    topic = cluster.topic_id("orders")
    cluster.do(DeclareRestored(), PlainResult)
    log_ends = [
        ReplicaLogEnd(
            topic_id=topic,
            partition=0,
            broker_id=broker_id,
            leader_epoch=leader_epoch,
            log_end_offset=end,
            broker_epoch=cluster.epoch(broker_id),
        )
        for broker_id, leader_epoch, end in ((1, 3, 900), (2, 4, 700), (3, 4, 710))
    ]
    cluster.do(ElectLastKnown(progress=log_ends), PlainResult)
    state = cluster.machine.image.topics_by_id[topic].partitions[0]
    assert (state.leader, state.isr) == (3, (3,))
