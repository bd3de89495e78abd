"""Scripted histories over several brokers: each is a known cause of lost or forked records in replicated logs."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from ottla.dataplane.replication.leader.follower_session import LOG_START_DELAY_S, WATERMARK_DELAY_S
from ottla.dataplane.replication.roles.in_sync import Committed, PendingExpand
from ottla.dataplane.replication.roles.leader import Refusal
from ottla.dataplane.storage.log_upkeep import LogUpkeep
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.log.held_replicas import Held, holds_of

from .harness import KEY, LAG_MS, ReplicasByHand, batch


def assert_identical(cluster: ReplicasByHand, *brokers: int) -> None:
    first, *others = [cluster[broker].records() for broker in brokers]
    for other in others:
        assert other == first


def test_acks_all_is_acknowledged_when_the_next_fetch_of_every_member_arrives(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    leader = cluster[1]
    for follower in (2, 3):
        cluster.fetch(follower, 1)
    parked = {f: leader.serve(cluster[f].ask(), wait=True) for f in (2, 3)}
    assert parked == {2: [], 3: []}
    sent = leader.produce(b"a")
    assert sent.outcome is None
    assert all(answers for answers in parked.values()), (
        "parked fetches are answered in the turn of the append"
    )
    cluster[2].take(parked[2][0])
    cluster[3].take(parked[3][0])
    leader.serve(cluster[2].ask(), wait=True)
    assert sent.outcome is None
    last = leader.serve(cluster[3].ask(), wait=True)
    assert sent.outcome is ErrorCode.NONE
    assert last == [], "a moved high watermark waits for records to travel with"
    leader.scheduler.fire_timers()
    cluster[3].take(last[0])
    assert cluster[3].partition.high_watermark == 1
    assert_identical(cluster, 1, 2, 3)


def test_a_log_start_that_moved_does_not_wait_as_long_as_a_high_watermark(tmp_path: Path) -> None:
    """No client waits for a follower's high watermark, but DeleteRecords waits for the followers."""
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    leader, follower = cluster[1], cluster[2]
    cluster.sync(1, 2)
    parked = leader.serve(follower.ask(), wait=True)
    leader.produce(b"a")
    follower.take(parked[0])
    parked = leader.serve(follower.ask(), wait=True)
    long_poll_s = 0.5
    assert leader.scheduler.waits() == [long_poll_s, WATERMARK_DELAY_S]
    leader.partition.record_deletion.trim(1)
    assert leader.scheduler.waits() == [long_poll_s, LOG_START_DELAY_S]
    assert parked == []
    leader.scheduler.fire_timers()
    follower.take(parked[0])
    assert (follower.partition.high_watermark, follower.log.log_start_offset) == (1, 1)
    parked = leader.serve(follower.ask(), wait=True)
    leader.produce(b"b")
    follower.take(parked[0])
    leader.serve(follower.ask(), wait=True)
    assert leader.scheduler.waits() == [long_poll_s, WATERMARK_DELAY_S], "the log start has been reported"


def test_what_a_follower_said_on_a_former_connection_changes_nothing(tmp_path: Path) -> None:
    """The request was in flight when the follower dropped the connection.

    It would replace the current session, and report a log that has grown since (seed 232 of the simulated cluster).
    """
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    leader, follower = cluster[1], cluster[2]
    late = follower.ask()
    assert follower.following is not None
    follower.following.disconnected()
    (opened,) = leader.serve(follower.ask(), connection=2)
    follower.take(opened)
    parked = leader.serve(follower.ask(), wait=True, connection=2)
    leader.produce(b"a")
    follower.take(parked[0])
    leader.serve(follower.ask(), wait=True, connection=2)
    assert leader.partition.high_watermark == 1
    (refusal,) = leader.serve(late, connection=1)
    assert refusal.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert leader.partition.leading().followers[2].log_end_offset == 1


