"""The choice of batches and records that stay when a log is compacted (Kafka's `Cleaner.cleanInto`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ....protocol.records.record import ControlType
from ....protocol.records.record_batch import BatchHeader
from .offset_map import OffsetMap
from .transactions import TransactionFilter


class LastRecord(NamedTuple):
    """The position and epoch of a producer's last record in a log. Compaction keeps the batch of this record, since the
    producer's newest state depends on it."""

    last_data_offset: int
    """The last offset of its newest data batch; -1 if it wrote no data in its epoch."""
    producer_epoch: int


class Judgement(NamedTuple):
    """The decision whether compaction drops the records of a batch, and whether the batch's header stays. Unless all
    records are dropped, each record is judged separately."""

    drops_records: bool
    stays_empty: bool
    """True if the batch header stays even if no record does."""
    marker_without_data: bool
    """True for a transaction marker that only waits for its delete horizon."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The inputs of one cleaning of a log: the time, retention of tombstones, offsets where segments must end, and
    producers."""

    now_ms: int
    delete_retention_ms: int
    ends: frozenset[int]
    """The offsets where the new segments must end: the base offsets of the following segments, and the upper bound of
    the cleaned range."""
    producers: Mapping[int, LastRecord]
    """The last record of each producer id that the log remembers."""

    @property
    def new_horizon_ms(self) -> int:
        """The time, in ms, from which tombstones and markers may be removed that this cleaning is the first to meet
        (KIP-534)."""
        return self.now_ms + self.delete_retention_ms


def delete_horizon(header: BatchHeader) -> int | None:
    """Return the time, in ms, from which the batch's tombstones or marker may be removed; None if it was not set
    (KIP-534)."""
    return header.base_timestamp if header.has_delete_horizon else None


class Keeper:
    """A judge that decides which batches and records of one log stay. Batches must be given in offset order."""

    def __init__(self, rules: Rules, offsets: OffsetMap, transactions: TransactionFilter) -> None:
        self.rules = rules
        self._offsets = offsets
        self._transactions = transactions

    def judge(self, header: BatchHeader, control: ControlType | None) -> Judgement:
        """Decide whether the records and the header of a batch stay. `control` is the type of a control batch's record;
        None for another type or no record."""
        marker_without_data = False
        if header.is_control:
            drops = header.record_count == 0
            if control is not None and self._transactions.discards_marker(header.producer_id):
                marker_without_data = True
                # A producer's last marker stays: it names the producer's last transaction that ended here.
                drops = self._horizon_passed(header) and not self._is_last_of_producer(header)
        else:
            drops = header.is_transactional and self._transactions.discards_data(
                header.producer_id, header.last_offset
            )
        # The last batch of a segment stays, so that recovery sees that the next segment continues it without loss.
        stays_empty = header.next_offset in self.rules.ends or self._is_last_of_producer(header)
        return Judgement(drops, stays_empty, marker_without_data)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.rules.producers.get(header.producer_id)
        if last is None or not header.has_producer_id:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _horizon_passed(self, header: BatchHeader) -> bool:
        horizon = delete_horizon(header)
        return horizon is not None and horizon <= self.rules.now_ms

    def keeps_tombstones(self, header: BatchHeader) -> bool:
        """Return whether records without a value in this batch still stay if they are the last of their key."""
        return not self._horizon_passed(header)

    def is_newest(self, key: bytes | None, offset: int) -> bool:
        """Return whether no newer record of `key` is known. Records without a key are dropped up to the map's latest
        offset, since a compacted log must have none."""
        if offset > self._offsets.latest_offset:
            return True
        return key is not None and offset >= self._offsets.get(key)
