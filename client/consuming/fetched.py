"""The records of one partition in one fetch response, decoded as they are taken. Pure.

The caller never gets control records. With read_committed, records of aborted transactions are left out: the response
lists each aborted transaction with its first offset, and the abort marker in the data is its end (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import unpack_from

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record import Columns, RecordCursor, decode_records, expanded_body
from ...protocol.records.record_batch import HEADER_SIZE, BatchHeader, check_integrity, walk_batches
from ..failures import UnreadableRecords
from ..records import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, TopicPartition

_ABORT = 0
BEYOND_END_MAX = 1 << 20
"""Offsets by which a batch may end behind the high watermark of its response. Some brokers read the high watermark
first, and records become visible before the batches are read."""


def consumer_records(
    partition: TopicPartition,
    header: BatchHeader,
    batch: memoryview | bytes,
    from_offset: int,
    record_type: type[ConsumerRecord] = ConsumerRecord,
) -> RecordCursor[ConsumerRecord]:
    """Return a cursor over the consumer records of a batch, from an offset on.

    Raises KafkaError, like `protocol.records.record.decode_records`.
    """
    return RecordCursor(
        expanded_body(batch, header),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        record_type,
        (partition.topic, partition.partition),
        (header.partition_leader_epoch, LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME),
        from_offset=from_offset,
        stamp_ms=header.max_timestamp if header.is_log_append_time else None,
    )


def unreadable(
    partition: TopicPartition, error: KafkaError, header: BatchHeader, way_on: str | None = None
) -> UnreadableRecords:
    """Return the exception with which reads report `error`, found in a fetched batch."""
    behind = max(header.next_offset, header.base_offset + 1)
    return UnreadableRecords(error, partition, header.base_offset, behind, way_on=way_on)


class FetchedRecords:
    """The records of one fetch response from `fetch_offset` on.

    `next_offset` follows the last record taken or skipped.
    """

    def __init__(
        self,
        partition: TopicPartition,
        batches: memoryview,
        fetch_offset: int,
        aborted: Sequence[tuple[int, int]] = (),
        *,
        check_crcs: bool = True,
        record_type: type[ConsumerRecord] = ConsumerRecord,
        high_watermark: int | None = None,
    ) -> None:
        """Keep the response's bytes; `aborted`: (producer id, first offset) of each aborted transaction, empty for
        read_uncommitted. `record_type` is the class of the records.

        A batch far behind the `high_watermark` of the response is damaged: no checksum covers its base offset.
        """
        self.next_offset = fetch_offset
        self._fetch_offset = fetch_offset
        self._partition = partition
        self._batches = batches
        self._check_crcs = check_crcs
        self._high_watermark = high_watermark
        self._upto = None if high_watermark is None else high_watermark + BEYOND_END_MAX
        self._record_type = record_type
        self._aborted = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()
        self._walk = walk_batches(batches, partial_tail=True)
        self._cursor: RecordCursor[ConsumerRecord] | None = None
        self._log_append_time = False
        self._current: BatchHeader | None = None
        """The header of the batch that is being read."""
        self.damage: UnreadableRecords | None = None
        """The damage that ends the readable part; None if there is none so far."""

    @property
    def end_offset(self) -> int:
        """The offset after the last whole batch; the fetch offset if there is no whole batch.

        Bytes after the first invalid batch do not count.
        """
        end = self.next_offset
        with suppress(KafkaError):
            for _, header in walk_batches(self._batches, partial_tail=True):
                self._check_offsets(header)
                end = max(end, header.next_offset)
        return end

    @property
    def is_log_append_time(self) -> bool:
        """True if the records taken last have the time at which the broker appended them."""
        return self._log_append_time

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return up to `count` records; fewer if the chunk ends, or a damaged batch follows.

        At a damaged batch the next call, and each further one, raises UnreadableRecords, and `next_offset` stays in
        that batch.
        """
        taken: list[ConsumerRecord] = []
        if self.damage is None:
            try:
                while len(taken) < count and (cursor := self._cursor or self._next_visible()) is not None:
                    some = cursor.take(count - len(taken))
                    if some:
                        taken += some
                        self.next_offset = some[-1].offset + 1
                    else:
                        self._pass()
            except KafkaError as error:
                self.damage = self._unreadable(error, self._current, self.next_offset)
        if self.damage is not None and not taken:
            raise self.damage
        return taken

    def skip_to(self, offset: int) -> None:
        """Skip the fetched records before `offset`, if no record was taken yet."""
        if self._cursor is None:
            self.next_offset = max(self.next_offset, offset)

    def take_into(self, columns: Columns, count: int) -> int:
        """Append up to `count` records of one batch to `columns`, and return their number; 0 at the end.

        Rows before a damaged batch are returned first. At the damaged batch each call raises UnreadableRecords, as
        `take` does.
        """
        if self.damage is not None:
            raise self.damage
        try:
            while (cursor := self._cursor or self._next_visible()) is not None:
                if taken := cursor.take_into(columns, count):
                    self.next_offset = columns.last_offset + 1
                    return taken
                self._pass()
        except KafkaError as error:
            self.damage = self._unreadable(error, self._current, self.next_offset)
            raise self.damage from error
        return 0

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the whole batches as fetched, including markers and aborted ones, as an alternative to `take`.

        Raises UnreadableRecords for a damaged batch. The records inside the batches are not checked.
        """
        current: BatchHeader | None = None
        behind = self.next_offset
        try:
            for position, header in walk_batches(self._batches, partial_tail=True):
                if header.next_offset > self.next_offset:
                    self._check_offsets(header)
                    current = header
                    if self._check_crcs:
                        check_integrity(self._batches, position, header)
                    yield header, self._batches[position : position + header.size]
                    current, behind = None, header.next_offset
        except KafkaError as error:
            raise self._unreadable(error, current, behind) from error

    def _next_visible(self) -> RecordCursor[ConsumerRecord] | None:
        for position, header in self._walk:
            if header.next_offset <= self.next_offset:
                if header.is_control and (self._aborted or self._aborting):
                    self._hidden(header, self._batches[position : position + header.size])
                continue
            self._check_offsets(header)
            self._current = header
            if self._check_crcs:
                check_integrity(self._batches, position, header)
            batch = self._batches[position : position + header.size]
            if not self._hidden(header, batch):
                self._log_append_time = header.is_log_append_time
                self._cursor = consumer_records(
                    self._partition, header, batch, self.next_offset, self._record_type
                )
                return self._cursor
            self._pass()
        if len(self._batches) and self.next_offset == self._fetch_offset:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, "what was fetched holds no whole batch that ends behind it"
            )
        return None

    def _check_offsets(self, header: BatchHeader) -> None:
        if self._upto is not None and header.next_offset > self._upto:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"a record batch has offsets {header.base_offset} to {header.last_offset}, and the log ended at "
                f"{self._high_watermark}",
            )

    def _pass(self) -> None:
        """Move on to the next fetched batch, after the current batch was read."""
        assert self._current is not None
        self.next_offset, self._current, self._cursor = self._current.next_offset, None, None

    def _unreadable(self, error: KafkaError, header: BatchHeader | None, behind: int) -> UnreadableRecords:
        """Return the exception for a damaged batch; without a header it begins at `behind`, and its end is unknown."""
        if header is None:
            return UnreadableRecords(error, self._partition, behind, behind + 1)
        return unreadable(self._partition, error, header)

    def _hidden(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        if header.is_control:
            if _is_abort_marker(header, batch):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting


def _is_abort_marker(header: BatchHeader, batch: memoryview) -> bool:
    """Return whether a control batch holds an abort marker.

    The key of its one record is (version int16, type int16).
    """
    for record in decode_records(batch):
        key = record.key
        return key is not None and len(key) >= 4 and unpack_from(">hh", key)[1] == _ABORT
    return header.size <= HEADER_SIZE