def test_a_fetch_is_parked_for_its_own_time_whatever_was_parked_before(tmp_path: Path) -> None:
    """One timer serves all requests of a session, and hardly any of them waits to its end."""
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    leader, follower = cluster[1], cluster[2]
    cluster.sync(1, 2)
    first = leader.serve(follower.ask(), wait=True)
    assert leader.scheduler.waits() == [0.5]
    cluster.now_ms += 300
    leader.produce(b"a")
    follower.take(first.pop())
    second = leader.serve(follower.ask(), wait=True)
    assert leader.scheduler.waits() == [0.5, WATERMARK_DELAY_S], "no other deadline"
    cluster.now_ms += 200
    leader.scheduler.fire_timers()
    follower.take(second.pop())
    assert leader.scheduler.waits() == [pytest.approx(0.3)], "the rest of the second request's time"
    third = leader.serve(follower.ask(), wait=True)
    cluster.now_ms += 300
    leader.scheduler.fire_timers()
    assert (third, leader.scheduler.waits()) == ([], [pytest.approx(0.2)])
    cluster.now_ms += 200
    leader.scheduler.fire_timers()
    assert [answer.partitions for answer in third] == [[]]
    assert leader.scheduler.waits() == [], "nothing is parked"


async def test_followers_of_an_idle_partition_hear_what_retention_dropped(tmp_path: Path) -> None:
    """A follower would otherwise lead with records that were gone."""
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2), segment_bytes=100)
    cluster.elect(1)
    leader, follower = cluster[1], cluster[2]
    for value in (b"a", b"b", b"c"):
        leader.produce(value)
        cluster.sync(1, 2)
    parked = leader.serve(follower.ask(), wait=True)
    assert (parked, follower.partition.high_watermark) == ([], 3)
    leader.log.config = replace(leader.log.config, retention_bytes=1)

    async def keep() -> None:
        """Store nothing."""

    await LogUpkeep(Held(leader.partition), holds_of(), keep, 1000, lambda: cluster.now_ms).check()
    assert leader.log.log_start_offset == 2
    assert LOG_START_DELAY_S in leader.scheduler.waits()
    leader.scheduler.fire_timers()
    follower.take(parked[0])
    assert follower.log.log_start_offset == 2


def test_an_idle_session_names_nothing(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster[1].produce(b"a")
    cluster.sync(1, 2)
    ask = cluster[2].ask()
    assert ask.positions == () or list(ask.positions) == []
    assert cluster[1].serve(ask)[0].partitions == []


def test_a_newer_request_releases_the_parked_one(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster.sync(1, 2)
    follower = cluster[2]
    parked = cluster[1].serve(follower.ask(), wait=True)
    follower.following.again((follower.partition.topic_id, 0))
    second = cluster[1].serve(follower.ask(), wait=True)
    assert len(parked) == 1
    assert second == []


def test_kip_101_followers_truncate_by_epoch_not_by_their_high_watermark(tmp_path: Path) -> None:
    """The follower has the record but not yet the high watermark when it restarts, and then its leader dies.

    Truncated at its own high watermark, it would have dropped an acknowledged record and become leader without it.
    """
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster.sync(1, 2)
    sent = cluster[1].produce(b"m1")
    cluster.fetch(2, 1)
    cluster[1].serve(cluster[2].ask())  # acknowledges; the answer with the high watermark is lost
    assert sent.outcome is ErrorCode.NONE
    assert cluster[2].partition.high_watermark == 0
    cluster[2].crash()
    cluster[2].hear()
    assert cluster[2].values() == [b"m1"]
    cluster.elect(2, isr=(2,))
    assert cluster[2].values() == [b"m1"]
    cluster.sync(2, 1)
    assert_identical(cluster, 1, 2)


def test_kip_101_second_case_logs_do_not_fork_after_both_crash(tmp_path: Path) -> None:
    """Both lose power with different tails; the first to lead writes another record at the same offset."""
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster.sync(1, 2)
    cluster[1].produce(b"m1")
    cluster.sync(1, 2)
    cluster[1].produce(b"m2", acks=1)
    cluster[1].crash()
    cluster[2].crash()
    cluster.elect(2, isr=(2,), tell=(2,))
    cluster[2].produce(b"other")
    cluster[1].hear()
    cluster.sync(2, 1)
    assert cluster[1].values() == [b"m1", b"other"]
    assert_identical(cluster, 1, 2)


def test_kip_279_two_leader_changes_between_two_fetches(tmp_path: Path) -> None:
    """The leader answers with an epoch the follower never saw; it cuts on until an epoch is common."""
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2, 3))
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    cluster[1].produce(b"common")
    cluster.sync(1, 2, 3)
    cluster.elect(3, tell=(3,))
    for value in (b"c1", b"c2"):
        cluster[3].produce(value, acks=1)
    cluster.elect(2, isr=(2,), tell=(2,))
    cluster[2].produce(b"b1", acks=1)
    cluster.elect(1, isr=(1,), tell=(1,))
    for value in (b"a1", b"a2", b"a3"):
        cluster[1].produce(value, acks=1)
    cluster[2].hear()
    cluster[3].hear()
    for _ in range(6):
        cluster.fetch(2, 1)
        cluster.fetch(3, 1)
    assert cluster[1].values() == [b"common", b"a1", b"a2", b"a3"]
    assert_identical(cluster, 1, 2, 3)


