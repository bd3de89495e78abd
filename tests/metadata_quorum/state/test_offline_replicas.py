"""Replicas that a live broker reports as lost, because one of its data folders failed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.state import election
from ottla.metadata_quorum.state.election import Electorate
from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.offline_replica_commands import (
    OfflineReplica,
    RenewReplicas,
    RenewReplicasResult,
    ReportOfflineReplicas,
    ReportWritability,
)
from ottla.protocol.messages.partition_commands import (
    AlterPartition,
    AlterPartitionChange,
    AlterPartitionResult,
    ElectionPartition,
    ElectionType,
    ElectLeaders,
    ElectLeadersResult,
    IsrMember,
)

from .harness import ControllerWithBrokers, assigned, topic


def cluster(*assignments: list[int], **configs: str) -> ControllerWithBrokers:
    """Return three brokers and the topic `t`."""
    made = ControllerWithBrokers()
    new = assigned("t", *assignments)
    new.configs = topic("t", **configs).configs
    assert made.create(new)[0].error_code == 0
    return made


def state(of: ControllerWithBrokers, index: int = 0) -> PartitionState:
    return of.machine.image.topics["t"].partitions[index]


def report(of: ControllerWithBrokers, broker_id: int, *indexes: int, epoch: int | None = None) -> int:
    """Report partitions of `t`, and return the error code."""
    topic_id = of.topic_id("t")
    command = ReportOfflineReplicas(
        broker_id=broker_id,
        broker_epoch=of.epoch(broker_id) if epoch is None else epoch,
        partitions=[OfflineReplica(topic_id=topic_id, partition=index) for index in indexes],
    )
    error = of.do(command, PlainResult).error_code
    of.machine.check()
    return error


def propose(of: ControllerWithBrokers, isr: list[int]) -> int:
    now = state(of)
    change = AlterPartitionChange(
        topic_id=of.topic_id("t"),
        partition=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        new_isr=[IsrMember(broker_id=member, broker_epoch=of.epoch(member)) for member in isr],
    )
    command = AlterPartition(broker_id=now.leader, broker_epoch=of.epoch(now.leader), partitions=[change])
    return of.do(command, AlterPartitionResult).partitions[0].error_code


def test_a_lost_leader_is_replaced_and_only_there() -> None:
    made = cluster([1, 2, 3], [1, 3, 2])
    assert report(made, 1, 0) == 0
    lost, kept = state(made, 0), state(made, 1)
    assert (lost.leader, lost.isr, lost.offline_replicas) == (2, (2, 3), (1,))
    assert (kept.leader, kept.isr, kept.offline_replicas) == (1, (1, 3, 2), ())


def test_reporting_again_changes_nothing() -> None:
    made = cluster([1, 2, 3])
    report(made, 1, 0)
    offset = made.machine.image.offset
    assert report(made, 1, 0) == 0
    assert made.machine.image.offset == offset


def test_what_is_not_there_is_passed_over() -> None:
    made = cluster([1, 2])
    offset = made.machine.image.offset
    assert report(made, 3, 0, 7) == 0
    assert made.machine.image.offset == offset


def test_an_earlier_process_cannot_report() -> None:
    made = cluster([1, 2])
    assert report(made, 1, 0, epoch=made.epoch(1) - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert state(made).offline_replicas == ()


def test_an_offline_replica_joins_no_isr() -> None:
    made = cluster([1, 2, 3])
    report(made, 3, 0)
    assert propose(made, [1, 2, 3]) == ErrorCode.INELIGIBLE_REPLICA
    assert propose(made, [1]) == 0


def test_an_offline_replica_is_not_elected_not_even_uncleanly() -> None:
    made = cluster([1, 2], unclean_leader_election_enable="true")
    report(made, 1, 0)
    made.fence(2)
    assert (state(made).leader, state(made).isr) == (-1, (2,))


def test_the_preferred_leader_stays_away_while_it_is_offline() -> None:
    made = cluster([1, 2])
    report(made, 1, 0)
    elect = ElectLeaders(
        election_type=ElectionType.PREFERRED,
        partitions=[ElectionPartition(topic_id=made.topic_id("t"), partition=0)],
    )
    result = made.do(elect, ElectLeadersResult)
    assert result.partitions[0].error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert state(made).leader == 2


def test_a_sole_survivor_waits_for_its_broker_to_come_back() -> None:
    made = cluster([1])
    report(made, 1, 0)
    assert (state(made).leader, state(made).isr) == (-1, (1,))
    made.start(1)
    assert state(made).offline_replicas == ()
    report(made, 1, 0)  # Before it asks to be unfenced: the folder is still away.
    made.unfence(1)
    assert state(made).leader == -1
    made.start(1)
    made.unfence(1)
    assert (state(made).leader, state(made).isr) == (1, (1,))


def test_a_snapshot_remembers_them() -> None:
    made = cluster([1, 2, 3])
    report(made, 1, 0)
    copy = ControllerWithBrokers(0)
    copy.machine.restore(list(made.machine.snapshot()))
    assert state(copy) == state(made)


BROKERS = (1, 2, 3)


@given(
    st.permutations(BROKERS),
    st.frozensets(st.sampled_from(BROKERS), min_size=1),
    st.frozensets(st.sampled_from(BROKERS)),
    st.frozensets(st.sampled_from(BROKERS)),
    st.booleans(),
    st.sampled_from(BROKERS),
)
def test_no_election_ends_with_an_offline_leader(
    replicas: list[int],
    isr: frozenset[int],
    offline: frozenset[int],
    usable: frozenset[int],
    unclean: bool,
    leaver: int,
) -> None:
    members = election.in_replica_order(replicas, isr)
    before = PartitionState(
        tuple(replicas), members, offline_replicas=election.in_replica_order(replicas, offline)
    )
    electorate = Electorate(usable, 1, unclean)
    for after in (
        election.elect(before, electorate),
        election.elect_preferred(before, electorate),
        election.without(before, leaver, replace(electorate, usable=usable - {leaver})),
        election.after_unclean_stop(before, leaver, replace(electorate, usable=usable - {leaver})),
    ):
        assert after.leader not in offline
        assert after.offline_replicas == before.offline_replicas


def test_a_folder_that_is_gone_counts_as_an_unclean_stop() -> None:
    made = cluster([1, 2])
    first, second = b"a" * 16, b"b" * 16
    made.start(1, clean=True, folders=[first, second])
    made.unfence(1)
    assert propose(made, [1, 2] if state(made).leader == 2 else [2, 1]) == ErrorCode.NONE
    for folders, stays in (([first, second], True), ([second, first, b"c" * 16], True), ([first], False)):
        made.fence(2)
        assert state(made).isr == (1,)
        made.start(1, clean=True, folders=folders)
        assert (1 in state(made).isr) == stays
        made.unfence(2)
        made.unfence(1)


def renew(of: ControllerWithBrokers, broker_id: int, *indexes: int) -> list[int]:
    """Request the recreation of replicas of `t`, and return the partitions for which it is accepted."""
    topic_id = of.topic_id("t")
    command = RenewReplicas(
        broker_id=broker_id,
        broker_epoch=of.epoch(broker_id),
        partitions=[OfflineReplica(topic_id=topic_id, partition=index) for index in indexes],
    )
    result = of.do(command, RenewReplicasResult)
    of.machine.check()
    assert result.error_code == 0
    return [replica.partition for replica in result.renewed]


def test_a_damaged_replica_is_taken_back_with_nothing() -> None:
    made = cluster([1, 2, 3])
    report(made, 1, 0)
    before = state(made)
    assert renew(made, 1, 0) == [0]
    after = state(made)
    assert (after.offline_replicas, after.isr, after.leader) == ((), (2, 3), 2)
    assert after.leader_epoch == before.leader_epoch + 1, "a fetch from before must not count"
    assert propose(made, [1, 2, 3]) == 0


def test_what_is_given_up_leaves_the_elr() -> None:
    made = cluster([1, 2], **{"min.insync.replicas": "2"})
    report(made, 1, 0)
    assert (state(made).isr, state(made).elr) == ((2,), (1,))
    assert renew(made, 1, 0) == [0]
    assert (state(made).isr, state(made).elr) == ((2,), ())


def test_only_a_replica_that_is_offline_while_another_leads_is_renewed() -> None:
    made = cluster([1, 2], [2, 1])
    assert renew(made, 1, 0, 1, 7) == [], "they are not offline"
    report(made, 1, 0, 1)
    made.fence(2)
    assert renew(made, 1, 0, 1) == [], "they have no leader"
    made.unfence(2)
    assert renew(made, 1, 0, 1) == [0, 1]
    assert renew(made, 1, 0) == []
    made.fence(1)
    report(made, 2, 0)
    assert (state(made).isr, state(made).leader) == ((2,), -1)
    made.unfence(1)
    assert renew(made, 2, 0) == [], "it may have the only copy"


def report_writability(of: ControllerWithBrokers, broker_id: int, *indexes: int, writable: bool) -> int:
    """Report partitions of `t`, and return the error code."""
    topic_id = of.topic_id("t")
    command = ReportWritability(
        broker_id=broker_id,
        broker_epoch=of.epoch(broker_id),
        partitions=[OfflineReplica(topic_id=topic_id, partition=index) for index in indexes],
        writable=writable,
    )
    error = of.do(command, PlainResult).error_code
    of.machine.check()
    return error


def test_a_replica_on_a_full_disk_leaves_at_once_and_may_come_back() -> None:
    made = cluster([1, 2, 3], [2, 3, 1])
    assert report_writability(made, 1, 0, 1, 7, writable=False) == 0
    assert [
        (partition.leader, partition.isr, partition.offline_replicas)
        for partition in (state(made, 0), state(made, 1))
    ] == [
        (2, (2, 3), (1,)),
        (2, (2, 3), (1,)),
    ]
    assert propose(made, [1, 2, 3]) == ErrorCode.INELIGIBLE_REPLICA
    offset = made.machine.image.offset
    assert report_writability(made, 1, 0, 1, writable=False) == 0
    assert made.machine.image.offset == offset
    assert report_writability(made, 1, 0, 1, 7, writable=True) == 0
    assert [state(made, index).offline_replicas for index in (0, 1)] == [(), ()]
    assert propose(made, [1, 2, 3]) == 0


def test_the_last_replica_in_sync_stays_with_its_full_disk() -> None:
    for unclean in ("false", "true"):
        made = cluster([1, 2, 3], unclean_leader_election_enable=unclean)
        assert propose(made, [1]) == 0
        before = state(made)
        report_writability(made, 1, 0, writable=False)
        assert state(made) == before


def test_a_member_of_the_elr_takes_over_from_the_last_one_in_sync() -> None:
    made = cluster([1, 2], min_insync_replicas="2")
    assert propose(made, [1]) == 0
    report_writability(made, 1, 0, writable=False)
    now = state(made)
    assert (now.leader, now.isr, now.elr, now.offline_replicas, now.unclean) == (2, (2,), (1,), (1,), False)


def test_disks_that_fill_one_after_the_other_leave_the_last_one_its_leadership() -> None:
    made = cluster([1, 2, 3])
    for broker_id in (1, 2, 3):
        report_writability(made, broker_id, 0, writable=False)
    assert (state(made).leader, state(made).isr, state(made).offline_replicas) == (3, (3,), (1, 2))
    report_writability(made, 1, 0, writable=True)
    assert propose(made, [1, 3]) == 0
    report_writability(made, 3, 0, writable=False)
    assert (state(made).leader, state(made).isr, state(made).offline_replicas) == (1, (1,), (2, 3))


def test_room_on_a_disk_ends_a_time_without_a_leader() -> None:
    made = cluster([1, 2], min_insync_replicas="2")
    report_writability(made, 1, 0, writable=False)
    made.fence(2)
    assert (state(made).leader, state(made).isr, state(made).elr) == (-1, (2,), (1,))
    before = state(made).partition_epoch
    report_writability(made, 1, 0, writable=True)
    assert (state(made).leader, state(made).isr, state(made).unclean) == (1, (1,), False)
    assert state(made).partition_epoch == before + 1
