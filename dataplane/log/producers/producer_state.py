"""A partition's state of idempotent producers: their epochs, their last five batches, and their open or last ended
transaction.

Pure: the checks of sequences and epochs (KIP-98, KIP-360) and the state that they need. `producer_snapshot` writes the
state to disk, and `producer_loading` restores it from the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.record import NO_COMMIT_INDEX, ControlRecord
from ....protocol.records.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from ..segments.aborted_transaction import AbortedTransaction
from .open_transactions import OpenTransactions
from .refused_batches import SEQUENCE_MAX, RefusedBatches, is_behind

WINDOW: Final = 5
"""Batches remembered per producer: as many as a client may have in flight."""
NO_OFFSET: Final = -1
NO_NUMBER: Final = -1
_TRANSACTIONAL_OR_CONTROL: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG
PRODUCERS_MAX: Final = 50_000
"""The most producers of one partition that are remembered until they expire. Beyond that the longest silent ones are
forgotten."""


class ProducedBatch(NamedTuple):
    """A batch in a producer's window, which has the last five batches that the producer appended to the partition."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int
    """The time, in ms, at which the log stamped the batch or first saw it."""


class ProducerEntry:
    """The state of one producer on a partition: its epoch, its window of the last five batches, and its transaction."""

    __slots__ = (
        "batches",
        "epoch_began_here",
        "last_seen_ms",
        "marker_commit_index",
        "marker_number",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, producer_epoch: int, last_seen_ms: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_seen_ms = last_seen_ms
        self.epoch_began_here = False
        """True if this log had records of a lower epoch of the producer before. Then all its records under the present
        epoch are known."""
        self.marker_number = NO_NUMBER
        """Number of the transaction that the producer's last marker in this log ended."""
        self.marker_commit_index = NO_COMMIT_INDEX
        """Commit index of that marker."""
        self.transaction_first_offset = NO_OFFSET
        """First offset of its open transaction; `NO_OFFSET` without one."""
        # A list, since a deque has room for 64 items, and a log may have thousands of producers.
        self.batches: list[ProducedBatch] = []
        # Invariant: at most WINDOW batches, all of the entry's producer epoch, with rising offsets. Their sequences are
        # consecutive, unless compaction removed batches, or a leader that had forgotten the producer accepted a gap.

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def original_of(self, header: BatchHeader) -> ProducedBatch | None:
        """Return the batch among the producer's last five that has the same sequences as `header`; None if there is
        none. The caller has checked that the epochs are equal."""
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def has_ended(self, batch: ProducedBatch) -> bool:
        """Return whether a transactional batch of the producer's window lies before the producer's last marker.

        Every such batch belongs either to the open transaction, or to a transaction that a marker has ended.
        """
        return not NO_OFFSET < self.transaction_first_offset <= batch.first_offset

    @property
    def is_transactional(self) -> bool:
        """True if the producer has or had a transaction in this log, so that it need not have a batch with a
        sequence."""
        return self.transaction_first_offset != NO_OFFSET or self.marker_number != NO_NUMBER

    @property
    def next_sequence(self) -> int | None:
        """The sequence number of the producer's next batch under its present epoch.

        None if unknown: the log has only markers of the producer, and its earlier records under the same epoch may have
        been deleted.
        """
        if self.batches:
            return (self.last_sequence + 1) & SEQUENCE_MAX
        return 0 if self.epoch_began_here else None

    def begin_epoch(self, producer_epoch: int) -> None:
        """Set the producer's epoch to another one. Sequences begin again at 0, and the window of batches is emptied."""
        self.producer_epoch = producer_epoch
        self.epoch_began_here = True
        self.batches.clear()

    def took(self, batch: ProducedBatch) -> None:
        """Add an appended batch to the producer's window of the last five batches, and drop the oldest if the window is
        full."""
        batches = self.batches
        if len(batches) == WINDOW:
            del batches[0]
        batches.append(batch)

    def check(self, log_end_offset: int) -> None:
        """Raise AssertionError if this cannot be a producer's state in a log that ends at `log_end_offset`."""
        if len(self.batches) > WINDOW:
            raise AssertionError(f"producer {self.producer_id}: {len(self.batches)} batches are remembered")
        after = 0
        for batch in self.batches:
            sequences = (batch.last_sequence - batch.first_sequence) & SEQUENCE_MAX
            if sequences != batch.last_offset - batch.first_offset:
                raise AssertionError(
                    f"producer {self.producer_id}: {batch} has more offsets than sequences, or less"
                )
            if not after <= batch.first_offset <= batch.last_offset < log_end_offset:
                raise AssertionError(
                    f"producer {self.producer_id}: {batch} is not between {after} and the log end {log_end_offset}"
                )
            after = batch.last_offset + 1
        if self.transaction_first_offset >= log_end_offset:
            raise AssertionError(
                f"producer {self.producer_id}: its transaction begins at {self.transaction_first_offset}, "
                f"past the log end {log_end_offset}"
            )


class ProducerStates:
    """The state of all producers that have written to one partition, by producer id, and their transactions."""

    __slots__ = ("_entries", "_refused", "transactions")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.transactions = OpenTransactions()
        """The transactions of all producers. Invariant: its open transactions are those of the entries."""
        self._refused = RefusedBatches()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> Iterable[ProducerEntry]:
        return self._entries.values()

    def check(self, log_end_offset: int) -> None:
        """Raise AssertionError if this cannot be the producer state of a log that ends at `log_end_offset`."""
        for producer_id, entry in self._entries.items():
            if entry.producer_id != producer_id:
                raise AssertionError(f"producer {entry.producer_id} is filed under {producer_id}")
            entry.check(log_end_offset)
        self.transactions.check(log_end_offset)
        open_here = {
            producer_id: entry.transaction_first_offset
            for producer_id, entry in self._entries.items()
            if entry.transaction_first_offset != NO_OFFSET
        }
        if open_here != self.transactions.open:
            raise AssertionError(
                f"the producers have {open_here} open, the log has {dict(self.transactions.open)}"
            )

    def is_duplicate(self, header: BatchHeader) -> bool:
        """Return whether a batch repeats one of the last five batches of its producer, under the same epoch."""
        entry = self._entries.get(header.producer_id)
        return (
            entry is not None
            and entry.producer_epoch == header.producer_epoch
            and entry.original_of(header) is not None
        )

    def original_of(self, header: BatchHeader) -> ProducedBatch | None:
        """Return None if a batch may be appended now, or the original if it is a duplicate of a batch in the window.

        A producer that is unknown, or known only by its markers, may start with any sequence (KIP-360), unless an
        earlier batch of it was refused and will be sent again. Batches after a refused batch get its error.

        No batch is a duplicate of a batch before the producer's last marker. A client that aborts may give the sequence
        of an unanswered batch to a record of its next transaction (librdkafka does): that record is not in the log.
        UNKNOWN_PRODUCER_ID makes clients abort, and begin a new epoch (KIP-360).

        Raises KafkaError: INVALID_PRODUCER_EPOCH for an older epoch; OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, or the
        error of a batch that was refused there;
        UNKNOWN_PRODUCER_ID for a sequence of a transaction that has ended; INVALID_TXN_STATE for a batch outside the
        transaction that its producer has open here.
        """
        entry = self._entries.get(header.producer_id)
        first, epoch = header.base_sequence, header.producer_epoch
        if entry is not None and epoch == entry.producer_epoch:
            original = entry.original_of(header)
            if original is not None:
                if header.is_transactional and entry.has_ended(original):
                    raise _of_ended_transaction(header)
                return original
            batches = entry.batches
            if (
                batches
                and first == (batches[-1].last_sequence + 1) & SEQUENCE_MAX
                and (header.is_transactional or entry.transaction_first_offset == NO_OFFSET)
            ):
                return None  # The usual case: the next batch.
        elif entry is not None and epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} sent epoch {epoch}, {entry.producer_epoch} has been seen",
            )
        expected = _next_sequence(entry, epoch)
        if expected is None:
            earliest = self._refused.earliest_before(header)
            expected = first if earliest is None else earliest
        if first != expected:
            if _repeats_ended_transaction(entry, header, expected):
                raise _of_ended_transaction(header)
            raise self._out_of_order(header, expected)
        if entry is not None and entry.transaction_first_offset != NO_OFFSET and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open, and sent a batch that is in none",
            )
        return None

    def _out_of_order(self, header: BatchHeader, expected: int) -> KafkaError:
        code = self._refused.error_behind(header, expected)
        sent = f"producer {header.producer_id} with epoch {header.producer_epoch} sent sequence {header.base_sequence}"
        if code is not None:
            return KafkaError(
                code, f"{sent}, and must send sequence {expected} again, which was refused, before it"
            )
        return KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{sent}, {expected} is next")

    def will_come_again(self, header: BatchHeader, code: ErrorCode) -> None:
        """Note a batch that was refused for now with this error, and will be sent again.

        Later batches of its producer that were already on their way get the same error. If the producer's next
        sequence is unknown, they would otherwise be accepted as the first, and the batch itself refused for good.
        """
        if header.producer_id != NO_PRODUCER_ID:
            self._refused.note(header, code)

    def record(self, header: BatchHeader, first_offset: int, now_ms: int) -> None:
        """Note an appended batch; the caller has checked it, or read it from a log. `record_marker` is for markers. Of
        other control batches, and of batches that compaction emptied, only the epoch counts."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        attributes = header.attributes
        if attributes & _TRANSACTIONAL_OR_CONTROL and attributes & CONTROL_FLAG:
            self._note_epoch(header, now_ms)
            return
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._add(header, now_ms)
        elif header.producer_epoch != entry.producer_epoch:
            entry.begin_epoch(header.producer_epoch)
        entry.last_seen_ms = now_ms
        last_offset = first_offset + header.last_offset_delta
        if attributes & TRANSACTIONAL_FLAG:
            self.transactions.last_offset = last_offset
            if entry.transaction_first_offset == NO_OFFSET:
                entry.transaction_first_offset = first_offset
                self.transactions.begin(producer_id, first_offset)
            if header.base_sequence == NO_SEQUENCE:
                return  # Offsets that were committed in the transaction have no sequence.
        if self._refused.by_producer:
            self._refused.appended(header)
        timestamp = header.max_timestamp if attributes & LOG_APPEND_TIME_FLAG else now_ms
        entry.took(
            ProducedBatch(header.base_sequence, header.last_sequence, first_offset, last_offset, timestamp)
        )

    def record_marker(
        self, header: BatchHeader, marker: ControlRecord, offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Note an appended marker. Returns the entry for the index of aborted transactions if the marker aborts a
        transaction with data, or else None.

        The window stays, unless the marker raises the producer's epoch: then sequences begin at 0.
        """
        entry = self._note_epoch(header, now_ms)
        if marker.number != NO_NUMBER:
            entry.marker_number = marker.number
            entry.marker_commit_index = marker.commit_index
        entry.transaction_first_offset = NO_OFFSET
        return self.transactions.end(header.producer_id, marker, offset)

    def _note_epoch(self, header: BatchHeader, now_ms: int) -> ProducerEntry:
        """Note the producer's epoch in a control batch, which never lowers it, and return the producer's entry."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._add(header, now_ms)
        elif header.producer_epoch > entry.producer_epoch:
            entry.begin_epoch(header.producer_epoch)
        entry.last_seen_ms = now_ms
        return entry

    def _add(self, header: BatchHeader, now_ms: int) -> ProducerEntry:
        producer_id = header.producer_id
        if len(self._entries) >= PRODUCERS_MAX:
            self._forget_idle()
        entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch, now_ms)
        return entry

    def _forget_idle(self) -> None:
        """Forget a tenth of the maximum number of producers, as if they had expired: the longest silent of those that
        were never in a transaction."""
        idle = [
            entry
            for entry in self._entries.values()
            if entry.transaction_first_offset == NO_OFFSET and entry.marker_number == NO_NUMBER
        ]
        idle.sort(key=lambda entry: entry.last_seen_ms)
        for entry in idle[: PRODUCERS_MAX // 10]:
            del self._entries[entry.producer_id]

    def load(self, entry: ProducerEntry) -> None:
        """Add an entry from a snapshot; the open transactions are loaded separately."""
        self._entries[entry.producer_id] = entry

    def forget_from(self, offset: int) -> bool:
        """Undo the batches at or after `offset`. Returns False if the log must be read to restore the earlier state.

        This is so if a producer's whole window was cut off, or a part of a transaction, or a marker.
        """
        if offset <= self.transactions.last_offset:
            return False
        complete = True
        for entry in self._entries.values():
            batches = entry.batches
            if not batches:
                complete &= entry.is_transactional
                continue
            while batches and batches[-1].last_offset >= offset:
                batches.pop()
            if not batches:
                complete = False
        return complete

    def forget_copied(self, below: int) -> None:
        """Forget the producers of another cluster, whose records are below this offset, as the log is a copy up to
        there.

        Their producer ids are unrelated to those of this cluster. Producers with an open transaction, or with later
        records, stay. A producer of this cluster may have the id of a foreign one. Only its own batches stay then,
        since otherwise one of its new batches would count as a duplicate.
        """
        foreign = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_first_offset == NO_OFFSET
            and (
                entry.batches[-1].last_offset < below
                if entry.batches
                else entry.marker_commit_index == NO_COMMIT_INDEX
            )
        ]
        for producer_id in foreign:
            del self._entries[producer_id]
        for entry in self._entries.values():
            while entry.batches and entry.batches[0].last_offset < below:
                del entry.batches[0]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers silent for `expiration_ms` that have no open transaction. Returns their number."""
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_first_offset == NO_OFFSET and now_ms - entry.last_seen_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._entries.clear()
        self._refused.clear()
        self.transactions.clear()


def _next_sequence(entry: ProducerEntry | None, epoch: int) -> int | None:
    """Return the sequence of a producer's next batch under this epoch; None if any sequence may be next."""
    if entry is None:
        return None
    return entry.next_sequence if epoch == entry.producer_epoch else 0


def _repeats_ended_transaction(entry: ProducerEntry | None, header: BatchHeader, expected: int) -> bool:
    """Return whether the first batch of a transaction begins with a sequence that an earlier transaction has used."""
    if entry is None or not entry.batches or header.producer_epoch != entry.producer_epoch:
        return False
    begins = header.is_transactional and entry.transaction_first_offset == NO_OFFSET
    return begins and is_behind(expected, header.base_sequence)


def _of_ended_transaction(header: BatchHeader) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {header.producer_id} with epoch {header.producer_epoch} sent sequence {header.base_sequence} again, "
        "which it used in a transaction that has ended: abort, and go on with a new epoch",
    )
