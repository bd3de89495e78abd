"""Record batches of a coordinator's log: batches to append, and markers of transactions in batches that it reads."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ...protocol.errors import KafkaError
from ...protocol.records.record import (
    ControlType,
    Record,
    decode_records,
    encode_batch,
    read_control_record,
)
from ...protocol.records.record_batch import BatchHeader, walk_batches

Stored = TypeVar("Stored")

KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record; the value of a tombstone is None."""
_EXPANDED_BYTES_MAX: Final = 64 << 20
"""The maximum decompressed size of a batch, which is read in one turn of the event loop.

Brokers write such batches uncompressed and of 1 MiB. A batch that a mirror copies is as its source wrote it.
"""

logger = logging.getLogger(__name__)


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


def read_stored(
    data: memoryview, subject: str, read: Callable[[Record, BatchHeader], Stored | None]
) -> Iterator[tuple[int, Stored | TransactionEnd]]:
    """Yield the records of whole batches, and the ends of transactions, in order, each with the offset of its batch.

    `read` returns the meaning of a record, and None for a record with an unknown key version. `subject` names the
    records in the log. Damaged records and batches are skipped. Otherwise one of them would keep all others of the
    partition from being served.
    """
    for start, header in walk_batches(data):
        batch = data[start : start + header.size]
        try:
            if header.is_control:
                end = read_transaction_end(batch, header)
                if end is not None:
                    yield header.base_offset, end
                continue
            records = list(decode_records(batch, _EXPANDED_BYTES_MAX))
        except KafkaError as error:
            logger.error(
                "passing over the batch of %s at offset %d: %s", subject, header.base_offset, error.message
            )
            continue
        for record in records:
            try:
                found = read(record, header)
            except (ValueError, struct.error) as error:
                logger.error(
                    "passing over a record of %s behind offset %d: %s", subject, header.base_offset, error
                )
                continue
            if found is not None:
                yield header.base_offset, found
