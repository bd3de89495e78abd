"""Outcomes of the transactions that have written into a stretch of a partition, derived from its batches. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, Literal, NamedTuple

from ...protocol.records.record import NO_COMMIT_INDEX, ControlType, read_control_record
from ...protocol.records.record_batch import BatchHeader

Decision = Literal["open", "committed", "aborted"]
OPEN: Final = "open"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"


class TransactionOutcome(NamedTuple):
    """The outcome of a transaction's records from `first_offset` to before `next_offset`.

    `commit_index` is its place in the order of all decisions of the cluster; -1 while the transaction is open, and in
    clusters other than Ottla.
    """

    first_offset: int
    next_offset: int
    decision: Decision
    commit_index: int


class StretchOutcomes:
    """The outcomes of the transactions in one stretch (a range of offsets of a partition): `add` its batches in order,
    until it `is_settled` or the log ends."""

    def __init__(self, begin: int, end: int) -> None:
        self._end = end
        self.position = begin
        """The offset at which the next batch begins."""
        self._open: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """First and next offsets of batches without a marker so far, by producer id."""
        self._found: list[TransactionOutcome] = []

    @property
    def is_settled(self) -> bool:
        """True once the stretch was read to its end, and each of its transactions has its commit or abort marker."""
        return self.position >= self._end and not self._open

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Read the next batch. Raises KafkaError: CORRUPT_MESSAGE for a marker that cannot be read."""
        self.position = header.next_offset
        if header.is_control:
            self._ended(header.producer_id, batch)
        elif header.is_transactional and header.base_offset < self._end:
            self._open[header.producer_id].append((header.base_offset, header.next_offset))

    def known(self, *, is_at_end: bool) -> list[TransactionOutcome]:
        """Return the known outcomes, in the order of offsets.

        A transaction without a marker is open if the log ends here (`is_at_end`), and is otherwise left out.
        """
        still = [
            TransactionOutcome(first, after, OPEN, NO_COMMIT_INDEX)
            for written in (self._open.values() if is_at_end else ())
            for first, after in written
        ]
        return sorted(self._found + still)

    def _ended(self, producer_id: int, batch: memoryview) -> None:
        marker = read_control_record(batch)
        if marker is None or producer_id not in self._open:
            return
        decision: Decision = COMMITTED if marker.type is ControlType.COMMIT else ABORTED
        self._found += [
            TransactionOutcome(first, after, decision, marker.commit_index)
            for first, after in self._open.pop(producer_id)
        ]
