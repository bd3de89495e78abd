"""Record batches of a coordinator's log: batches to append, and markers of transactions in batches that it reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...protocol.records.record import ControlType, encode_batch, read_control_record
from ...protocol.records.record_batch import BatchHeader

KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record; the value of a tombstone is None."""


class BatchWriter(NamedTuple):
    """The producer in whose transaction a batch is written."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The marker of a producer's transaction, which commits or drops all that the producer has pending below
    `end_offset`."""

    producer_id: int
    committed: bool
    end_offset: int


def batch_of(records: Iterable[KeyValue], now_ms: int) -> bytearray:
    """Return one uncompressed record batch of these keys and values, ready to append; `now_ms` is their timestamp."""
    return bytearray(encode_batch([(key, value, now_ms) for key, value in records]))


def transactional_batch_of(records: Iterable[KeyValue], writer: BatchWriter, now_ms: int) -> bytearray:
    """Return one uncompressed record batch of a writer's transaction.

    The batch has no sequence number, since the writer did not send it.
    """
    return bytearray(
        encode_batch(
            [(key, value, now_ms) for key, value in records],
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            transactional=True,
        )
    )


def read_transaction_end(batch: memoryview, header: BatchHeader) -> TransactionEnd | None:
    """Return the end of a transaction that a control batch has; None for other control batches."""
    marker = read_control_record(batch)
    if marker is None:
        return None
    return TransactionEnd(header.producer_id, marker.type is ControlType.COMMIT, header.next_offset)
