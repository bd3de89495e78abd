"""Partitions whose ISR and ELR are lost to unclean stops: the awaited replicas, and the elected leader."""

from __future__ import annotations

import pytest

from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.broker_commands import FenceBroker
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
)
from ottla.protocol.messages.offline_replica_commands import OfflineReplica, ReportOfflineReplicas
from ottla.protocol.messages.partition_commands import (
    AlterPartition,
    AlterPartitionChange,
    AlterPartitionResult,
    ElectionPartition,
    ElectionType,
    ElectLastKnown,
    ElectLeaders,
    ElectLeadersResult,
    IsrMember,
    ReplicaLogEnd,
)
from ottla.protocol.messages.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    TopicReassignment,
    WantedReplicas,
)

from .harness import ControllerWithBrokers, assigned, topic

COMPLETE, SHORT = (0, 100), (0, 60)
"""Log ends as (leader epoch, offset)."""


def cluster(*, min_isr: int = 2, isr: tuple[int, ...] = (3, 1), brokers: int = 3) -> ControllerWithBrokers:
    """Make a topic `t` on brokers 3 (the leader), 1 and 2, of which these are in sync."""
    made = ControllerWithBrokers(brokers)
    new = assigned("t", [3, 1, 2])
    new.configs = topic("t", min_insync_replicas=str(min_isr)).configs
    assert made.create(new)[0].error_code == 0
    change_isr(made, isr)
    return made


def change_isr(made: ControllerWithBrokers, isr: tuple[int, ...]) -> None:
    now = state(made)
    change = AlterPartitionChange(
        topic_id=made.topic_id("t"),
        partition=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        new_isr=[IsrMember(broker_id=member) for member in isr],
    )
    command = AlterPartition(broker_id=now.leader, broker_epoch=made.epoch(now.leader), partitions=[change])
    assert made.do(command, AlterPartitionResult).partitions[0].error_code == 0
    made.machine.check()


def state(made: ControllerWithBrokers) -> PartitionState:
    return made.machine.image.topics["t"].partitions[0]


def groups(made: ControllerWithBrokers) -> tuple[set[int], set[int], set[int], int]:
    """Return ISR, ELR, last known ELR and leader."""
    made.machine.check()
    now = state(made)
    return {*now.isr}, {*now.elr}, {*now.last_known_elr}, now.leader


def told(made: ControllerWithBrokers, **ends: tuple[int, int]) -> list[ReplicaLogEnd]:
    """Return the log ends that the brokers' current processes reported, e.g. `b1=COMPLETE`."""
    return [
        ReplicaLogEnd(
            topic_id=made.topic_id("t"),
            partition=0,
            broker_id=int(name[1:]),
            leader_epoch=end[0],
            log_end_offset=end[1],
            broker_epoch=made.epoch(int(name[1:])),
        )
        for name, end in ends.items()
    ]


def elect_last_known(made: ControllerWithBrokers, progress: list[ReplicaLogEnd]) -> int:
    """Elect among the last known members, and return the leader."""
    assert made.do(ElectLastKnown(progress=progress), PlainResult).error_code == 0
    made.machine.check()
    return state(made).leader


def elect_uncleanly(made: ControllerWithBrokers, progress: list[ReplicaLogEnd]) -> int:
    """Return the error code of an election on an operator's request."""
    command = ElectLeaders(
        election_type=ElectionType.UNCLEAN,
        partitions=[ElectionPartition(topic_id=made.topic_id("t"), partition=0)],
        progress=progress,
    )
    return made.do(command, ElectLeadersResult).partitions[0].error_code


def lost_both() -> ControllerWithBrokers:
    """Make a state in which the leader lost power and its unflushed records, and the other member was killed and lost
    nothing.
    """
    made = cluster()
    made.fence(1)
    assert groups(made) == ({3}, {1}, set(), 3)
    made.fence(3)
    assert groups(made) == ({3}, {1}, set(), -1)
    return made


def test_a_member_that_was_only_killed_is_not_cut_off_by_one_that_lost_power() -> None:
    made = lost_both()
    made.start(1)
    assert groups(made) == ({3}, set(), {1}, -1)
    made.unfence(1)
    assert state(made).leader == -1, "broker 3 may come back with everything"
    made.start(3)
    assert groups(made) == (set(), set(), {1, 3}, -1)
    made.unfence(3)
    assert state(made).leader == -1, "the losses are not known yet"
    assert elect_last_known(made, told(made, b1=COMPLETE)) == -1
    assert elect_last_known(made, told(made, b1=COMPLETE, b3=SHORT)) == 1
    assert state(made).unclean
    assert groups(made) == ({1}, set(), {3}, 1)
    change_isr(made, (1, 3))
    assert groups(made) == ({1, 3}, set(), set(), 1)


