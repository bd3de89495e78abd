"""Leaderships, replicas and brokers detect contradictions in their state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.roles.in_sync import Committed, PendingExpand, PendingShrink, Proposal
from ottla.dataplane.replication.roles.leader import LeaderState, Refusal
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord

from .brokers_over_sockets import Broker, Quorum
from .harness import ReplicasByHand
from .test_leader import LAG_MS, leader
from .test_leader import Broker as KnownBroker

TOPIC = bytes(range(16))


def advanced() -> LeaderState:
    """Return a leadership with everything up to 12 acknowledged by all three; the log ends at 13."""
    state = leader(brokers={b: KnownBroker(100 + b) for b in (1, 2, 3)})
    state.appended(13, 13, 1)
    state.fetched(2, 102, 12, 1)
    state.fetched(3, 103, 12, 1)
    state.check(0)
    assert state.high_watermark == 12
    return state


def _watermark_past_the_end(state: LeaderState) -> None:
    state.high_watermark = 14


def _watermark_falls(state: LeaderState) -> None:
    state.high_watermark = -1


def _watermark_ahead_of_a_member(state: LeaderState) -> None:
    state.high_watermark = 13


def _watermark_ahead_of_the_silent(state: LeaderState) -> None:
    state.followers[3].log_end_offset = -1


def _watermark_ahead_of_the_proposed(state: LeaderState) -> None:
    state.in_sync = PendingExpand(frozenset({1, 2}), 3, Proposal(5, 7, ((1, 101), (2, 102), (3, 103))))
    state.followers[3].log_end_offset = 11


def _watermark_ahead_of_the_disk(state: LeaderState) -> None:
    state.durable_offset = 11


def _durable_past_the_end(state: LeaderState) -> None:
    state.durable_offset = 14


def _leader_out_of_sync(state: LeaderState) -> None:
    state.in_sync = Committed(frozenset({2, 3}))


def _stranger_in_sync(state: LeaderState) -> None:
    state.in_sync = Committed(frozenset({1, 9}))


def _proposes_something_else(state: LeaderState) -> None:
    state.in_sync = PendingShrink(frozenset({1, 2, 3}), frozenset({2}), Proposal(5, 7, ((1, 101), (2, 102))))


def _proposes_in_an_old_epoch(state: LeaderState) -> None:
    state.in_sync = PendingExpand(frozenset({1, 2}), 3, Proposal(5, 6, ((1, 101), (2, 102), (3, 103))))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_watermark_past_the_end, "<= log end 13 does not hold"),
        (_watermark_falls, "high watermark -1"),
        (_watermark_ahead_of_a_member, "2 of the ISR acknowledged 12"),
        (_watermark_ahead_of_the_silent, "3 of the ISR acknowledged -1"),
        (_watermark_ahead_of_the_proposed, "3 of the ISR acknowledged 11"),
        (_watermark_ahead_of_the_disk, "but durable to 11"),
        (_durable_past_the_end, "durable to 14, and ends at 13"),
        (_leader_out_of_sync, "is not in its ISR"),
        (_stranger_in_sync, "is not among 1 and its followers"),
        (_proposes_something_else, "does not say what"),
        (_proposes_in_an_old_epoch, "is in flight in leader epoch 5, partition epoch 7"),
    ],
)
def test_a_leadership_that_contradicts_itself(spoil: Callable[[LeaderState], None], said: str) -> None:
    state = advanced()
    spoil(state)
    with pytest.raises(AssertionError, match=said):
        state.check(0)


def test_a_member_that_fetches_in_its_next_life_is_on_its_way_out() -> None:
    state = advanced()
    state.fetched(3, 999, 4, 2)
    state.check(0)


def test_a_proposed_member_that_fetches_in_its_next_life_is_waited_for_until_the_answer() -> None:
    brokers = {b: KnownBroker(100 + b) for b in (1, 2, 3)}
    state = leader(isr=(1, 2), brokers=brokers)
    state.fetched(3, 103, 10, 1)
    state.fetched(2, 102, 10, 1)
    proposal = state.propose_expand(3)
    assert proposal is not None
    assert state.high_watermark == 10
    # The follower loses power and registers again before the quorum has seen the proposal, which names its former
    # incarnation.
    brokers[3].broker_epoch = 999
    state.fetched(3, 999, 4, 2)
    state.check(0)
    later_ms = 2 + 2 * LAG_MS
    state.appended(13, 13, later_ms)
    state.fetched(2, 102, 13, later_ms)
    state.check(0)
    assert state.high_watermark == 10, "the outcome is unknown, so the proposed member counts"
    assert state.refused(proposal, Refusal.INELIGIBLE) is None
    assert state.advance(later_ms)
    assert state.high_watermark == 13
    assert state.propose_expand(3) is None
    state.check(0)


def _lead_and_follow(partition: Partition, other: Partition) -> None:
    partition.follower = other.follower


def _lead_in_another_epoch(partition: Partition, other: Partition) -> None:
    partition.log.leader_epochs.assign(99, partition.log.log_end_offset)


def _lead_another_log(partition: Partition, other: Partition) -> None:
    partition.log.log_end_offset += 1


def _make_wait_for_what_is_committed(partition: Partition, other: Partition) -> None:
    partition._acknowledgements.wait(0, lambda _outcome: None)


def _make_wait_without_leader(partition: Partition, other: Partition) -> None:
    partition._acknowledgements.wait(99, lambda _outcome: None)
    partition.leader = None


def _flush_too_far(partition: Partition, other: Partition) -> None:
    partition._flushing.flushed_offset = 99


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_lead_and_follow, "both leads and follows"),
        (_lead_in_another_epoch, "leads in epoch 1, its log has 99"),
        (_lead_another_log, "leads up to 1"),
        (_make_wait_for_what_is_committed, "somebody waits for"),
        (_make_wait_without_leader, "does not lead, and somebody waits"),
        (_flush_too_far, "flushed to 99"),
    ],
)
def test_a_replica_that_contradicts_itself(
    tmp_path: Path, spoil: Callable[[Partition, Partition], None], said: str
) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    cluster[1].produce(b"value")
    partition, other = cluster[1].partition, cluster[2].partition
    partition.check()
    other.check()
    spoil(partition, other)
    with pytest.raises(AssertionError, match=said):
        partition.check()


def test_a_follower_whose_log_is_ahead_of_its_leaders_epoch(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    follower = cluster[2]
    follower.log.leader_epochs.assign(7, 0)
    with pytest.raises(AssertionError, match="follows in epoch 1, its log has 7"):
        follower.partition.check()


async def test_a_broker_whose_roles_are_not_those_of_the_image(tmp_path: Path) -> None:
    quorum = Quorum()
    broker = Broker(quorum, 1, 1, tmp_path / "b1", durable=False)
    try:
        record = PartitionRecord(topic_id=TOPIC, partition=0, replicas=[1, 2], isr=[1], leader=1)
        quorum.tell(TopicRecord(topic_id=TOPIC, name="t"), record)
        broker.replicas.check()
        (state,) = quorum.image.topics_by_id[TOPIC].partitions.values()
        for changes, said in (
            ({"leader": 2}, "leads: "),
            ({"isr": (1, 2)}, r"has the ISR \[1\]"),
            ({"leader_epoch": -1}, "is in leader epoch 0"),
        ):
            quorum.image.topics_by_id[TOPIC].partitions[0] = replace(state, **changes)  # type: ignore[arg-type]
            with pytest.raises(AssertionError, match=said):
                broker.replicas.check()
        quorum.image.topics_by_id[TOPIC].partitions[0] = replace(state, leader_epoch=1, leader=2)
        broker.replicas.check()  # The broker has not heard of it yet.
        broker.replicas._by_name.clear()
        with pytest.raises(AssertionError, match="by name and by topic id differ"):
            broker.replicas.check()
    finally:
        await broker.stop()