def test_a_follower_that_diverges_hears_of_no_high_watermark_until_the_logs_agree(tmp_path: Path) -> None:
    """The logs agree after two rounds.

    Between them an answer to another request of its session comes: a high watermark in it would cover, and show to
    consumers, records that the leader does not have.
    """
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    cluster[1].produce(b"a")
    cluster.sync(1, 2, 3)
    cluster.elect(3, tell=(3,))
    for value in (b"x1", b"x2"):
        cluster[3].produce(value, acks=1)
    cluster.elect(1, isr=(1, 2), tell=(1,))
    for value in (b"y1", b"y2", b"y3"):
        cluster[1].produce(value, acks=1)
    cluster.elect(3, isr=(1, 2, 3), tell=(3,))
    cluster[3].produce(b"z", acks=1)
    cluster.elect(1, isr=(1, 2))
    ask = cluster[3].ask()
    (diverging,) = cluster[1].serve(ask)
    about_others = ask._replace(session_id=diverging.session_id, session_epoch=1, positions=())
    parked = cluster[1].serve(about_others, wait=True)
    cluster.sync(1, 2)
    assert cluster[1].partition.high_watermark == 4
    cluster[1].scheduler.fire_timers()
    assert [part for answer in parked for part in answer.partitions] == []
    cluster[3].take(diverging)
    assert cluster[3].values() == [b"a", b"x1", b"x2"], "one epoch further than the leader said"
    assert cluster[3].partition.high_watermark <= 1


def test_an_epoch_led_without_a_record_does_not_hold_a_follower_up(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster[1].produce(b"x", acks=1)
    cluster.sync(1, 2)
    cluster.elect(2, tell=(2,))
    cluster.elect(1)
    cluster[1].produce(b"y", acks=1)
    cluster.sync(1, 2)
    assert_identical(cluster, 1, 2)
    assert cluster[2].values() == [b"x", b"y"]


def test_an_answer_of_an_older_leader_epoch_is_dropped(tmp_path: Path) -> None:
    """Rule 2: neither records nor a truncation of an old epoch are taken."""
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2, 3))
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    cluster[1].produce(b"zombie", acks=1)
    old_session = cluster[2].following
    late = cluster[1].serve(cluster[2].ask())
    cluster.elect(1, tell=(2,))
    assert old_session is not None
    old_session.follow(cluster[2].partition)  # the session goes on, in a new leader epoch
    old_session.answered(late[0])
    assert cluster[2].values() == []
    asked_again = old_session.next_fetch(cluster.brokers[2].broker_epoch)
    assert asked_again is not None
    assert [position.leader_epoch for position in asked_again.positions] == [2]


