"""Acknowledgements in transactions at the leader: records end with the transaction, or become available again."""

from __future__ import annotations

import pytest

from ottla.dataplane.coordinated_log.transactional_producer import TransactionalProducer
from ottla.dataplane.share.states import DurableState
from ottla.protocol.errors import ErrorCode
from tests.dataplane.fetching.consumers import OWN_ID

from .share_broker import (
    ACCEPT,
    GAP,
    ID,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    ShareBroker,
    acquired,
    outcome,
    until,
)

ACKNOWLEDGED, ARCHIVED, AVAILABLE = DurableState.ACKNOWLEDGED, DurableState.ARCHIVED, DurableState.AVAILABLE
WRITER = TransactionalProducer("tx", 7, 3)


async def holding(broker: ShareBroker, count: int = 3, **settings: object) -> Member:
    """Return a member that has taken records."""
    broker.set(**settings)
    broker.write(count)
    member = Member(broker)
    assert await member.take() == [(0, count - 1, 1)]
    return member


async def settled(broker: ShareBroker) -> None:
    def is_settled() -> bool:
        if not len(broker.partitions):
            return True
        led = broker.led()
        return led._transactions.is_idle and led._writes.is_empty

    await until(is_settled, "no open transaction, and no write under way")


async def test_a_commit_ends_the_acknowledged_records(broker: ShareBroker) -> None:
    member = await holding(broker, 4)
    answer = await member.acknowledge_in(WRITER, (0, 3, [ACCEPT, REJECT, GAP, RELEASE]))
    assert outcome(answer).error_code == 0
    assert broker.persister.state().states == {}, "nothing counts before the commit"
    assert acquired(await member.fetch()) == [], "nobody gets the records meanwhile"
    broker.persister.end(WRITER, committed=True)
    await settled(broker)
    assert broker.persister.state().states == {
        0: (ACKNOWLEDGED, 0), 1: (ARCHIVED, 0), 2: (ARCHIVED, 0), 3: (AVAILABLE, 1),
    }  # fmt: skip
    assert await member.take() == [(3, 3, 2)]
    assert broker.persister.state().start_offset == 3


async def test_an_abort_puts_the_records_back_with_their_count(broker: ShareBroker) -> None:
    member = await holding(broker)
    await member.acknowledge_in(WRITER, (0, 2, [ACCEPT]))
    broker.persister.end(WRITER, committed=False)
    assert await member.take() == [(0, 2, 2)]
    assert broker.persister.state().states == dict.fromkeys(range(3), (AVAILABLE, 1))


async def test_a_record_in_a_transaction_has_no_lock_that_ends(broker: ShareBroker) -> None:
    member = await holding(broker, share__record__lock__duration__ms=300)
    await member.acknowledge_in(WRITER, (0, 0, [ACCEPT]))
    other = Member(broker, "other")
    assert await other.take() == [(1, 2, 2)], "the locks of the other records end"
    member.epoch = -1
    await member.fetch()
    assert outcome(await other.acknowledge((0, 0, [ACCEPT]))).error_code == ErrorCode.INVALID_RECORD_STATE
    broker.persister.end(WRITER, committed=True)
    await until(lambda: broker.persister.state().states.get(0) == (ACKNOWLEDGED, 0), "the end")


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_new_leader_waits_for_the_end_of_the_transaction(
    broker: ShareBroker, is_committed: bool
) -> None:
    member = await holding(broker)
    await member.acknowledge_in(WRITER, (0, 1, [ACCEPT]))
    broker.tell(broker.state(ID, 0, epoch=1, leader=OWN_ID))
    again = Member(broker, "other")
    assert await again.take() == [(2, 2, 1)]
    broker.persister.end(WRITER, committed=is_committed)
    if not is_committed:
        assert await again.take() == [(0, 1, 2)]
        return
    await settled(broker)
    assert acquired(await again.fetch()) == []
    await until(lambda: broker.persister.state().start_offset == 2, "the start offset moves")


