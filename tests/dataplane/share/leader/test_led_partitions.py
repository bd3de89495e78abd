"""Share partitions at their leader: the durable state, its failures, the ends of locks, and the log."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import encode_batch
from tests.dataplane.fetching.consumers import OTHER_ID, OWN_ID
from tests.dataplane.fetching.test_read_committed import Writers

from .share_broker import (
    ACCEPT,
    GROUP,
    ID,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    Member,
    ShareBroker,
    acquired,
    outcome,
    row,
    until,
)

AVAILABLE, ACKNOWLEDGED, ARCHIVED = DurableState
FENCED = pytest.mark.parametrize(
    "error", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH], ids=lambda error: error.name
)


# ---------------------------------------------------------------- start offsets


@pytest.mark.parametrize(("reset", "start"), [("earliest", 0), ("latest", 3), ("by_duration:PT1H", 2)])
async def test_a_group_begins_where_its_setting_says(
    broker: ShareBroker, reset: str, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker.set(share__auto__offset__reset=reset)
    for age_ms in (7_200_000, 7_200_000, 60_000):
        batch = encode_batch([(None, b"v", wall_ms() - age_ms)])
        broker.replica().append(memoryview(bytearray(batch)), required_acks=1)
    member = Member(broker)
    member.send(max_wait_ms=20_000)
    await until(lambda: broker.partitions and broker.led().share is not None, "a loaded share partition")
    broker.write(1)
    assert acquired(await member.answered()) == ([(start, 2, 1)] if start < 3 else [(3, 3, 1)])
    assert broker.persister.state().start_offset == start, "a later leader begins there, too"
    assert f"begins at offset {start} (share.auto.offset.reset={reset})" in caplog.text


async def test_a_new_leader_goes_on_from_the_durable_state(broker: ShareBroker) -> None:
    broker.write(1, batches=6)
    state = broker.persister.state()
    state.start_offset = 1
    state.states = {2: (ACKNOWLEDGED, 0), 3: (AVAILABLE, 2), 4: (ARCHIVED, 0)}
    assert await Member(broker).take() == [(1, 1, 1), (3, 3, 3), (5, 5, 1)]


async def test_a_read_that_fails_for_a_while_is_repeated(broker: ShareBroker) -> None:
    broker.write(1)
    broker.persister.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
    assert await Member(broker).take() == [(0, 0, 1)]
    assert broker.persister.reads >= 2


async def test_a_read_that_is_refused_is_reported_to_the_fetch(broker: ShareBroker) -> None:
    broker.write(1)
    broker.persister.refusals = [ErrorCode.GROUP_ID_NOT_FOUND]
    member = Member(broker)
    response = await member.fetch(max_wait_ms=20_000)
    assert row(response).error_code == ErrorCode.UNKNOWN_SERVER_ERROR, "an error that stock clients know"
    assert acquired(await member.fetch(max_wait_ms=20_000)) == [(0, 0, 1)]


# ---------------------------------------------------------------- writes


async def test_acknowledgements_are_answered_once_they_are_durable(broker: ShareBroker) -> None:
    broker.write(1, batches=4)
    member, other = Member(broker), Member(broker, "n")
    await member.take(max_records=2)
    await other.take(max_records=2)
    broker.persister.hold()
    first = asyncio.create_task(member.acknowledge((0, 1, [ACCEPT])))
    await until(lambda: broker.persister.held, "a write")
    second = asyncio.create_task(other.acknowledge((2, 2, [ACCEPT]), (3, 3, [RELEASE])))
    await asyncio.sleep(0.02)
    assert not first.done()
    assert not second.done()
    broker.persister.go_on()
    assert outcome(await first).error_code == outcome(await second).error_code == 0
    assert broker.persister.writes[-2:] == [
        (2, (StateBatch(0, 1, ACKNOWLEDGED),)),
        (2, (StateBatch(2, 2, ACKNOWLEDGED), StateBatch(3, 3, AVAILABLE, 1))),
    ]


async def test_changes_that_come_during_a_write_leave_together(broker: ShareBroker) -> None:
    broker.write(1, batches=6)
    members = [Member(broker, str(number)) for number in range(6)]
    for member in members:
        await member.take(max_records=1)
    before = len(broker.persister.writes)
    broker.persister.hold()
    tasks = [
        asyncio.create_task(member.acknowledge((number, number, [ACCEPT])))
        for number, member in enumerate(members)
    ]
    await until(lambda: broker.persister.held, "a write")
    broker.persister.go_on()
    for task in tasks:
        assert outcome(await task).error_code == 0
    assert len(broker.persister.writes) - before <= 2
    share = broker.led().share
    assert share is not None
    assert (share.start_offset, share.unfinished_count) == (6, 0)


async def test_a_refused_write_leaves_the_records_with_their_member(broker: ShareBroker) -> None:
    broker.write(2)
    member = Member(broker)
    await member.take()
    broker.persister.refusals = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    refused = await member.acknowledge((0, 1, [ACCEPT]))
    assert outcome(refused).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert outcome(await member.acknowledge((0, 1, [ACCEPT]))).error_code == 0
    assert broker.persister.state().start_offset == 2


async def test_a_write_whose_answer_is_lost_is_repeated(broker: ShareBroker) -> None:
    broker.write(2)
    member = Member(broker)
    await member.take()
    broker.persister.lost = [ErrorCode.REQUEST_TIMED_OUT]
    refused = await member.acknowledge((0, 1, [ACCEPT]))
    assert outcome(refused).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert outcome(await member.acknowledge((0, 1, [RELEASE]))).error_code == 0
    assert broker.persister.writes[-1] == (0, (StateBatch(0, 1, AVAILABLE, 1),))
    assert acquired(await member.fetch()) == [(0, 1, 2)]


@FENCED
async def test_a_fenced_share_partition_is_read_anew(broker: ShareBroker, error: ErrorCode) -> None:
    broker.write(4)
    member, waiting = Member(broker), Member(broker, "n")
    await member.take()
    waiting.send(max_wait_ms=20_000)
    broker.persister.refusals = [error]
    refused = await member.acknowledge((0, 1, [ACCEPT]))
    assert outcome(refused).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome(refused).current_leader.leader_id == OWN_ID
    assert row(await waiting.answered()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.persister.state().start_offset = 2
    broker.persister.state().state_epoch = 9
    assert await member.take() == [(2, 3, 1)]
    assert outcome(await member.acknowledge((2, 3, [ACCEPT]))).error_code == 0


@pytest.mark.parametrize(("types", "complete"), [([ACCEPT], 2), ([REJECT], 2), ([RELEASE], 0)])
async def test_the_state_counts_the_finished_records(
    broker: ShareBroker, types: list[int], complete: int
) -> None:
    broker.write(1, batches=4)
    member = Member(broker)
    await member.take()
    await member.acknowledge((2, 3, types))
    assert broker.persister.state().delivery_complete == complete
    await member.acknowledge((0, 0, [ACCEPT]))
    assert (broker.persister.state().start_offset, broker.persister.state().delivery_complete) == (
        1,
        complete,
    )


# ---------------------------------------------------------------- locks


async def test_a_lock_ends_and_others_get_the_record(broker: ShareBroker) -> None:
    broker.set(share__record__lock__duration__ms=50)
    broker.write(2)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 1, 1)]
    assert await other.take() == [(0, 1, 2)]
    late = await member.acknowledge((0, 1, [ACCEPT]))
    assert outcome(late).error_code == ErrorCode.INVALID_RECORD_STATE
    assert broker.partitions.counters.lock_ends >= 2
    assert broker.persister.state().states[0] == (AVAILABLE, 1)


async def test_a_lock_whose_end_cannot_be_written_ends_later(broker: ShareBroker) -> None:
    broker.set(share__record__lock__duration__ms=30)
    broker.write(1)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 0, 1)]
    broker.persister.refusals = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert await other.take() == [(0, 0, 2)]
    assert not broker.persister.refusals
    assert broker.partitions.counters.failed_writes == 2


@pytest.mark.parametrize("is_closed", [True, False], ids=["a request", "the connection"])
async def test_the_records_of_an_ended_session_are_released_though_a_coordinator_fails(
    broker: ShareBroker, is_closed: bool
) -> None:
    broker.set(share__record__lock__duration__ms=60_000)
    broker.write(2)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 1, 1)]
    broker.persister.refusals = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT]
    if is_closed:
        member.epoch = -1
        assert (await member.acknowledge()).error_code == 0
    else:
        member.wire.close()
    assert await other.take() == [(0, 1, 2)]
    assert broker.partitions.counters.failed_writes == 2


async def test_a_session_ends_while_the_write_of_its_acknowledgement_fails(broker: ShareBroker) -> None:
    broker.set(share__record__lock__duration__ms=60_000)
    broker.write(2)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 1, 1)]
    broker.persister.hold()
    acknowledged = asyncio.create_task(member.acknowledge((0, 1, [ACCEPT])))
    await until(lambda: broker.persister.held, "a write")
    member.wire.close()
    broker.persister.refusals = [ErrorCode.REQUEST_TIMED_OUT]
    broker.persister.go_on()
    assert await other.take() == [(0, 1, 2)]
    acknowledged.cancel()


async def test_at_the_limit_of_deliveries_a_record_is_archived(broker: ShareBroker) -> None:
    broker.set(share__delivery__count__limit=2)
    broker.write(1)
    member = Member(broker)
    for count in (1, 2):
        assert await member.take() == [(0, 0, count)]
        await member.acknowledge((0, 0, [RELEASE]))
    assert broker.persister.state().states[0][0] is ARCHIVED
    broker.write(1)
    assert await member.take() == [(1, 1, 1)]


async def test_before_its_last_delivery_a_record_is_delivered_alone(broker: ShareBroker) -> None:
    broker.set(share__delivery__count__limit=3)
    broker.write(1, batches=3)
    member = Member(broker)
    for count in (1, 2):
        assert await member.take(max_records=1) == [(0, 0, count)]
        await member.acknowledge((0, 0, [RELEASE]))
    assert await member.take() == [(0, 0, 3)]
    assert await member.take() == [(1, 2, 1)], "the next fetch is not throttled"


async def test_a_lock_is_renewed(broker: ShareBroker) -> None:
    broker.set(share__record__lock__duration__ms=200)
    broker.write(1)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 0, 1)]
    other.send(max_wait_ms=20_000)
    for _ in range(6):
        await asyncio.sleep(0.08)
        answer = await member.acknowledge((0, 0, [RENEW]), is_renew_ack=True)
        assert outcome(answer).error_code == 0
    assert not other.wire.answers
    assert acquired(await other.answered()) == [(0, 0, 2)]


async def test_a_fetch_renews_locks_and_takes_nothing(broker: ShareBroker) -> None:
    broker.write(1)
    member = Member(broker)
    assert await member.take() == [(0, 0, 1)]
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    response = await member.fetch([(0, 0, [RENEW])], is_renew_ack=True, **nothing)
    assert row(response).acknowledge_error_code == 0
    broker.write(1)
    for name in nothing:
        fields = nothing | {name: 1}
        refused = await member.fetch([(0, 0, [RENEW])], is_renew_ack=True, **fields)
        assert refused.error_code == ErrorCode.INVALID_REQUEST, name
        member.epoch -= 1
    assert (await member.fetch()).error_code == 0, "a refused request does not advance the session"


async def test_renewals_are_refused_where_the_group_forbids_them(broker: ShareBroker) -> None:
    broker.set(share__renew__acknowledge__enable="false")
    broker.write(1)
    member = Member(broker)
    await member.take()
    refused = await member.acknowledge((0, 0, [RENEW]), is_renew_ack=True)
    assert outcome(refused).error_code == ErrorCode.INVALID_RECORD_STATE
    undeclared = await member.acknowledge((0, 0, [RENEW]))
    assert outcome(undeclared).error_code == ErrorCode.INVALID_REQUEST
    assert outcome(await member.acknowledge((0, 0, [ACCEPT]))).error_code == 0


async def test_a_full_window_is_reported_once(broker: ShareBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.set(share__partition__max__record__locks=2)
    broker.write(1, batches=4)
    member, other = Member(broker), Member(broker, "n")
    await member.take()
    for _ in range(3):
        assert acquired(await other.fetch(max_wait_ms=10)) == []
    warnings = [record.message for record in caplog.records if "max.record.locks" in record.message]
    assert len(warnings) == 1
    assert "2 records from offset 0" in warnings[0]
    assert warnings[0].endswith("Member m holds the most")


# ---------------------------------------------------------------- the log


async def test_records_below_the_log_start_are_passed(broker: ShareBroker) -> None:
    broker.write(1, batches=6)
    member = Member(broker)
    assert await member.take(max_records=1) == [(0, 0, 1)]
    broker.replica().log.advance_log_start_offset(4)
    assert await member.take() == [(4, 5, 1)]
    assert outcome(await member.acknowledge((4, 5, [ACCEPT]))).error_code == 0
    assert broker.persister.state().start_offset == 6


async def test_the_next_write_carries_a_start_that_the_log_has_moved(broker: ShareBroker) -> None:
    broker.write(1, batches=6)
    member = Member(broker)
    await member.take()
    broker.replica().log.advance_log_start_offset(3)
    assert outcome(await member.acknowledge((5, 5, [ACCEPT]))).error_code == 0
    state = broker.persister.state()
    assert (state.start_offset, state.delivery_complete) == (3, 1)


async def test_uncommitted_records_of_transactions_are_delivered_without_markers(broker: ShareBroker) -> None:
    writers = Writers(broker.replica())
    writers.write(7, b"a", b"b")
    writers.end(7, commit=False)
    writers.write(8, b"c")
    member = Member(broker)
    response = await member.fetch(max_wait_ms=20_000)
    assert acquired(response) == [(0, 1, 1), (3, 3, 1)]
    await member.acknowledge((0, 1, [ACCEPT]), (3, 3, [ACCEPT]))
    assert broker.persister.state().start_offset == 4


async def test_a_read_committed_group_gets_no_aborted_records(broker: ShareBroker) -> None:
    broker.set(share__isolation__level="read_committed")
    writers = Writers(broker.replica())
    writers.write(7, b"aborted", b"aborted")
    writers.write(8, b"committed")
    writers.end(7, commit=False)
    member = Member(broker)
    member.send(max_wait_ms=20_000)
    await until(lambda: broker.partitions and broker.led().share is not None, "a loaded share partition")
    assert not member.wire.answers, "the transaction of producer 8 is open"
    writers.end(8, commit=True)
    assert acquired(await member.answered()) == [(2, 2, 1)]
    await member.acknowledge((2, 2, [ACCEPT]))
    writers.write(9, b"aborted")
    writers.end(9, commit=False)
    writers.write(-1, b"plain")
    assert await member.take() == [(7, 7, 1)]


async def test_many_aborted_batches_are_passed_in_turns(broker: ShareBroker) -> None:
    broker.set(share__isolation__level="read_committed")
    writers = Writers(broker.replica())
    for _ in range(30):
        writers.write(7, b"x" * 1000)
        writers.end(7, commit=False)
    writers.write(-1, b"plain")
    assert await Member(broker).take(max_bytes=2000) == [(60, 60, 1)]


# ---------------------------------------------------------------- leaders


async def test_a_new_leader_is_named(broker: ShareBroker) -> None:
    broker.write(2)
    member = Member(broker)
    assert await member.take() == [(0, 1, 1)]
    member.send(max_wait_ms=20_000)
    await until(lambda: broker.led().waiting_count, "a waiting fetch")
    broker.tell(broker.state(ID, 0, leader=OTHER_ID, epoch=1))
    response = await member.answered()
    assert row(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row(response).current_leader.leader_id, row(response).current_leader.leader_epoch) == (
        OTHER_ID,
        1,
    )
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [OTHER_ID]
    refused = await member.acknowledge((0, 1, [ACCEPT]))
    assert outcome(refused).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome(refused).current_leader.leader_id == OTHER_ID
    assert [endpoint.node_id for endpoint in refused.node_endpoints] == [OTHER_ID]
    assert len(broker.partitions) == 0


async def test_a_new_leader_epoch_frees_the_locks_and_reads_the_state_anew(broker: ShareBroker) -> None:
    broker.write(2)
    member = Member(broker)
    assert await member.take() == [(0, 1, 1)]
    await member.acknowledge((0, 0, [RELEASE]))
    assert acquired(await member.fetch(max_wait_ms=20_000)) == [(0, 0, 2)]
    broker.tell(broker.state(ID, 0, epoch=3))
    other = Member(broker, "n")
    assert await other.take() == [(0, 0, 2), (1, 1, 1)], "a lost lock keeps the durable count"
    assert broker.persister.state().leader_epoch == 3
    late = await member.acknowledge((1, 1, [ACCEPT]))
    assert outcome(late).error_code == ErrorCode.INVALID_RECORD_STATE


async def test_a_topic_made_anew_has_a_fresh_state(broker: ShareBroker) -> None:
    broker.write(2)
    member = Member(broker)
    await member.take()
    await member.acknowledge((0, 1, [ACCEPT]))
    broker.delete(ID)
    assert row(await member.fetch()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert len(broker.partitions) == 0
    broker.create(TOPIC, b"n" * 16, 1)
    broker.write(1)
    other = Member(broker, "n")
    assert await other.take(topic_id=b"n" * 16) == [(0, 0, 1)]


async def test_an_unused_share_partition_is_dropped(broker: ShareBroker) -> None:
    broker.write(2)
    member = Member(broker)
    await member.take()
    member.epoch = -1
    await member.acknowledge((0, 0, [ACCEPT]))
    await until(lambda: len(broker.partitions) == 0, "no share partition")
    assert broker.partitions.budget.total == 0
    assert await Member(broker, "n").take() == [(1, 1, 2)]
    assert broker.persister.reads == 2


async def test_groups_are_apart(broker: ShareBroker) -> None:
    broker.set("h", share__auto__offset__reset="earliest")
    broker.write(2)
    one, other = Member(broker, group=GROUP), Member(broker, group="h")
    assert await one.take() == await other.take() == [(0, 1, 1)]


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
async def test_a_jump_of_the_wall_clock_moves_no_lock_and_no_delay(broker: ShareBroker, jump_ms: int) -> None:
    broker.set(share__record__lock__duration__ms=20_000)
    broker.write(3)
    member = Member(broker)
    assert await member.take() == [(0, 2, 1)]
    await member.acknowledge((1, 1, [RELEASE], 20_000))
    share = broker.led().share
    assert share is not None
    due_ms = share.next_expiry_ms()
    broker.wall_jump_ms = jump_ms
    await member.acknowledge((2, 2, [RELEASE]))
    assert acquired(await Member(broker, "other").fetch()) == [(2, 2, 2)], "offsets 0 and 1 wait"
    assert share.next_expiry_ms() == due_ms
    assert share.acquired_count == 2
    assert outcome(await member.acknowledge((0, 0, [ACCEPT]))).error_code == 0
    # The durable state has the time of day, which a new leader reads with its own clock.
    broker.tell(broker.state(ID, 0, epoch=1, leader=OWN_ID))
    late = Member(broker, "late")
    if jump_ms > 0:
        assert await late.take() == [(1, 2, 2)], "a clock that was set forwards ends the delay"
    else:
        assert await late.take() == [(2, 2, 2)]
        found = broker.led().share
        assert found is not None
        assert (found.next_expiry_ms() or 0) <= broker.replicas.monotonic_ms() + 7 * 24 * 3_600_000
