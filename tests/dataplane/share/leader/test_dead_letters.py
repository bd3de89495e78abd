"""Dead letters at the leader of a partition: a record ends with its letter, and waits for it as long as necessary."""

from __future__ import annotations

import logging

import pytest

from ottla.dataplane.coordinated_log.transactional_producer import TransactionalProducer
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import NewRecord, encode_batch
from tests.dataplane.fetching.consumers import OWN_ID

from .share_broker import ACCEPT, ID, REJECT, RELEASE, Member, ShareBroker, acquired, outcome, until

LETTERS = {"errors__deadletterqueue__topic__name": "dlq.t"}
COPIES = LETTERS | {"errors__deadletterqueue__copy__record__enable": "true"}
ARCHIVED = DurableState.ARCHIVED


def offsets(letters: list[NewRecord]) -> list[int]:
    """Return the offsets that the headers of letters name."""
    return [int(dict(letter[3])["__dlq.errors.offset"] or b"") for letter in letters if len(letter) == 4]


async def written(broker: ShareBroker, count: int) -> None:
    await until(
        lambda: len(broker.office.letters) >= count and broker.led().letters.is_idle, f"{count} letters"
    )


def append(broker: ShareBroker, count: int, value: bytes = b"v") -> None:
    batch = bytearray(encode_batch([(None, value, 1, [("own", b"1")])] * count))
    broker.replica().append(memoryview(batch), required_acks=1)


async def rejecting(broker: ShareBroker, count: int = 1, **settings: object) -> Member:
    """Return a member that has taken records and rejected the first."""
    broker.set(**(settings or LETTERS))
    append(broker, count)
    member = Member(broker)
    assert await member.take() == [(0, count - 1, 1)]
    assert outcome(await member.acknowledge((0, 0, [REJECT]))).error_code == 0
    return member


async def test_a_rejected_record_ends_with_its_letter(broker: ShareBroker) -> None:
    await rejecting(broker, 3, **COPIES)
    await written(broker, 1)
    ((key, value, _, headers),) = broker.office.letters  # type: ignore[misc]
    assert (key, value) == (None, b"v")
    assert headers[0] == ("own", b"1")
    assert dict(headers)["__dlq.errors.message"] == b"Offset rejected by client."
    assert broker.persister.state().states == {0: (ARCHIVED, 0)}
    await until(lambda: broker.persister.state().start_offset == 1, "the start offset moves")
    assert broker.partitions.counters.letters == 1


