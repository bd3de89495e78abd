"""Reassignments: the rules one by one, and random histories of events while replicas move."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_commands import BeginControlledShutdown, ControlledShutdownResult
from ottla.protocol.messages.metadata_records import PartitionRecord, decode_record, encode_record
from ottla.protocol.messages.partition_commands import (
    AlterPartition,
    AlterPartitionChange,
    AlterPartitionResult,
    ElectionType,
    ElectLeaders,
    ElectLeadersResult,
    IsrMember,
)
from ottla.protocol.messages.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    TopicReassignment,
    WantedReplicas,
)
from tests.metadata_quorum.state.harness import ControllerWithBrokers, assigned


def state_of(cluster: ControllerWithBrokers) -> PartitionState:
    return cluster.machine.image.topics["t"].partitions[0]


def move(
    cluster: ControllerWithBrokers,
    replicas: list[int] | None,
    *,
    topic: str = "t",
    partition: int = 0,
    factor: bool = True,
) -> ErrorCode:
    command = AlterPartitionReassignments(
        topics=[
            TopicReassignment(name=topic, partitions=[WantedReplicas(partition=partition, replicas=replicas)])
        ],
        allow_replication_factor_change=factor,
    )
    (result,) = cluster.do(command, AlterPartitionReassignmentsResult).partitions
    return ErrorCode(result.error_code)


def set_isr(cluster: ControllerWithBrokers, isr: list[int], ends: dict[int, int] | None = None) -> ErrorCode:
    """Propose this ISR as the leader."""
    state = state_of(cluster)
    change = AlterPartitionChange(
        topic_id=cluster.topic_id("t"),
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr=[
            IsrMember(
                broker_id=broker_id,
                broker_epoch=cluster.epoch(broker_id),
                log_end_offset=(ends or {}).get(broker_id, -1),
            )
            for broker_id in isr
        ],
    )
    command = AlterPartition(
        broker_id=state.leader, broker_epoch=cluster.epoch(state.leader), partitions=[change]
    )
    (result,) = cluster.do(command, AlterPartitionResult).partitions
    return ErrorCode(result.error_code)


def cluster_of(replicas: list[int], brokers: int = 6) -> ControllerWithBrokers:
    cluster = ControllerWithBrokers(brokers)
    cluster.create(assigned("t", replicas))
    return cluster


def test_replicas_are_added_first_and_removed_when_all_have_joined() -> None:
    cluster = cluster_of([1, 2, 3])
    assert move(cluster, [4, 5, 2]) is ErrorCode.NONE
    begun = state_of(cluster)
    assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == (
        (4, 5, 2, 1, 3),
        (4, 5),
        (1, 3),
    )
    assert (begun.isr, begun.leader, begun.leader_epoch) == ((2, 1, 3), 1, 0)
    assert set_isr(cluster, [1, 2, 3, 4]) is ErrorCode.NONE
    assert state_of(cluster).is_moving
    assert set_isr(cluster, [1, 2, 3, 4, 5], {1: 90, 2: 70, 3: 80, 4: 70, 5: 75}) is ErrorCode.NONE
    done = state_of(cluster)
    assert (done.replicas, done.isr, done.is_moving) == ((4, 5, 2), (4, 5, 2), False)
    assert (done.leader, done.leader_epoch) == (5, 1)  # furthest along of the remaining ones


def test_a_replica_that_goes_is_fenced_by_a_new_epoch_though_the_leader_stays() -> None:
    cluster = cluster_of([1, 2, 3])
    assert move(cluster, [1, 2]) is ErrorCode.NONE
    state = state_of(cluster)
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1, 2), (1, 2), 1, 1)


def test_another_order_takes_effect_at_once() -> None:
    cluster = cluster_of([1, 2, 3])
    assert move(cluster, [3, 1, 2]) is ErrorCode.NONE
    state = state_of(cluster)
    assert (state.replicas, state.leader, state.leader_epoch, state.partition_epoch) == ((3, 1, 2), 1, 0, 1)
    assert move(cluster, [3, 1, 2]) is ErrorCode.NONE
    assert state_of(cluster) == state


def test_fewer_replicas_wait_until_all_that_stay_are_in_sync() -> None:
    cluster = cluster_of([1, 2, 3])
    assert set_isr(cluster, [1, 3]) is ErrorCode.NONE
    assert move(cluster, [1, 2]) is ErrorCode.NONE
    assert state_of(cluster).removing_replicas == (3,)
    assert set_isr(cluster, [1, 2, 3]) is ErrorCode.NONE
    assert state_of(cluster).replicas == (1, 2)


def test_cancelling_takes_the_added_replicas_out_again() -> None:
    cluster = cluster_of([1, 2, 3])
    assert move(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    move(cluster, [4, 5, 6])
    set_isr(cluster, [1, 2, 3, 4])
    assert move(cluster, None) is ErrorCode.NONE
    state = state_of(cluster)
    assert (sorted(state.replicas), state.isr, state.is_moving) == ([1, 2, 3], (1, 2, 3), False)
    assert (state.leader, state.leader_epoch) == (1, 1)


def test_cancelling_is_refused_where_only_added_replicas_have_the_records() -> None:
    cluster = cluster_of([1])
    move(cluster, [4, 5])
    set_isr(cluster, [1, 4])
    cluster.fence(1)
    assert state_of(cluster).leader == 4
    assert move(cluster, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert state_of(cluster).isr == (4,)
    assert move(cluster, [6]) is ErrorCode.NONE  # replacing it must not lose the records either
    assert state_of(cluster).isr == (4,)
    assert set_isr(cluster, [4, 6]) is ErrorCode.NONE
    assert (state_of(cluster).replicas, state_of(cluster).leader) == ((6,), 6)


def test_cancelling_is_refused_while_the_only_replica_with_the_records_is_away() -> None:
    cluster = cluster_of([1])
    move(cluster, [4, 5])
    set_isr(cluster, [1, 4])
    cluster.fence(1)
    cluster.fence(4)
    before = state_of(cluster)
    assert (before.leader, before.isr) == (-1, (4,))
    assert move(cluster, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert state_of(cluster) == before
    cluster.unfence(1)
    assert move(cluster, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.unfence(4)
    assert state_of(cluster).leader == 4


def test_a_running_move_is_replaced() -> None:
    cluster = cluster_of([1, 2, 3])
    move(cluster, [4, 5, 6])
    set_isr(cluster, [1, 2, 3, 4, 5])
    assert move(cluster, [4, 2, 1]) is ErrorCode.NONE
    state = state_of(cluster)
    assert (state.replicas, state.isr, state.is_moving) == ((4, 2, 1), (4, 2, 1), False)
    move(cluster, [5, 6])
    assert move(cluster, [4, 2, 1]) is ErrorCode.NONE  # back to where it began: the same as cancelling
    assert (state_of(cluster).replicas, state_of(cluster).is_moving) == ((4, 2, 1), False)


def test_a_move_to_a_fenced_broker_waits_visibly() -> None:
    cluster = cluster_of([1, 2, 3])
    cluster.fence(5)
    assert move(cluster, [1, 2, 5]) is ErrorCode.NONE
    assert state_of(cluster).adding_replicas == (5,)
    assert set_isr(cluster, [1, 2, 3, 5]) is ErrorCode.INELIGIBLE_REPLICA
    cluster.unfence(5)
    assert set_isr(cluster, [1, 2, 3, 5]) is ErrorCode.NONE
    assert state_of(cluster).replicas == (1, 2, 5)


def test_refusals() -> None:
    cluster = cluster_of([1, 2, 3])
    before = state_of(cluster)
    for wrong in ([], [1, 1], [1, 9], [-1, 2], [1, 2, 2**31 - 1]):
        assert move(cluster, wrong) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(cluster, [1, 2], factor=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(cluster, [1], topic="none") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(cluster, [1], partition=1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(cluster, None, partition=-1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert state_of(cluster) == before
    assert move(cluster, [4, 5, 6], factor=False) is ErrorCode.NONE
    assert move(cluster, [4, 5], factor=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(cluster, [4, 5, 3], factor=False) is ErrorCode.NONE


def test_records_written_before_there_were_reassignments_still_decode() -> None:
    record = PartitionRecord(replicas=[1, 2], isr=[1], leader=1)
    encoded = encode_record(record)
    assert encoded.endswith(b"\0\0")  # no tagged fields
    decoded = decode_record(encoded)
    assert decoded == record
    moving = PartitionRecord(replicas=[1, 2], isr=[1], leader=1, adding_replicas=[2], removing_replicas=[1])
    assert decode_record(encode_record(moving)) == moving


BROKERS = (1, 2, 3, 4, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True)),
        st.tuples(st.sampled_from(["cancel", "expand", "lag", "preferred"]), st.just([])),
        st.tuples(
            st.sampled_from(["fence", "unfence", "crash", "stop"]),
            st.lists(st.sampled_from(BROKERS), min_size=1, max_size=1),
        ),
    ),
    max_size=30,
)


class Moving:
    """A partition under reassignment, and the checks that must always hold."""

    def __init__(self) -> None:
        self.cluster = cluster_of([1, 2, 3], brokers=5)

    def step(self, kind: str, given: list[int]) -> None:
        cluster = self.cluster
        before = state_of(cluster)
        if kind == "move":
            assert move(cluster, given) in (ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            self.check_isr(before)
        elif kind == "cancel":
            move(cluster, None)
            self.check_isr(before)
        elif kind == "fence":
            cluster.fence(given[0])
        elif kind == "unfence":
            cluster.unfence(given[0])
        elif kind == "crash":
            cluster.start(given[0])
        elif kind == "stop":
            epoch = cluster.epoch(given[0])
            command = BeginControlledShutdown(broker_id=given[0], broker_epoch=epoch)
            cluster.do(command, ControlledShutdownResult)
        elif kind == "lag" and before.leader >= 0 and len(before.isr) > 1:
            left = [broker_id for broker_id in before.isr if broker_id == before.leader or broker_id % 2]
            set_isr(cluster, left)
        elif kind == "expand":
            self.expand()
        elif kind == "preferred":
            cluster.do(ElectLeaders(election_type=ElectionType.PREFERRED), ElectLeadersResult)
        self.check(before)

    def expand(self) -> None:
        state = state_of(self.cluster)
        brokers = self.cluster.machine.image.brokers
        able = [
            broker_id
            for broker_id in state.replicas
            if brokers[broker_id].usable and broker_id not in state.isr
        ]
        if state.leader >= 0 and able:
            members = [broker_id for broker_id in state.isr if brokers[broker_id].usable]
            joined = [*members, able[0]]
            assert set_isr(self.cluster, joined) is ErrorCode.NONE
            self.check_isr(replace(state, isr=tuple(joined)))

    def check_isr(self, before: PartitionState) -> None:
        """Check that no reassignment makes the ISR smaller than before, or than its target."""
        state = state_of(self.cluster)
        own = len(set(before.isr) - set(before.adding_replicas))
        assert len(state.isr) >= min(own, len(state.replicas)), (before, state)
        if before.isr:
            assert set(state.isr) & {*before.isr, *before.elr}, (before, state)
        if before.leader >= 0:
            assert state.leader >= 0, (before, state)

    def check(self, before: PartitionState) -> None:
        self.cluster.machine.check()
        state = state_of(self.cluster)
        changed = state != before
        assert state.isr or state.elr or state.last_known_elr, (before, state)  # a replica may lead some day
        assert state.partition_epoch == before.partition_epoch or changed
        assert before.leader_epoch <= state.leader_epoch
        assert state.leader == before.leader or state.leader_epoch > before.leader_epoch
        if not set(before.replicas) <= set(state.replicas):
            assert state.leader_epoch > before.leader_epoch


@settings(max_examples=300)
@given(STEPS)
@example([("move", [4]), ("expand", []), ("fence", [1]), ("move", [5]), ("cancel", [])])
def test_whatever_happens_a_move_loses_no_in_sync_replica_and_comes_to_its_end(
    steps: list[tuple[str, list[int]]],
) -> None:
    moving = Moving()
    for kind, given_ in steps:
        moving.step(kind, given_)
    target = [
        broker_id
        for broker_id in state_of(moving.cluster).replicas
        if broker_id not in state_of(moving.cluster).removing_replicas
    ]
    for broker_id in BROKERS:  # now all brokers live, and catch up
        moving.cluster.start(broker_id, clean=True)
        moving.cluster.unfence(broker_id)
    state = state_of(moving.cluster)
    assert state.leader >= 0
    for _ in BROKERS:
        moving.expand()
    done = state_of(moving.cluster)
    assert not done.is_moving
    assert list(done.replicas) == target
    assert set(done.isr) == set(target)
