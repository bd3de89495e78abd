"""The transactional batches that belong to the open transaction, by a broker's knowledge (rule T2)."""

from __future__ import annotations

import pytest

from ottla.dataplane.log.producers.producer_state import ProducerEntry
from ottla.dataplane.transactions.batch_check import BatchCheck, is_behind, judge
from ottla.protocol.cluster.transaction_table import Phase, TransactionTable
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.transaction_records import (
    TransactionRecord,
    TransactionSettledRecord,
    TransactionWriterRecord,
    WriterPartitions,
)

PLACE = (b"t" * 16, 0)
HERE = [WriterPartitions(topic_id=PLACE[0], partitions=[0])]


def table(phase: Phase = Phase.ONGOING, *, epoch: int = 3, number: int = 5) -> TransactionTable:
    """Return a table in which producer 9 writes to `PLACE` under epoch 3 in transaction 5."""
    made = TransactionTable()
    state = TransactionRecord(
        transactional_id="x",
        producer_id=9,
        producer_epoch=3,
        number=number,
        phase=Phase.ONGOING,
        replaces=True,
    )
    made.apply(state)
    made.apply(TransactionWriterRecord(transactional_id="x", producer_id=9, producer_epoch=3, topics=HERE))
    if phase is not Phase.ONGOING:
        state.replaces, state.phase, state.producer_epoch, state.commit_index = (
            False,
            Phase.PREPARE_ABORT,
            epoch,
            0,
        )
        made.apply(state)
    if phase is Phase.COMPLETE_ABORT:
        made.apply(TransactionSettledRecord(transactional_id="x", producer_id=9, topics=HERE, completes=True))
    made.check()
    return made


def entry(epoch: int, marker: int = -1) -> ProducerEntry:
    known = ProducerEntry(9, epoch, 0)
    known.marker_number = marker
    return known


def verdict(
    known: TransactionTable, epoch: int = 3, log: ProducerEntry | None = None, place=PLACE
) -> BatchCheck:
    return judge(known, place, 9, epoch, log)


def test_a_batch_of_the_open_transaction_is_accepted() -> None:
    assert verdict(table()) is BatchCheck.ACCEPT
    assert verdict(table(), log=entry(3)) is BatchCheck.ACCEPT
    assert verdict(table(), log=entry(3, marker=4)) is BatchCheck.ACCEPT


def test_what_may_become_known_is_waited_for() -> None:
    assert verdict(TransactionTable()) is BatchCheck.WAIT
    assert verdict(table(), place=(PLACE[0], 1)) is BatchCheck.WAIT
    assert verdict(table(), epoch=4) is BatchCheck.WAIT
    assert verdict(table(Phase.PREPARE_ABORT)) is BatchCheck.WAIT, "the next one may follow at once"
    assert verdict(table(Phase.COMPLETE_ABORT)) is BatchCheck.WAIT


def test_an_image_that_is_behind_the_log_accepts_nothing() -> None:
    """The log has the marker already: after it the batch would be in no transaction."""
    assert verdict(table(), log=entry(3, marker=5)) is BatchCheck.WAIT
    assert verdict(table(), log=entry(3, marker=6)) is BatchCheck.WAIT


@pytest.mark.parametrize(
    ("known", "epoch", "log"),
    [
        (table(), 2, None),
        (table(), 3, entry(4)),
        (TransactionTable(), 3, entry(4)),
        (table(Phase.PREPARE_ABORT, epoch=4), 3, None),
    ],
)
def test_a_fenced_producer_is_told(known: TransactionTable, epoch: int, log: ProducerEntry | None) -> None:
    with pytest.raises(KafkaError) as refused:
        judge(known, PLACE, 9, epoch, log)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("number", "marker", "behind"),
    [(5, -1, False), (5, 4, False), (5, 5, True), (5, 6, True), (1, 2**31 - 1, False), (2**31 - 1, 1, True)],
)
def test_numbers_start_over(number: int, marker: int, *, behind: bool) -> None:
    assert is_behind(number, entry(0, marker)) is behind
    assert not is_behind(number, None)
