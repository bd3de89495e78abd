"""Which batches and records of a log stay when it is compacted (Kafka's `Cleaner.cleanInto`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ....protocol.records.record import ControlType
from ....protocol.records.record_batch import BatchHeader
from .offset_map import OffsetMap
from .transactions import TransactionFilter


class LastRecord(NamedTuple):
    """What the log's newest state of a producer rests on."""

    last_data_offset: int
    """Last offset of its newest data batch; -1 if there has been none in its epoch."""
    producer_epoch: int


class Judgement(NamedTuple):
    """What becomes of a batch; its records are asked for one by one unless it drops them all."""

    drops_records: bool
    stays_empty: bool
    """Whether the header stays where no record does."""
    marker_without_data: bool
    """A transaction marker that waits for its delete horizon only."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one round of cleaning a log."""

    now_ms: int
    delete_retention_ms: int
    ends: frozenset[int]
    """Where the new segments are to end: where the next ones begin, and the first offset that is not looked at."""
    producers: Mapping[int, LastRecord]
    """Of each producer id that the log remembers."""

    @property
    def new_horizon_ms(self) -> int:
        """When the tombstones that are met for the first time may go."""
        return self.now_ms + self.delete_retention_ms


def delete_horizon(header: BatchHeader) -> int | None:
    """When the batch's tombstones, or the marker in it, may go, in ms; None if that was not set (KIP-534)."""
    return header.base_timestamp if header.has_delete_horizon else None


class Keeper:
    """Judges the batches of one log, to be given in offset order, and their records."""

    def __init__(self, rules: Rules, offsets: OffsetMap, transactions: TransactionFilter) -> None:
        self.rules = rules
        self._offsets = offsets
        self._transactions = transactions

    def judge(self, header: BatchHeader, control: ControlType | None) -> Judgement:
        """What becomes of a batch; `control` is the type of a control batch's record, None if it is another
        type, or there is none.
        """
        marker_without_data = False
        if header.is_control:
            drops = header.record_count == 0
            if control is not None and self._transactions.discards_marker(header.producer_id):
                marker_without_data = True
                # A producer's last one tells which of its transactions was the last to end here.
                drops = self._horizon_passed(header) and not self._is_last_of_producer(header)
        else:
            drops = header.is_transactional and self._transactions.discards_data(
                header.producer_id, header.last_offset
            )
        # The last batch of a segment stays: that the next one continues it tells recovery that nothing was lost.
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
        """Whether records without a value in this batch still stay if they are the last of their key."""
        return not self._horizon_passed(header)

    def is_newest(self, key: bytes | None, offset: int) -> bool:
        """Whether no newer record of `key` is known; records without a key have no place in such a log."""
        if offset > self._offsets.latest_offset:
            return True
        return key is not None and offset >= self._offsets.get(key)