def test_a_fetch_in_another_epoch_is_refused_and_acknowledges_nothing(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster.sync(1, 2)
    cluster[1].produce(b"a")
    cluster.fetch(2, 1)
    cluster.elect(1, tell=(1,))
    answer = cluster[1].serve(cluster[2].ask())[0]
    errors = {part.error for part in answer.partitions}
    assert errors <= {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert errors
    assert cluster[1].partition.leader.followers[2].log_end_offset == -1
    cluster.elect(1, tell=(2,))
    answer = cluster[1].serve(cluster[2].ask())[0]
    assert {part.error for part in answer.partitions} == {ErrorCode.UNKNOWN_LEADER_EPOCH}


def test_isr_expand_race_a_follower_joins_only_at_the_new_leaders_start(tmp_path: Path) -> None:
    """A follower reaches the high watermark of a new leader, but not the leader's log end at election.

    If it joined and were then elected, records acknowledged under the old leader would be gone.
    """
    cluster = ReplicasByHand(tmp_path, isr=(1, 2))
    cluster.elect(1, isr=(1, 2))
    cluster.sync(1, 2)
    for value in (b"a", b"b", b"c"):
        cluster[1].produce(value)
        cluster.fetch(2, 1)
    cluster[1].serve(cluster[2].ask())
    assert cluster[1].partition.high_watermark == 3
    assert cluster[2].partition.high_watermark < 3
    cluster.elect(2, isr=(2,), tell=(2, 3))
    new_leader = cluster[2]
    new_leader.partition.leader.high_watermark = (
        1  # alone in the ISR it has advanced; replay the race from the earlier state
    )
    proposal_at = []
    for offset in range(4):
        new_leader.partition.fetched_by(3, cluster.brokers[3].broker_epoch, offset)
        proposal = new_leader.partition.leader.propose_expand(3)
        if proposal is not None:
            proposal_at.append(offset)
            break
    assert proposal_at == [3]


def test_dropped_alter_partition_answers_leave_the_high_watermark_on_the_maximal_isr(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, isr=(1,))
    cluster.elect(1, isr=(1,))
    leader = cluster[1]
    cluster.sync(1, 2)
    (proposal,) = leader.proposals
    outcome = cluster.alter_partition(1, proposal)  # committed, and the answer is lost
    assert cluster.state.isr == {1, 2}
    sent = leader.produce(b"a")
    assert sent.outcome is None, "the pending member holds the high watermark"
    assert cluster.settle(1, proposal, Refusal.UNKNOWN) == [proposal]
    assert cluster.settle(1, proposal, cluster.alter_partition(1, proposal)) == []
    assert isinstance(leader.partition.leader.in_sync, PendingExpand)
    assert sent.outcome is None
    cluster.sync(1, 2)
    assert sent.outcome is ErrorCode.NONE
    leader.hear()  # the feed brings the committed change
    assert leader.partition.leader.in_sync == Committed(frozenset({1, 2}))
    cluster.settle(1, proposal, outcome)  # the delayed answer changes nothing any more
    assert leader.partition.leader.in_sync == Committed(frozenset({1, 2}))


def test_a_delayed_shrink_does_not_undo_a_newer_state(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    leader = cluster[1]
    cluster.sync(1, 2, 3)
    leader.produce(b"a", acks=1)
    cluster.sync(1, 2)
    cluster.now_ms += LAG_MS + 1
    cluster.sync(1, 2)
    leader.produce(b"b", acks=1)
    cluster.sync(1, 2)
    shrink = leader.partition.leader.propose_shrink(cluster.now_ms)
    assert [member for member, _ in shrink.isr] == [1, 2]
    cluster.elect(1, isr=(1, 2, 3))
    late = cluster.alter_partition(1, shrink)
    assert late is Refusal.STALE
    cluster.settle(1, shrink, late)
    assert leader.partition.leader.in_sync == Committed(frozenset({1, 2, 3}))


def test_a_restarted_follower_is_not_let_in_by_a_fetch_of_its_former_life(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, isr=(1,))
    cluster.elect(1, isr=(1,))
    leader = cluster[1]
    cluster.fetch(2, 1)
    leader.proposals.clear()
    leader.partition.leader.in_sync = Committed(frozenset({1}))
    old_ask = cluster[2].ask()
    cluster[2].crash()
    leader.hear()  # the registration of the new incarnation
    leader.serve(old_ask)
    assert leader.proposals == []
    assert leader.partition.leader.propose_expand(2) is None
    late = leader.partition.leader._proposal(frozenset({1, 2}))
    assert cluster.alter_partition(1, late) is Refusal.INELIGIBLE
    cluster[2].hear()
    cluster.sync(1, 2)
    assert leader.proposals


def test_min_insync_replicas_before_and_after_the_append(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, min_in_sync=2)
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    leader = cluster[1]
    sent = leader.produce(b"a")
    with_isr(cluster, 1)
    assert sent.outcome is None, "it is in the log, and counts once the ISR is large enough"
    with pytest.raises(KafkaError) as refused:
        leader.produce(b"b")
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.values() == [b"a"], "nothing was appended"
    leader.produce(b"c", acks=1)
    assert leader.partition.high_watermark == 0, "no progress below min.insync.replicas"
    assert sent.outcome is None
    with_isr(cluster, 1, 2)
    cluster.sync(1, 2, 3)
    assert sent.outcome is ErrorCode.NONE


def test_a_batch_in_the_log_is_never_refused_for_want_of_replicas(tmp_path: Path) -> None:
    """Clients take NOT_ENOUGH_REPLICAS for a proof that the batch is not in the log."""
    cluster = ReplicasByHand(tmp_path, min_in_sync=2)
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    leader = cluster[1]
    leader.produce(b"committed", producer=(7, 0, 0))
    cluster.sync(1, 2, 3)
    leader.produce(b"in doubt", producer=(7, 0, 1))
    with_isr(cluster, 1)
    again = leader.produce(b"committed", producer=(7, 0, 0))
    assert (again.duplicate, again.offset, again.outcome) == (True, 0, ErrorCode.NONE)
    again = leader.produce(b"in doubt", producer=(7, 0, 1))
    assert (again.duplicate, again.offset, again.outcome) == (True, 1, None)
    with pytest.raises(KafkaError) as refused:
        leader.produce(b"new", producer=(7, 0, 2))
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    with_isr(cluster, 1, 2)
    cluster.sync(1, 2, 3)
    assert again.outcome is ErrorCode.NONE
    assert leader.values() == [b"committed", b"in doubt"]


def with_isr(cluster: ReplicasByHand, *isr: int) -> None:
    """Commit another ISR, and deliver it to broker 1."""
    cluster.state = replace(
        cluster.state, isr=frozenset(isr), partition_epoch=cluster.state.partition_epoch + 1
    )
    cluster[1].hear()


def test_what_a_producer_sent_behind_its_first_batch_does_not_overtake_it(tmp_path: Path) -> None:
    """The first batch is refused while the ISR is too small; the second arrives when it is large enough."""
    cluster = ReplicasByHand(tmp_path, min_in_sync=2)
    cluster.elect(1, isr=(1,))
    leader = cluster[1]
    with pytest.raises(KafkaError) as refused:
        leader.produce(b"first", producer=(7, 0, 0))
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.elect(1, isr=(1, 2))
    with pytest.raises(KafkaError) as refused:
        leader.produce(b"second", producer=(7, 0, 1))
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.produce(b"first", producer=(7, 0, 0))
    leader.produce(b"second", producer=(7, 0, 1))
    assert leader.values() == [b"first", b"second"]


def test_what_a_producer_sent_behind_its_first_batch_does_not_overtake_it_at_a_new_leader(
    tmp_path: Path,
) -> None:
    """The first batch comes before the broker has heard that it leads, the second after that."""
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    new_leader = cluster[2]
    with pytest.raises(KafkaError) as refused:
        new_leader.produce(b"first", producer=(7, 0, 0))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.elect(2)
    with pytest.raises(KafkaError) as refused:
        new_leader.produce(b"second", producer=(7, 0, 1))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    new_leader.produce(b"first", producer=(7, 0, 0))
    new_leader.produce(b"second", producer=(7, 0, 1))
    assert new_leader.values() == [b"first", b"second"]


def test_batches_behind_one_for_which_there_is_no_room_get_its_error(tmp_path: Path) -> None:
    """The disk refuses a batch, and has room for those that its producer had sent after it."""
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    leader = cluster[1]
    leader.produce(b"before", producer=(7, 0, 0))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch("os.pwrite", side_effect=full), pytest.raises(KafkaError) as refused:
        leader.produce(b"first", producer=(7, 0, 1))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    for sequence in (2, 3):
        with pytest.raises(KafkaError) as refused:
            leader.produce(b"behind", producer=(7, 0, sequence))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    values = [b"first", b"second", b"third"]
    for sequence, value in enumerate(values, 1):
        leader.produce(value, producer=(7, 0, sequence))
    assert leader.values() == [b"before", *values]


def test_a_batch_that_another_leader_has_appended_holds_nothing_back(tmp_path: Path) -> None:
    """The batch was sent to a follower first, which leads only after it has copied it."""
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    with pytest.raises(KafkaError):
        cluster[2].produce(b"first", producer=(7, 0, 0))
    cluster[1].produce(b"first", producer=(7, 0, 0))
    cluster.sync(1, 2, 3)
    cluster.elect(2)
    cluster[2].produce(b"second", producer=(7, 0, 1))
    assert cluster[2].values() == [b"first", b"second"]


def test_a_batch_that_could_never_be_appended_holds_nothing_back(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, min_in_sync=2)
    cluster.elect(1, isr=(1,))
    leader = cluster[1]
    damaged, two = batch(b"first", producer=(7, 0, 5)), batch(b"first", producer=(7, 0, 5)) * 2
    damaged[-1] ^= 1
    for refused in (damaged, two, damaged[:60]):
        with pytest.raises(KafkaError) as raised:
            leader.partition.append(memoryview(refused), required_acks=-1)
        assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.elect(1, isr=(1, 2))
    leader.produce(b"first", producer=(7, 0, 0))
    assert leader.values() == [b"first"]


def test_a_retry_across_a_leader_change_returns_the_original_offset(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    cluster[1].produce(b"first", producer=(7, 0, 0))
    sent = cluster[1].produce(b"second", producer=(7, 0, 1))
    for follower in (2, 3):
        cluster.fetch(follower, 1)  # they have the records, and not yet the high watermark
    cluster.elect(2, isr=(2, 3), tell=(2, 3))
    again = cluster[2].produce(b"second", producer=(7, 0, 1))
    assert again.duplicate
    assert again.offset == sent.offset
    assert again.outcome is None, "a duplicate is acknowledged like the original, under the new leader"
    cluster.sync(2, 3)
    assert again.outcome is ErrorCode.NONE
    assert cluster[2].values() == [b"first", b"second"]


def test_losing_the_leadership_makes_a_waiting_outcome_unknown(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    sent = cluster[1].produce(b"a")
    cluster.elect(2)
    assert sent.outcome is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_starts_anew_acknowledges_that_once_it_is_flushed(tmp_path: Path) -> None:
    """An earlier power loss would restore its older log, which ends below its acknowledged offset."""
    cluster = ReplicasByHand(tmp_path, durable=True)
    cluster.elect(1, isr=(1,))
    partition = cluster[2].partition
    cluster[2].flush_wanted = False
    assert partition.following.restart_at_leaders_start(51)
    assert partition.log.log_end_offset == 51
    assert partition.acknowledged_offset < 51
    assert cluster[2].flush_wanted
    assert cluster[2].following is not None
    asked = cluster[2].following.next_fetch(102)
    assert asked is None or not asked.positions, "it does not fetch from there, which would acknowledge it"
    partition.flushed(partition.log.flush())
    assert partition.acknowledged_offset == 51


def test_a_follower_behind_the_leaders_log_start_starts_anew_there(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2), isr=(1,))
    cluster.elect(1, isr=(1,))
    for value in (b"a", b"b", b"c", b"d"):
        cluster[1].produce(value, acks=1)
    cluster.now_ms += LAG_MS + 1
    cluster[1].partition.advance()
    assert cluster[1].partition.high_watermark == 4
    cluster[1].log.advance_log_start_offset(2)
    cluster.sync(1, 2)
    assert cluster[2].log.log_start_offset == 2
    assert_identical(cluster, 1, 2)
    assert cluster[2].values() == [b"c", b"d"]
    cluster[1].log.advance_log_start_offset(3)
    cluster[1].produce(b"e", acks=1)
    cluster.sync(1, 2)
    assert cluster[2].log.log_start_offset == 3, "a follower follows the leader's log start"


@pytest.mark.parametrize("durable", [False, True])
def test_a_new_follower_of_a_log_that_starts_within_a_batch_takes_the_whole_batch(
    tmp_path: Path, *, durable: bool
) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2), isr=(1,), durable=durable)
    cluster.elect(1, isr=(1,))
    for value in (b"a", b"b"):
        cluster[1].produce(value, acks=1, count=10)
    cluster[1].partition.flushed(cluster[1].log.flush())
    cluster.now_ms += LAG_MS + 1
    cluster[1].partition.advance()
    cluster[1].log.advance_log_start_offset(5)
    for _ in range(6):
        cluster.fetch(2, 1)
        cluster[2].partition.flushed(cluster[2].log.flush())
        following = cluster[2].following
        assert following is not None
        following.again(KEY)
    assert cluster[2].failures == []
    assert_identical(cluster, 1, 2)
    assert cluster[2].log.log_start_offset == 5
    assert cluster[1].partition.leader is not None
    assert cluster[1].partition.leader.followers[2].log_end_offset == 20


def test_a_follower_cut_where_its_leaders_log_starts_within_a_batch_goes_on(tmp_path: Path) -> None:
    """The follower's batches ended elsewhere: the leader's first, which holds the log start, reaches below the
    follower's end.
    """
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    for _ in range(4):
        cluster[1].produce(b"lost", acks=1)
    cluster.elect(2, isr=(2,))
    cluster[2].produce(b"a", acks=1, count=3)
    cluster[2].produce(b"b", acks=1, count=3)
    cluster.now_ms += LAG_MS + 1
    cluster[2].partition.advance()
    cluster[2].partition.record_deletion.trim(2)
    cluster.sync(2, 1)
    assert cluster[1].failures == []
    assert_identical(cluster, 2, 1)
    assert (cluster[1].log.log_start_offset, cluster[1].log.log_end_offset) == (2, 6)


def test_what_diverged_below_the_leaders_log_start_does_not_stay(tmp_path: Path) -> None:
    """The leader no longer knows where its epoch began.

    Were the follower's log start lost, its own records would show.
    """
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    for _ in range(6):
        cluster[1].produce(b"lost", acks=1)
    cluster.elect(2, isr=(2,))
    for value in (b"a", b"b", b"c", b"d"):
        cluster[2].produce(value, acks=1)
    cluster.now_ms += LAG_MS + 1
    cluster[2].partition.advance()
    cluster[2].partition.record_deletion.trim(3)
    cluster.sync(2, 1)
    cluster[1].crash()
    cluster[1].hear()
    cluster.sync(2, 1)
    assert cluster[1].values() == [b"d"]


def test_deleting_records_waits_for_live_followers_only(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    for value in (b"a", b"b", b"c", b"d"):
        cluster[1].produce(value)
    cluster.sync(1, 2, 3)
    partition = cluster[1].partition
    assert partition.record_deletion.low_watermark() == 0
    cluster[1].produce(b"e")
    for refused in (5, -2):
        with pytest.raises(KafkaError) as caught:
            partition.record_deletion.trim(refused)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    outcomes: list[tuple[int, ErrorCode]] = []

    def wait(offset: int | None) -> None:
        reached = partition.record_deletion.trim(offset)
        partition.record_deletion.on_low_watermark(reached, lambda code: outcomes.append((reached, code)))

    wait(2)
    wait(None)
    assert (cluster[1].log.log_start_offset, outcomes) == (4, [])
    cluster.sync(1, 2)
    assert cluster[2].log.log_start_offset == 4
    assert outcomes == [], "broker 3 has not followed"
    cluster.brokers[3].fenced = True
    partition.advance()
    assert outcomes == [(2, ErrorCode.NONE), (4, ErrorCode.NONE)]
    cluster.brokers[3].fenced = False
    outcomes.clear()
    wait(1)
    assert outcomes == [], "broker 3 is back and holds them still"
    cluster.sync(1, 3)
    assert outcomes == [(1, ErrorCode.NONE)]
    cluster.sync(1, 2, 3)
    assert partition.record_deletion.low_watermark() == 4
    cluster[1].produce(b"f")
    cluster.sync(1, 2, 3)
    outcomes.clear()
    wait(5)
    cluster.elect(2)
    assert outcomes == [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    cluster.sync(2, 1, 3)
    assert [cluster[broker].log.log_start_offset for broker in (1, 2, 3)] == [5, 4, 4], "as it was answered"
    with pytest.raises(KafkaError):
        partition.record_deletion.trim(5)


def test_a_follower_that_trimmed_by_itself_says_so_when_asked_to(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    for value in (b"a", b"b", b"c"):
        cluster[1].produce(value)
    cluster.sync(1, 2, 3)
    cluster[2].log.advance_log_start_offset(2)  # Its own retention.
    outcomes: list[ErrorCode] = []
    partition = cluster[1].partition
    partition.record_deletion.on_low_watermark(partition.record_deletion.trim(2), outcomes.append)
    cluster.sync(1, 2, 3)
    assert outcomes == [ErrorCode.NONE]


def test_flush_messages_one_counts_only_flushed_records(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2), durable=True)
    cluster.elect(1)
    cluster.sync(1, 2)
    leader, follower = cluster[1], cluster[2]
    sent = leader.produce(b"a")
    for answer in leader.serve(follower.ask()):
        follower.take(answer)
    assert follower.values() == [b"a"]
    ask = follower.ask()
    assert list(ask.positions) == [], "an unflushed record is not acknowledged"
    follower.take(leader.serve(ask)[0])
    follower.partition.flushed(follower.log.flush())
    follower.following.again((follower.partition.topic_id, 0))
    follower.take(leader.serve(follower.ask())[0])
    assert sent.outcome is None, "nor does the leader count itself"
    leader.partition.flushed(leader.log.flush())
    assert sent.outcome is ErrorCode.NONE


def test_followers_go_on_behind_a_gap_with_which_their_leaders_log_ends(tmp_path: Path) -> None:
    """A copy of another cluster leaves out the offsets that its source has dropped.

    Until a record follows the gap, followers learn of it only from the leader; if the mirror is promoted first, no
    record comes without them.
    """
    cluster = ReplicasByHand(tmp_path, min_in_sync=2)
    cluster.elect(1)
    leader = cluster[1]
    leader.produce(b"a", acks=1)
    cluster.sync(1, 2, 3)
    leader.partition.go_on_at(5)
    cluster.elect(1, isr=(1,))
    cluster.sync(1, 2)
    cluster.fetch(3, 1)
    assert [node.log.log_end_offset for node in cluster.nodes.values()] == [5, 5, 5]
    assert [
        (proposal.leader_epoch, sorted(member for member, _ in proposal.isr)) for proposal in leader.proposals
    ][:1] == [(2, [1, 2])]
    cluster[2].crash()
    assert (cluster[2].log.log_start_offset, cluster[2].log.log_end_offset) == (0, 5)
    cluster.elect(1, isr=(1, 2, 3))
    sent = leader.produce(b"b")
    cluster.sync(1, 2, 3)
    assert (sent.offset, sent.outcome) == (5, ErrorCode.NONE)
    assert leader.values() == [b"a", b"b"]
    assert_identical(cluster, 1, 2, 3)


def test_one_gap_may_follow_another(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    leader = cluster[1]
    leader.produce(b"a", acks=1)
    cluster.sync(1, 2, 3)
    for offset, followers in ((2, [2]), (5, [2, 3])):  # broker 3 does not hear of the first
        leader.partition.go_on_at(offset)
        cluster.elect(1)
        cluster.sync(1, *followers)
    for follower in (2, 3):
        node = cluster[follower]
        assert (node.log.log_end_offset, node.partition.high_watermark) == (5, 5)
        assert cluster[1].serve(node.ask(), wait=True) == [], "it has nothing left to hear"


def test_a_follower_does_not_skip_what_it_lacks_before_a_gap(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    leader = cluster[1]
    leader.produce(b"a", acks=1)
    cluster.sync(1, 2)
    leader.produce(b"b", acks=1)
    leader.partition.go_on_at(5)
    cluster.elect(1, isr=(1,))
    cluster.sync(1, 2)
    assert cluster[2].log.log_end_offset == 5
    held = [cluster[broker].log.read(0, 1 << 20, 5, at_least_one=True).read() for broker in (1, 2)]
    assert held[0] == held[1]
    assert b"b" in held[0]
