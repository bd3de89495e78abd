"""The knowledge of a broker that takes over: it recognises retries of producers, and refuses former group members."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.records.record import encode_batch
from tests.cluster import Node, RunningCluster, wait_for
from tests.faults.actors import Member
from tests.faults.faults import Faults
from tests.faults.workload import Workload, make_topic
from tests.histories.operations import Probe
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

BATCHES_REMEMBERED = 5
ASKED_TWICE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_COORDINATOR}
"""Errors of a broker that is taking over, after which a client asks again."""


def produce(node: Node, topic: str, producer: tuple[int, int], sequence: int) -> tuple[ErrorCode, int]:
    """Send one record with acks=all until the broker leads; return the error and the offset."""
    producer_id, epoch = producer
    records = encode_batch(
        [(None, b"raw:%d" % sequence, int(time.time() * 1000))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    message = ProduceRequest(acks=-1, timeout_ms=8_000, topic_data=[data])

    def ask() -> tuple[ErrorCode, int] | None:
        with closing(Peer(node.port)) as peer:
            answer = peer.ask(message, 9, 10).responses[0].partition_responses[0]
        error = ErrorCode(answer.error_code)
        return None if error in ASKED_TWICE else (error, answer.base_offset)

    return wait_for(ask, f"an answer of broker {node.id}")


def test_what_is_sent_again_to_the_next_leader_stands_where_it_stood(cluster: RunningCluster) -> None:
    topic = "again"
    make_topic(cluster.bootstrap, topic, 1)
    with Faults(cluster, (topic,), groups=False) as faults:
        leader = faults.leader(topic, 0)
        with closing(Peer(leader.port)) as peer:
            given = peer.ask(InitProducerIdRequest(transactional_id=None), 4)
        producer = (given.producer_id, given.producer_epoch)
        offsets: dict[int, int] = {}
        for turn in range(3):
            first = turn * 6
            for sequence in range(first, first + 6):
                error, offsets[sequence] = produce(leader, topic, producer, sequence)
                assert error is ErrorCode.NONE
            if turn % 2:
                faults.pause(leader)
            else:
                faults.kill(leader)
            faults.wait_led_by_another(topic, 0, leader)
            leader = faults.leader(topic, 0)
            for sequence in range(first + 6 - BATCHES_REMEMBERED, first + 6):
                assert produce(leader, topic, producer, sequence) == (ErrorCode.NONE, offsets[sequence])
            error, _ = produce(leader, topic, producer, first + 7)
            assert error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            faults.heal()
            leader = faults.leader(topic, 0)
    assert list(offsets.values()) == list(range(18))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_next_coordinator_refuses_members_of_the_past(cluster: RunningCluster, protocol: str) -> None:
    topic = f"past-{protocol}"
    make_topic(cluster.bootstrap, topic)
    with (
        Faults(cluster, (topic,)) as faults,
        Workload(cluster.bootstrap, topic, protocols=(protocol,)) as workload,
    ):
        group = workload.members[0].group
        for _ in range(3):
            workload.wait_acknowledged(50)
            workload.wait_read(50)
            coordinator = faults.coordinator(group)
            faults.kill(coordinator)
            workload.wait_read(50)
            successor = faults.coordinator(group)
            for probe in probes(successor, topic, workload.members):
                workload.history.add(probe)
            faults.heal()
        assert workload.history.probes
    workload.check(faults)


def probes(coordinator: Node, topic: str, members: list[Member]) -> list[Probe]:
    """Commit as an unknown member, and as each member an epoch ago, to a partition that the member does not own.

    For a partition that it has owned ever since, the previous epoch is valid (KIP-1251).
    """
    stale = {"ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"}
    group = members[0].group
    made = [(f"a commit to {group} by a stranger", 1, "nobody", 0, {"UNKNOWN_MEMBER_ID"})]
    for member in members:
        generation, member_id = member.identity
        foreign = set(range(3)) - member.owned
        if generation > 1 and foreign:
            what = f"a commit to {group} of its generation before"
            made.append((what, generation - 1, member_id, min(foreign), stale))
    found = []
    for what, generation, member_id, partition, expected in made:
        got = commit(coordinator, group, (topic, partition), generation, member_id)
        found.append(Probe(member_id, what, sorted(expected), got, time.monotonic()))
    return found


def commit(
    coordinator: Node, group: str, place: tuple[str, int], generation: int, member_id: str
) -> str | None:
    """Commit offset 0 until the broker coordinates the group; return the name of the error, None for success."""
    partition = OffsetCommitRequestPartition(partition_index=place[1], committed_offset=0)
    message = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=place[0], partitions=[partition])],
    )

    def ask() -> ErrorCode | None:
        with closing(Peer(coordinator.port)) as peer:
            error = ErrorCode(peer.ask(message, 9, 10).topics[0].partitions[0].error_code)
        return None if error in ASKED_TWICE | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS} else error

    error = wait_for(ask, f"an answer of coordinator {coordinator.id}")
    return None if error is ErrorCode.NONE else error.name