async def test_acknowledgements_of_a_fenced_producer_are_refused(broker: ShareBroker) -> None:
    member = await holding(broker)
    broker.persister.ended.add(WRITER)
    answer = await member.acknowledge_in(WRITER, (0, 2, [ACCEPT]))
    assert outcome(answer).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await Member(broker, "other").take() == [(0, 2, 2)]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_lost_answer_leaves_the_records_to_the_transaction(
    broker: ShareBroker, is_committed: bool
) -> None:
    member = await holding(broker)
    broker.persister.lost.append(ErrorCode.REQUEST_TIMED_OUT)
    answer = await member.acknowledge_in(WRITER, (0, 2, [ACCEPT]))
    assert outcome(answer).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert acquired(await member.fetch()) == [], "the acknowledgement may be part of the transaction"
    broker.persister.end(WRITER, committed=is_committed)
    if is_committed:
        await settled(broker)
        assert broker.persister.state().states[2] == (ACKNOWLEDGED, 0)
    else:
        assert await member.take() == [(0, 2, 2)]


async def test_a_write_that_never_arrives_waits_for_the_quorum(broker: ShareBroker) -> None:
    member = await holding(broker)
    broker.persister.refusals.append(ErrorCode.REQUEST_TIMED_OUT)
    await member.acknowledge_in(WRITER, (0, 2, [ACCEPT]))
    reads = broker.persister.reads
    assert acquired(await member.fetch()) == []
    # A late copy of the write may still become part of the transaction.
    broker.persister.state().open.clear()
    assert acquired(await member.fetch(max_wait_ms=200)) == []
    assert broker.persister.reads == reads, "the state does not tell yet"
    broker.persister.end(WRITER, committed=True)
    assert await member.take() == [(0, 2, 2)]


async def test_two_transactions_end_apart_from_each_other(broker: ShareBroker) -> None:
    other = TransactionalProducer("other", 8, 0)
    member = await holding(broker)
    await member.acknowledge_in(WRITER, (0, 0, [ACCEPT]))
    await member.acknowledge_in(other, (1, 1, [ACCEPT]), (2, 2, [ACCEPT]))
    broker.persister.end(other, committed=False)
    assert await member.take() == [(1, 2, 2)]
    broker.persister.end(WRITER, committed=True)
    await until(lambda: broker.persister.state().start_offset == 1, "the first record ends")


async def test_a_failed_write_of_the_end_is_repeated(broker: ShareBroker) -> None:
    member = await holding(broker)
    await member.acknowledge_in(WRITER, (0, 2, [ACCEPT]))
    broker.persister.end(WRITER, committed=False)
    broker.persister.refusals += [ErrorCode.REQUEST_TIMED_OUT] * 3
    assert await member.take() == [(0, 2, 2)]


async def test_a_group_with_letters_rejects_nothing_in_a_transaction(broker: ShareBroker) -> None:
    member = await holding(broker, errors__deadletterqueue__topic__name="dlq.t")
    answer = await member.acknowledge_in(WRITER, (0, 0, [REJECT]))
    assert outcome(answer).error_code == ErrorCode.INVALID_REQUEST
    assert outcome(await member.acknowledge((0, 0, [ACCEPT]))).error_code == 0, "the member still holds it"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"producer_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "__share_dead_letters-x"}, ErrorCode.INVALID_REQUEST),
        ({"share_session_epoch": -1}, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        ({"share_session_epoch": 0}, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        ({"share_session_epoch": 9}, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        ({"member_id": "nobody"}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_wrong_request_changes_nothing(
    broker: ShareBroker, fields: dict[str, object], error: ErrorCode
) -> None:
    member = await holding(broker)
    assert (await member.acknowledge_in(WRITER, (0, 2, [ACCEPT]), **fields)).error_code == error
    assert broker.persister.state().open == {}


async def test_only_records_that_the_member_holds_are_acknowledged(broker: ShareBroker) -> None:
    member = await holding(broker)
    await member.acknowledge_in(WRITER, (0, 0, [ACCEPT]))
    twice = await member.acknowledge_in(WRITER, (0, 0, [ACCEPT]))
    assert outcome(twice).error_code == ErrorCode.INVALID_RECORD_STATE
    renewed = await member.acknowledge_in(WRITER, (1, 1, [RENEW]))
    assert outcome(renewed).error_code == ErrorCode.INVALID_REQUEST


async def test_level_1_has_no_acknowledgements_in_transactions(broker: ShareBroker) -> None:
    member = await holding(broker)
    broker.share_version = 1
    answer = await member.acknowledge_in(WRITER, (0, 2, [ACCEPT]))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
