"""Judges whether a transactional batch belongs to the open transaction of its producer, as far as this broker knows.

Pure. Callers must judge in the same turn of the event loop as they append. Otherwise the transaction could end between
the two, and the batch would lie after the marker, in no transaction (rule T2).
"""

from __future__ import annotations

from enum import Enum

from ...protocol.cluster.transaction_table import Phase, Place, TransactionTable
from ...protocol.errors import ErrorCode, KafkaError
from ..log.producers.producer_state import NO_NUMBER, ProducerEntry

_NUMBERS = 2**31


class TransactionGone(KafkaError):
    """The error for a producer whose epoch is old because its transaction was aborted, by a timeout for example.

    No other producer has replaced it. After an abort it may go on under the next epoch (KIP-588).
    """

    error_code = ErrorCode.INVALID_PRODUCER_EPOCH

    def __init__(self, message: str) -> None:
        super().__init__(self.error_code, message)


class BatchCheck(Enum):
    """The decision about a transactional batch: it is accepted, or waits until this broker knows more. A refused batch
    is an error instead."""

    ACCEPT = "it is part of the open transaction"
    WAIT = "what this broker knows may be behind: it is asked again when more is known"


def judge(
    table: TransactionTable, place: Place, producer_id: int, epoch: int, entry: ProducerEntry | None
) -> BatchCheck:
    """Decide whether a producer's batch belongs to its open transaction in the partition. `entry` is the producer's
    state in the partition's log.

    Raises KafkaError INVALID_PRODUCER_EPOCH if the producer has been fenced, and TransactionGone if its transaction was
    aborted. Later metadata does not change either judgement.
    """
    known = table.by_producer.get(producer_id)
    if known is not None and known.may_recover(producer_id, epoch):
        raise TransactionGone(
            f"the transaction of producer {producer_id}, epoch {epoch}, was aborted: its timeout was over, or somebody "
            "else had it aborted"
        )
    if entry is not None and epoch < entry.producer_epoch:
        raise _fenced(producer_id, epoch, entry.producer_epoch)
    found = table.writer(producer_id)
    if found is None:
        return BatchCheck.WAIT
    transaction, writer = found
    if epoch < writer.producer_epoch:
        raise _fenced(producer_id, epoch, writer.producer_epoch)
    if transaction.phase is not Phase.ONGOING:
        if epoch < transaction.marker_epoch(writer):
            raise _fenced(producer_id, epoch, transaction.marker_epoch(writer))
        return BatchCheck.WAIT
    belongs = epoch == writer.producer_epoch and place in writer.outstanding
    if belongs and not is_behind(transaction.number, entry):
        return BatchCheck.ACCEPT
    return BatchCheck.WAIT


def is_behind(number: int, entry: ProducerEntry | None) -> bool:
    """Return whether the log has the marker of the transaction with this number, or of a later transaction.

    Numbers start over after 2^31 - 1.
    """
    if entry is None or entry.marker_number == NO_NUMBER:
        return False
    return not 0 < (number - entry.marker_number) % _NUMBERS < _NUMBERS // 2


def _fenced(producer_id: int, epoch: int, current: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has been fenced: it sent epoch {epoch}, {current} is the present one",
    )
