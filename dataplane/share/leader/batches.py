"""Walks over the headers of record batches in a slice of the log. A walk finds the batches that members may acquire."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.record_batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
)
from ...log import LogSlice
from ...log.segments.aborted_transaction import AbortedTransaction

HEADERS_MAX = 2_000
"""Maximum number of batches in one walk, so that the event loop is not blocked for longer than a few milliseconds."""

_HEADER = struct.Struct(">qi9xhi16xq")
"""Layout of base offset, batch length, attributes, last offset delta and producer id."""
_CHUNK_BYTES = 8 * 1024


class ColdRecords(Exception):
    """The exception of a walk whose first header is not in the page cache, so that reading it would wait for a disk."""


class BatchWalk:
    """A walk over the batches of one slice, in the order of offsets.

    It ends early, after at least one batch, at a header that is not in the page cache or damaged. With `may_wait` it
    reads the first header in any case.
    """

    def __init__(
        self, records: LogSlice, aborted: Iterable[AbortedTransaction] = (), *, may_wait: bool = False
    ) -> None:
        self._records = records
        self._may_wait = may_wait
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for transaction in aborted:
            self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        # Last offset, and byte position of the begin and the end, of each batch for members.
        self._places: list[tuple[int, int, int]] = []
        self.left_out: list[tuple[int, int]] = []
        """First and last offset of control batches and aborted batches."""
        self.is_damaged = False
        """True if the walk has ended before a batch whose header is damaged."""

    def data_batches(self) -> Iterator[tuple[int, int]]:
        """Yield first and last offset of each batch that members may acquire.

        Before the first batch it may raise ColdRecords, or KafkaError: KAFKA_STORAGE_ERROR for a damaged header or a
        disk that refuses to read. Afterwards it only ends, since the caller has acquired records by then.
        """
        position, end = self._records.position, self._records.position + self._records.size
        held, held_at, next_offset = b"", position, 0
        for _ in range(HEADERS_MAX):
            if position + HEADER_SIZE > end:
                return
            within = position - held_at
            if within + HEADER_SIZE > len(held):
                chunk = self._chunk(position, min(_CHUNK_BYTES, end - position))
                if chunk is None:
                    return
                held, held_at, within = chunk, position, 0
            first, length, attributes, delta, producer_id = _HEADER.unpack_from(held, within)
            batch_end = position + length + LOG_OVERHEAD
            if length + LOG_OVERHEAD < HEADER_SIZE or batch_end > end or delta < 0 or first < next_offset:
                if self._places or self.left_out:
                    self.is_damaged = True
                    return
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the batch at byte {position} has {length} bytes and offsets {first} to {first + delta}, which do "
                    f"not continue offset {next_offset}",
                )
            last = first + delta
            if attributes & CONTROL_FLAG or self._is_aborted(attributes, producer_id, first):
                self.left_out.append((first, last))
            else:
                self._places.append((last, position, batch_end))
                yield first, last
            position, next_offset = batch_end, last + 1

    def _is_aborted(self, attributes: int, producer_id: int, first: int) -> bool:
        if not attributes & TRANSACTIONAL_FLAG:
            return False
        return any(
            transaction.first_offset <= first <= transaction.last_offset
            for transaction in self._aborted.get(producer_id, ())
        )

    def _chunk(self, position: int, size: int) -> bytes | None:
        """Return bytes of the file from a position on; None if they are not cached and the walk may end here."""
        may_wait, self._may_wait = self._may_wait, False
        data = bytearray(size)
        fd = self._records.fileno()
        try:
            got = os.preadv(fd, [data], position, 0 if may_wait else os.RWF_NOWAIT)
        except BlockingIOError:
            got = 0
        except OSError:
            got = self._read_waiting(data, position)
        if got >= HEADER_SIZE:
            return bytes(data[:got]) if got < size else bytes(data)
        if may_wait:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the file ends at byte {position + got}, within a batch"
            )
        if self._places or self.left_out:
            return None
        raise ColdRecords

    def _read_waiting(self, data: bytearray, position: int) -> int:
        """Read from a file system that does not support reads without waiting."""
        try:
            return os.preadv(self._records.fileno(), [data], position)
        except OSError as error:
            self._records.failed(error)
            if self._places or self.left_out:
                return 0
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the disk refuses to read: {error.strerror}"
            ) from error

    def cut(self, first: int, last: int) -> None:
        """Shorten the slice to the batches that have the offsets from `first` to `last`."""
        places = self._places
        begin = next(place[1] for place in places if place[0] >= first)
        end = next(place[2] for place in places if place[0] >= last)
        self._records.position, self._records.size = begin, end - begin