def test_it_does_not_matter_who_is_back_first() -> None:
    made = lost_both()
    made.start(3)
    assert groups(made) == (set(), {1}, {3}, -1), "broker 1 may have stopped cleanly"
    made.unfence(3)
    made.start(1)
    made.unfence(1)
    assert groups(made) == (set(), set(), {1, 3}, -1)
    assert elect_last_known(made, told(made, b3=SHORT, b1=COMPLETE)) == 1


def test_a_clean_member_needs_no_comparison() -> None:
    made = lost_both()
    made.start(3)
    made.unfence(3)
    made.start(1, clean=True)
    made.unfence(1)
    assert groups(made) == ({1}, set(), {3}, 1)
    assert not state(made).unclean


def test_while_one_of_them_is_missing_only_an_operator_elects() -> None:
    made = lost_both()
    made.start(1)
    made.start(3)
    made.unfence(3)
    for _ in range(2):
        assert elect_last_known(made, told(made, b3=SHORT)) == -1
        assert elect_last_known(made, told(made, b1=COMPLETE, b3=SHORT)) == -1, "broker 1 is fenced"
        made.start(3)
        made.unfence(3)
    assert elect_uncleanly(made, told(made, b3=SHORT)) == ErrorCode.NONE
    assert groups(made) == ({3}, set(), set(), 3)
    assert state(made).unclean
    made.unfence(1)
    assert groups(made) == ({3}, set(), set(), 3), "its records are given up"


def test_a_topic_that_allows_unclean_elections_does_not_wait() -> None:
    made = lost_both()
    made.fence(2)
    made.start(1)
    made.start(3)
    change = ConfigChange(name="unclean.leader.election.enable", operation=ConfigOperation.SET, value="true")
    resource = ConfigResource(resource_type=2, resource_name="t", changes=[change])
    made.do(AlterConfigs(resources=[resource]), AlterConfigsResult)
    assert state(made).leader == -1
    made.unfence(3)
    assert groups(made) == ({3}, set(), set(), 3)


def test_what_an_earlier_process_told_does_not_count() -> None:
    made = lost_both()
    made.start(1)
    made.start(3)
    made.unfence(1)
    before = told(made, b1=COMPLETE, b3=COMPLETE)
    made.start(3)
    made.unfence(3)
    assert elect_last_known(made, before) == -1
    assert elect_last_known(made, told(made, b1=SHORT, b3=COMPLETE)) == 3


@pytest.mark.parametrize(
    ("first", "third", "leader"),
    [
        ((1, 50), (0, 90), 1),
        ((0, 90), (0, 91), 3),
        ((0, 90), (0, 90), 3),
        ((-1, 0), (-1, 0), 3),
    ],
)
def test_the_latest_leader_epoch_comes_before_the_offset_and_then_the_order_of_replicas(
    first: tuple[int, int], third: tuple[int, int], leader: int
) -> None:
    made = lost_both()
    for broker_id in (1, 3):
        made.start(broker_id)
        made.unfence(broker_id)
    assert elect_last_known(made, told(made, b1=first, b3=third)) == leader


def test_a_replica_that_is_further_along_than_all_of_them_leads_instead() -> None:
    """The replica left the ISR while others led, which turn out to have been dead by then. It is not awaited."""
    made = lost_both()
    for broker_id in (1, 3):
        made.start(broker_id)
        made.unfence(broker_id)
    assert elect_last_known(made, told(made, b1=SHORT, b2=COMPLETE)) == -1
    assert elect_last_known(made, told(made, b1=SHORT, b2=COMPLETE, b3=SHORT)) == 2
    assert groups(made) == ({2}, set(), {1, 3}, 2)


def test_a_replica_with_records_of_a_later_leader_does_not_lead_instead() -> None:
    """The replica may have been that leader, deposed without knowing, while the others went on without a record of the
    new leader.
    """
    made = lost_both()
    for broker_id in (1, 3):
        made.start(broker_id)
        made.unfence(broker_id)
    assert elect_last_known(made, told(made, b1=SHORT, b2=(4, 61), b3=COMPLETE)) == 3
    assert groups(made) == ({3}, set(), {1}, 3)


