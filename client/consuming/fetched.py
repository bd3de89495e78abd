"""What one fetch brought of one partition, decoded as it is taken. Pure.

Control records never reach the caller. With read_committed the records of aborted transactions are left out:
the answer lists each aborted transaction with its first offset, and its end is the abort marker in the data
(KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import unpack_from
from typing import NamedTuple

from ...protocol.errors import KafkaError
from ...protocol.record import decode_records
from ...protocol.record_batch import HEADER_SIZE, BatchHeader, check_integrity, walk_batches

_ABORT = 0


class TopicPartition(NamedTuple):
    """A partition by name.

        ends = await consumer.end_offsets([TopicPartition("orders", 0), TopicPartition("orders", 1)])

    As a tuple it equals `("orders", 0)`.
    """

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """One record as a consumer sees it; timestamp in ms since 1970, None bytes where there was no key or
    value.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    leader_epoch: int = -1


class FetchedRecords:
    """The records of one answer from `fetch_offset` on. `next_offset` follows the last record taken or
    skipped.
    """

    def __init__(
        self,
        partition: TopicPartition,
        batches: memoryview,
        fetch_offset: int,
        aborted: Sequence[tuple[int, int]] = (),
        *,
        check_crcs: bool = True,
    ) -> None:
        """`aborted`: (producer id, first offset) of each aborted transaction, empty for read_uncommitted."""
        self.next_offset = fetch_offset
        self._partition = partition
        self._batches = batches
        self._check_crcs = check_crcs
        self._aborted = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()
        self._records = self._visible()
        self.damage: KafkaError | None = None
        """Why the rest cannot be taken."""

    @property
    def end_offset(self) -> int:
        """The offset after the last whole batch; the fetch offset when there is none."""
        end = self.next_offset
        for _, header in walk_batches(self._batches, partial_tail=True):
            end = max(end, header.next_offset)
        return end

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to `count` records; fewer means that there are no more, or a damaged batch: asked again it raises
        KafkaError, every time, and `next_offset` stays where that batch begins.
        """
        taken: list[ConsumerRecord] = []
        if self.damage is None:
            try:
                for record in self._records:
                    taken.append(record)
                    if len(taken) >= count:
                        break
            except KafkaError as error:
                self.damage = error
        if self.damage is not None and not taken:
            raise self.damage
        return taken

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The whole batches as they were fetched, markers and aborted ones among them, instead of `take`. Raises
        KafkaError for a damaged one."""
        for position, header in walk_batches(self._batches, partial_tail=True):
            if header.next_offset > self.next_offset:
                if self._check_crcs:
                    check_integrity(self._batches, position, header)
                yield header, self._batches[position : position + header.size]

    def _visible(self) -> Iterator[ConsumerRecord]:
        topic, partition = self._partition
        for position, header in walk_batches(self._batches, partial_tail=True):
            if header.next_offset <= self.next_offset:
                continue
            if self._check_crcs:
                check_integrity(self._batches, position, header)
            batch = self._batches[position : position + header.size]
            if not self._hidden(header, batch):
                epoch = header.partition_leader_epoch
                stamp = header.max_timestamp if header.is_log_append_time else None
                for record in decode_records(batch):
                    if record.offset < self.next_offset:
                        continue
                    self.next_offset = record.offset + 1
                    timestamp_ms = record.timestamp_ms if stamp is None else stamp
                    yield ConsumerRecord(
                        topic,
                        partition,
                        record.offset,
                        timestamp_ms,
                        record.key,
                        record.value,
                        record.headers,
                        epoch,
                    )
            self.next_offset = header.next_offset

    def _hidden(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        if header.is_control:
            if _is_abort_marker(header, batch):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting


def _is_abort_marker(header: BatchHeader, batch: memoryview) -> bool:
    """Whether a control batch holds an abort marker: the key of its one record is (version int16, type
    int16).
    """
    for record in decode_records(batch):
        key = record.key
        return key is not None and len(key) >= 4 and unpack_from(">hh", key)[1] == _ABORT
    return header.size <= HEADER_SIZE