async def test_a_record_ends_with_its_letter_at_the_limit_of_deliveries(broker: ShareBroker) -> None:
    broker.set(**LETTERS, share__delivery__count__limit=2)
    broker.write(1)
    member = Member(broker)
    await member.take()
    await member.acknowledge((0, 0, [RELEASE]))
    assert await member.take() == [(0, 0, 2)]
    await member.acknowledge((0, 0, [RELEASE]))
    await written(broker, 1)
    (letter,) = broker.office.letters
    assert len(letter) == 4
    told = dict(letter[3])
    assert letter[:2] == (None, None)
    assert told["__dlq.errors.delivery.count"] == b"2"
    assert told["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


async def test_a_record_waits_while_its_letter_cannot_be_written(
    broker: ShareBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    broker.office.topics.clear()
    member = await rejecting(broker, 2)
    await until(lambda: broker.partitions.counters.failed_letters, "an attempt")
    assert broker.persister.state().states == {}
    await until(lambda: broker.partitions.counters.failed_letters >= 2, "two attempts")
    assert broker.persister.state().states == {}
    assert broker.led().letters.waiting == 1
    await member.acknowledge((1, 1, [ACCEPT]))
    assert acquired(await member.fetch()) == [], "the record is not delivered again"
    assert caplog.text.count("1 records wait for their dead letters") == 1, "one line for one reason"
    broker.office.topics.add("dlq.t")
    broker.office.refusals += [KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "below min ISR")] * 2
    await written(broker, 1)
    assert offsets(broker.office.letters) == [0]
    await until(lambda: broker.persister.state().start_offset == 2, "the start offset moves")
    assert broker.led().letters.waiting == 0


async def test_a_share_partition_with_letters_stays_when_its_last_session_ends(broker: ShareBroker) -> None:
    broker.office.topics.clear()
    member = await rejecting(broker)
    await until(lambda: broker.partitions.counters.failed_letters, "an attempt")
    member.epoch = -1
    await member.fetch()
    broker.office.topics.add("dlq.t")
    await until(lambda: not len(broker.partitions), "nobody needs the share partition")
    assert offsets(broker.office.letters) == [0]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_an_unknown_outcome_is_read_from_the_durable_state(
    broker: ShareBroker, is_committed: bool
) -> None:
    broker.office.unknown.append(is_committed)
    await rejecting(broker)
    await until(lambda: not broker.office.unknown and not len(broker.partitions), "the state is dropped")
    again = Member(broker, "other")
    if is_committed:
        broker.write(1)
        assert await again.take() == [(1, 1, 1)]
    else:
        assert await again.take() == [(0, 0, 1)]
        await again.acknowledge((0, 0, [REJECT]))
        await written(broker, 1)
    assert offsets(broker.office.letters) == [0], "one letter"


async def test_a_new_leader_delivers_a_record_again_whose_letter_was_not_written(broker: ShareBroker) -> None:
    broker.office.topics.clear()
    await rejecting(broker)
    await until(lambda: broker.partitions.counters.failed_letters, "an attempt")
    broker.tell(broker.state(ID, 0, epoch=1, leader=OWN_ID))
    assert not len(broker.partitions)
    broker.office.topics.add("dlq.t")
    again = Member(broker, "other")
    assert await again.take() == [(0, 0, 1)]
    await again.acknowledge((0, 0, [ACCEPT]))
    assert broker.office.letters == []


async def test_a_new_leader_ends_the_transaction_of_the_former(broker: ShareBroker) -> None:
    broker.set(**LETTERS)
    broker.write(3)
    state, letters = broker.persister.state(), TransactionalProducer("letters", 7, 3)
    state.start_offset = 0
    state.open[letters[1:]] = [StateBatch(1, 1, ARCHIVED)]
    member = Member(broker)
    assert await member.take() == [(0, 0, 1), (2, 2, 1)], "the record is neither delivered nor dropped"
    assert broker.office.settled == 1
    broker.persister.end(letters, committed=False)
    assert await member.take() == [(1, 1, 2)]


async def test_without_the_setting_waiting_records_end_without_letters(broker: ShareBroker) -> None:
    broker.office.topics.clear()
    await rejecting(broker)
    await until(lambda: broker.partitions.counters.failed_letters, "an attempt")
    broker.set(errors__deadletterqueue__topic__name="")
    await until(lambda: broker.persister.state().states == {0: (ARCHIVED, 0)}, "the record is archived")
    assert broker.office.letters == []


async def test_level_1_writes_no_letters(broker: ShareBroker) -> None:
    broker.share_version = 1
    await rejecting(broker)
    assert broker.persister.state().states == {0: (ARCHIVED, 0)}
    assert broker.office.attempts == 0


async def test_many_records_take_several_transactions_in_order(broker: ShareBroker) -> None:
    broker.set(**COPIES)
    broker.office.bytes_max = 4_000
    for _ in range(5):
        append(broker, 20, b"x" * 100)
    member = Member(broker)
    assert await member.take() == [(0, 99, 1)]
    await member.acknowledge((0, 99, [REJECT]))
    await written(broker, 100)
    assert offsets(broker.office.letters) == list(range(100))
    assert {letter[1] for letter in broker.office.letters} == {b"x" * 100}
    await until(lambda: broker.persister.state().start_offset == 100, "the start offset moves")


async def test_a_deleted_record_needs_no_letter(broker: ShareBroker) -> None:
    broker.office.topics.clear()
    await rejecting(broker, 3)
    await until(lambda: broker.partitions.counters.failed_letters, "an attempt")
    broker.replica().log.advance_log_start_offset(1)
    await until(lambda: broker.led().letters.is_idle, "no record waits")
    assert broker.office.letters == []
