"""ShareFetch and ShareAcknowledge over a real log: sessions, acquisition, waiting and answers."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
)
from ottla.protocol.records.record_batch import walk_batches

from .share_broker import (
    ACCEPT,
    GAP,
    ID,
    RELEASE,
    TOPIC,
    Member,
    ShareBroker,
    acquired,
    outcome,
    row,
    until,
)


def bases(records: object) -> list[int]:
    """Return the base offsets of the batches in an answer."""
    data = bytes(records)  # type: ignore[call-overload]
    return [header.base_offset for _, header in walk_batches(data)]


async def test_a_member_takes_records_and_acknowledges_them(broker: ShareBroker) -> None:
    broker.write(3, batches=2)
    member = Member(broker)
    response = await member.fetch(max_wait_ms=20_000)
    assert acquired(response) == [(0, 5, 1)]
    assert bases(row(response).records) == [0, 3]
    assert response.acquisition_lock_timeout_ms == 30_000
    answer = await member.acknowledge((0, 5, [ACCEPT]))
    assert outcome(answer).error_code == 0
    assert answer.acquisition_lock_timeout_ms == 30_000
    state = broker.persister.state()
    assert (state.start_offset, state.delivery_complete) == (6, 0)


async def test_an_answer_has_the_acquired_batches_alone(broker: ShareBroker) -> None:
    broker.write(1, batches=10)
    first, second = Member(broker), Member(broker, "n")
    response = await first.fetch(max_wait_ms=20_000, max_records=4)
    assert (acquired(response), bases(row(response).records)) == ([(0, 3, 1)], [0, 1, 2, 3])
    response = await second.fetch(max_wait_ms=20_000, max_records=4)
    assert (acquired(response), bases(row(response).records)) == ([(4, 7, 1)], [4, 5, 6, 7])
    await first.acknowledge((0, 3, [RELEASE]))
    assert acquired(await second.fetch(max_records=100)) == [(0, 3, 2), (8, 9, 1)]


async def test_the_mode_decides_whether_a_batch_may_exceed_the_records(broker: ShareBroker) -> None:
    broker.write(10)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take(max_records=4, share_acquire_mode=1) == [(0, 3, 1)]
    assert await other.take(max_records=4, share_acquire_mode=0) == [(4, 9, 1)]
    response = await member.fetch(share_acquire_mode=7)
    assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_max_bytes_may_be_exceeded_by_the_first_batch_only(broker: ShareBroker) -> None:
    broker.create("u", b"u" * 16, 1)
    broker.write(1, batches=3, value=b"x" * 1000)
    member = Member(broker)
    assert await member.take(max_bytes=100) == [(0, 0, 1)]
    assert acquired(await member.fetch(max_bytes=2500)) == [(1, 2, 1)]


async def test_the_epochs_of_a_session_continue(broker: ShareBroker) -> None:
    broker.write(1)
    member = Member(broker)
    assert (await member.fetch(share_session_epoch=5)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    assert await member.take() == [(0, 0, 1)]
    member.epoch = 7
    assert (await member.fetch()).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 7
    assert (await member.acknowledge()).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 0
    assert (await member.acknowledge()).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 1
    assert outcome(await member.acknowledge((0, 0, [ACCEPT]))).error_code == 0


async def test_a_request_that_opens_a_session_has_no_acknowledgements(broker: ShareBroker) -> None:
    response = await Member(broker).fetch([(0, 0, [ACCEPT])])
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert len(broker.sessions) == 0


@pytest.mark.parametrize(
    "fields", [{"group_id": None}, {"group_id": ""}, {"member_id": None}, {"member_id": "x" * 37}]
)
async def test_a_request_names_a_group_and_a_member(broker: ShareBroker, fields: dict[str, object]) -> None:
    member = Member(broker)
    assert (await member.fetch(**fields)).error_code == ErrorCode.INVALID_REQUEST
    assert (await member.acknowledge(**fields)).error_code == ErrorCode.INVALID_REQUEST


async def test_without_the_feature_nothing_is_served(broker: ShareBroker) -> None:
    broker.share_version = 0
    member = Member(broker)
    assert (await member.fetch()).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await member.acknowledge()).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(broker.partitions) == 0


async def test_a_fetch_waits_for_records(broker: ShareBroker) -> None:
    member = Member(broker)
    member.send(max_wait_ms=20_000)
    await until(lambda: broker.fetches.waiting_count, "a waiting fetch")
    await until(lambda: broker.led().share is not None, "a loaded share partition")
    assert not member.wire.answers
    broker.write(2)
    assert acquired(await member.answered()) == [(0, 1, 1)]
    assert broker.fetches.waiting_count == 0


async def test_a_fetch_waits_for_free_locks(broker: ShareBroker) -> None:
    broker.set(share__partition__max__record__locks=2)
    broker.write(1, batches=4)
    holder, other = Member(broker), Member(broker, "n")
    assert await holder.take() == [(0, 1, 1)]
    other.send(max_wait_ms=20_000)
    await until(lambda: broker.led().waiting_count, "a waiting fetch")
    assert not other.wire.answers
    await holder.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE]))
    assert acquired(await other.answered()) == [(1, 1, 2), (2, 2, 1)]


async def test_a_fetch_ends_after_its_waiting_time(broker: ShareBroker) -> None:
    member = Member(broker)
    response = await member.fetch(max_wait_ms=50)
    assert acquired(response) == []
    assert row(response).error_code == 0, "the first answer of a session has every partition"
    assert (await member.fetch(max_wait_ms=20)).responses == []


async def test_a_fetch_waits_for_its_least_bytes(broker: ShareBroker) -> None:
    broker.write(1, value=b"x" * 500)
    member = Member(broker)
    member.send(max_wait_ms=20_000, min_bytes=1000)
    await until(lambda: broker.led().share is not None, "a loaded share partition")
    assert not member.wire.answers
    broker.write(1, value=b"x" * 500)
    assert acquired(await member.answered()) == [(0, 1, 1)]


async def test_the_next_request_of_a_session_ends_a_waiting_fetch(broker: ShareBroker) -> None:
    member = Member(broker)
    member.send(max_wait_ms=20_000)
    await until(lambda: broker.led().waiting_count, "a waiting fetch")
    member.send(max_wait_ms=20_000)
    assert acquired(await member.answered()) == []
    broker.write(1)
    assert acquired(await member.answered()) == [(0, 0, 1)]


async def test_acknowledgements_of_a_fetch_come_before_its_acquisition(broker: ShareBroker) -> None:
    broker.set(share__partition__max__record__locks=2)
    broker.write(1, batches=4)
    member = Member(broker)
    assert await member.take() == [(0, 1, 1)]
    response = await member.fetch([(0, 1, [ACCEPT])], max_wait_ms=20_000)
    assert row(response).acknowledge_error_code == 0
    assert acquired(response) == [(2, 3, 1)]


async def test_an_error_of_acknowledgements_concerns_their_partition_alone(broker: ShareBroker) -> None:
    broker.create("u", b"u" * 16, 1)
    broker.write(3)
    member = Member(broker)
    assert await member.take() == [(0, 2, 1)]
    foreign = await member.acknowledge((0, 0, [ACCEPT]), topic_id=b"u" * 16)
    assert outcome(foreign).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = await member.acknowledge((0, 0, [ACCEPT]), topic_id=b"?" * 16)
    assert outcome(unknown).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    response = await member.fetch([(0, 5, [ACCEPT])])
    assert row(response).acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert row(response).error_code == 0
    stranger = Member(broker, "n")
    await stranger.fetch()
    refused = await stranger.acknowledge((0, 0, [ACCEPT]))
    assert outcome(refused).error_code == ErrorCode.INVALID_RECORD_STATE
    assert outcome(await member.acknowledge((0, 0, [ACCEPT]), (1, 2, [GAP, RELEASE]))).error_code == 0


async def test_a_wrong_acknowledgement_spoils_no_other_partition(broker: ShareBroker) -> None:
    broker.delete(ID)
    broker.create(TOPIC, ID, 2)
    broker.write(1)
    broker.write(1, index=1)
    member = Member(broker)
    left = {0, 1}
    while left:
        response = await member.fetch(partitions=[0, 1], max_wait_ms=20_000)
        left -= {index for index in left if acquired(response, index)}
    batches = {
        index: AcknowledgementBatch(first_offset=0, last_offset=last, acknowledge_types=[ACCEPT])
        for index, last in ((0, 5), (1, 0))
    }
    named = [
        AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch])
        for index, batch in batches.items()
    ]
    answer = await member.acknowledge(topics=[AcknowledgeTopic(topic_id=ID, partitions=named)])
    assert outcome(answer, 0).error_code == ErrorCode.INVALID_REQUEST
    assert outcome(answer, 1).error_code == 0
    assert broker.persister.state(partition=1).start_offset == 1


async def test_a_closed_session_keeps_the_locks_of_a_partition_that_it_has_forgotten(
    broker: ShareBroker,
) -> None:
    broker.write(1)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 0, 1)]
    await member.fetch(forgotten=[0])
    member.epoch = -1
    await member.fetch()
    assert acquired(await other.fetch(max_wait_ms=50)) == []
    member.epoch = 0
    await member.fetch()
    assert outcome(await member.acknowledge((0, 0, [ACCEPT]))).error_code == 0


async def test_a_closed_session_releases_its_records(broker: ShareBroker) -> None:
    broker.write(3)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 2, 1)]
    await other.fetch()
    member.epoch = -1
    answer = await member.acknowledge((0, 0, [ACCEPT]))
    assert outcome(answer).error_code == 0
    assert await other.take() == [(1, 2, 2)]
    assert (await member.acknowledge()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_fetch_closes_its_session(broker: ShareBroker) -> None:
    broker.write(2)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 1, 1)]
    member.epoch = -1
    response = await member.fetch([(0, 0, [ACCEPT])])
    assert row(response).acknowledge_error_code == 0
    assert acquired(response) == []
    assert len(broker.sessions) == 0
    assert await other.take() == [(1, 1, 2)]


async def test_a_lost_connection_releases_its_records_as_delivered(broker: ShareBroker) -> None:
    broker.write(3)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 2, 1)]
    other.send(max_wait_ms=20_000)
    member.wire.close()
    assert acquired(await other.answered()) == [(0, 2, 2)]
    assert len(broker.sessions) == 1


async def test_a_lost_connection_leaves_no_waiting_fetch(broker: ShareBroker) -> None:
    member = Member(broker)
    member.send(max_wait_ms=20_000)
    await until(lambda: broker.led().waiting_count, "a waiting fetch")
    member.wire.close()
    assert broker.fetches.waiting_count == 0
    await until(lambda: len(broker.partitions) == 0, "no share partition")
    assert broker.partitions.budget.total == 0


async def test_a_forgotten_partition_keeps_its_locks(broker: ShareBroker) -> None:
    broker.write(2)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 1, 1)]
    await member.fetch(forgotten=[0])
    assert acquired(await other.fetch(max_wait_ms=50)) == []
    assert outcome(await member.acknowledge((0, 0, [RELEASE]))).error_code == 0
    assert await other.take() == [(0, 0, 2)]


async def test_sessions_are_limited(tmp_path_factory: pytest.TempPathFactory) -> None:
    broker = ShareBroker(tmp_path_factory.mktemp("few"), sessions_max=1)
    broker.create(TOPIC, ID, 1)
    await Member(broker).fetch()
    refused = await Member(broker, "n").fetch(max_wait_ms=30)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    await broker.close()


async def test_sessions_take_no_more_than_the_share_of_their_client(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    broker = ShareBroker(tmp_path_factory.mktemp("small"), bytes_max=100_000)
    broker.create(TOPIC, ID, 1)
    hostile = Member(broker, "hostile")
    refused = await hostile.fetch(partitions=range(50))
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert broker.partitions.budget.total == 0
    assert row(await Member(broker, "m").fetch()).error_code == 0
    await broker.close()