def test_a_single_survivor_is_elected_at_once() -> None:
    made = cluster(min_isr=1, isr=(3,))
    made.start(3)
    made.unfence(3)
    assert groups(made) == ({3}, set(), set(), 3)


def test_the_leader_of_a_comparison_may_crash_again() -> None:
    """The other member has the same records as before, and must be compared again."""
    made = lost_both()
    for broker_id in (1, 3):
        made.start(broker_id)
        made.unfence(broker_id)
    assert elect_last_known(made, told(made, b1=COMPLETE, b3=COMPLETE)) == 3
    made.start(3)
    made.unfence(3)
    assert groups(made) == (set(), set(), {1, 3}, -1)
    assert elect_last_known(made, told(made, b1=COMPLETE, b3=SHORT)) == 1


def test_an_offline_replica_is_missing_too() -> None:
    made = lost_both()
    for broker_id in (1, 3):
        made.start(broker_id)
    lost = [OfflineReplica(topic_id=made.topic_id("t"), partition=0)]
    made.do(ReportOfflineReplicas(broker_id=1, broker_epoch=made.epoch(1), partitions=lost), PlainResult)
    for broker_id in (1, 3):
        made.unfence(broker_id)
    assert elect_last_known(made, told(made, b1=COMPLETE, b3=SHORT)) == -1
    made.start(1)
    made.unfence(1)
    assert elect_last_known(made, told(made, b1=COMPLETE, b3=SHORT)) == 1


def test_whoever_left_while_writes_went_on_is_not_among_them() -> None:
    made = cluster(isr=(3, 1, 2))
    made.start(2)
    assert groups(made) == ({3, 1}, set(), set(), 3)
    made.unfence(2)
    made.fence(1)
    made.fence(3)
    for broker_id in (1, 3):
        made.start(broker_id)
    assert groups(made) == (set(), set(), {1, 3}, -1)


def test_a_lower_minimum_ends_them_when_somebody_leads() -> None:
    made = lost_both()
    made.start(1)
    change = ConfigChange(name="min.insync.replicas", operation=ConfigOperation.SET, value="1")
    resource = ConfigResource(resource_type=2, resource_name="t", changes=[change])
    made.do(AlterConfigs(resources=[resource]), AlterConfigsResult)
    assert groups(made) == ({3}, set(), {1}, -1)
    made.start(3, clean=True)
    made.unfence(3)
    assert groups(made) == ({3}, set(), set(), 3)


def test_a_move_is_not_called_off_while_an_added_replica_may_have_more_than_the_others() -> None:
    made = cluster(brokers=5)

    def move(target: list[int] | None) -> int:
        wanted = TopicReassignment(name="t", partitions=[WantedReplicas(partition=0, replicas=target)])
        result = made.do(AlterPartitionReassignments(topics=[wanted]), AlterPartitionReassignmentsResult)
        made.machine.check()
        return result.partitions[0].error_code

    made.fence(5)
    assert move([4, 5, 1]) == 0
    change_isr(made, (3, 4))
    made.fence(4)
    made.fence(3)
    for broker_id in (3, 4):
        made.start(broker_id)
    made.unfence(3)
    assert groups(made) == (set(), set(), {3, 4}, -1)
    before = state(made)
    assert move(None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert state(made) == before


def test_a_snapshot_remembers_them() -> None:
    made = lost_both()
    for broker_id in (1, 3):
        made.start(broker_id)
    copy = ControllerWithBrokers(0)
    copy.machine.restore(list(made.machine.snapshot()))
    assert state(copy) == state(made)
    assert set(state(copy).last_known_elr) == {1, 3}


def test_commands_written_before_log_ends_named_registrations_still_decode() -> None:
    end = ReplicaLogEnd(topic_id=b"t" * 16, broker_id=2, leader_epoch=3, log_end_offset=4)
    command = FenceBroker(broker_id=1, broker_epoch=2, progress=[end])
    before = bytes.fromhex(
        f"03{'ff' * 12}{'00' * 17}00000001000000000000000202{'74' * 16}00000000000000020000000300000000000000040000"
    )
    assert q.encode_command(None, command) == before
    assert q.decode_command(before) == (None, command)
    assert end.broker_epoch == -1
