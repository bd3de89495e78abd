"""The states of the share-partitions of one `__share_group_state` partition, on the broker that leads the partition.

A change takes effect as soon as the log has its record, so that the next change is checked against it. Answers wait for
the high watermark: no reader gets a state that another leader of the log might not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.find_coordinator import SharePartition
from ....protocol.messages.share_state_records import UNCHANGED_START, UNKNOWN_COUNT
from ....protocol.records.record_batch import NO_PRODUCER_ID
from ...coordinated_log.batches import BatchWriter, KeyValue, TransactionEnd, batch_of, transactional_batch_of
from ...coordinated_log.log import COORDINATOR_ERRORS, CoordinatedLog
from ...coordinated_log.transactional_producer import TransactionalProducer
from .pending_updates import PendingUpdate, PendingUpdates
from .records import (
    StateSnapshot,
    StateUpdate,
    StoredRecord,
    read_records,
    snapshot_record,
    update_record,
)
from .settings import StateLimits
from .stored_state import (
    NO_STATE,
    Change,
    Delete,
    Initialize,
    PendingState,
    Read,
    ShareState,
    StoredShareState,
    Summarize,
    Update,
    Write,
    check_change,
    initialized,
)

_BATCH_BYTES = 512 * 1024
"""Maximum batch size, half of what the log takes by default. A larger record gets a separate batch."""
_RECORD_OVERHEAD_BYTES = 24
_RESNAPSHOTS_AT_ONCE = 1_000

Outcome = StoredShareState | KafkaError
"""Result of a change: the state after it, or the error. A deleted state is `NO_STATE`."""


class StateLog(CoordinatedLog, Protocol):
    """The interface of a `__share_group_state` partition: a coordinator's log whose first records can be removed."""

    @property
    def start_offset(self) -> int:
        """The first offset that is not removed."""

    def trim(self, offset: int) -> None:
        """Remove the records below an offset, which is at most the high watermark. Raises KafkaError."""


@dataclass(slots=True)
class _Entry:
    """A share-partition's state, and the place of its records in the log."""

    state: ShareState
    snapshot_epoch: int
    created_ms: int
    snapshot_at: int
    """Offset of the batch with the last snapshot."""
    end_offset: int
    """Next offset after the last record."""
    updates: int = 0
    """Number of updates since the snapshot."""


class _Written(NamedTuple):
    """A record to append, and its effect on the entries, which gets the offset of the batch and the next offset."""

    key: SharePartition
    record: KeyValue
    apply: Callable[[int, int], None]
    outcome: asyncio.Future[Outcome]
    result: Callable[[], StoredShareState]


class StateShard:
    """The states of one `__share_group_state` partition. Every change of memory follows an append to the log."""

    def __init__(
        self,
        log: StateLog,
        limits: StateLimits,
        wall_ms: Callable[[], int],
        exists: Callable[[bytes, int], bool],
    ) -> None:
        """Create a shard that is not loaded. `exists` returns whether a topic id has a partition of this index."""
        self._log, self._limits, self._wall_ms, self._exists = log, limits, wall_ms, exists
        self._entries: dict[SharePartition, _Entry] = {}
        self._pending = PendingUpdates()
        # Transactions that have ended while the log was replayed.
        self._ended: list[TransactionEnd] = []
        self._waiting: set[_Waiting] = set()
        self.loaded = False
        self.closed = False

    # ------------------------------------------------------------ life

    async def load(self) -> None:
        """Rebuild the states from the log. Until then every request gets COORDINATOR_LOAD_IN_PROGRESS."""
        self._entries, self._pending = {}, PendingUpdates()
        # These markers are in the log, too.
        self._ended.clear()
        async for data in self._log.read_all():
            if self.closed:
                return
            for position, record in read_records(data):
                self._replay(position, record)
        if self.closed:
            return
        self.loaded = True
        ended, self._ended = self._ended, []
        for end in ended:
            self.transaction_ended(end.producer_id, end.end_offset, committed=end.committed)

    def _replay(self, position: int, record: StoredRecord) -> None:
        if isinstance(record, TransactionEnd):
            self._end_transaction(record)
            return
        if isinstance(record, StateSnapshot):
            self._put_snapshot(record, position, position + 1)
            return
        entry = self._entries.get(record.key)
        if entry is None:
            # As Kafka: the log may have lost the snapshot of a state, but not its latest changes.
            state = ShareState(NO_STATE)
            entry = self._entries[record.key] = _Entry(state, record.epoch, 0, position, position)
        if record.producer_id == NO_PRODUCER_ID:
            self._put_update(entry, record.update, position + 1)
        else:
            changed = PendingState(record.producer_id, record.producer_epoch, record.update.batches)
            self._pending.add(PendingUpdate(record.key, changed, position))

    def close(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR, as another broker leads the partition."""
        self.closed = True
        for waiting in list(self._waiting):
            waiting.tell(ErrorCode.NOT_COORDINATOR)
        self._entries = {}

    @property
    def states(self) -> Mapping[SharePartition, StoredShareState]:
        """The states as of the log's end, by share-partition."""
        return {key: entry.state.stored for key, entry in self._entries.items()}

    # ------------------------------------------------------------ changes

    def perform(self, changes: Sequence[tuple[SharePartition, Change]]) -> list[asyncio.Future[Outcome]]:
        """Make changes, in order. Each result is known once the high watermark has passed the state that it is about.

        The errors are those of the checks, and COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR if the outcome of a write
        is not known in time.
        """
        loop = asyncio.get_running_loop()
        outcomes: list[asyncio.Future[Outcome]] = []
        due: dict[SharePartition, _Written] = {}
        for key, change in changes:
            outcome: asyncio.Future[Outcome] = loop.create_future()
            outcomes.append(outcome)
            if key in due:
                # The next change of a state is checked against the state after the previous change.
                self._append(due.values())
                due = {}
            try:
                check_change(key.partition, change)
                written = self._prepared(key, change, outcome)
            except KafkaError as error:
                outcome.set_result(error)
                continue
            if written is not None:
                due[key] = written
        self._append(due.values())
        return outcomes

    def _prepared(
        self, key: SharePartition, change: Change, outcome: asyncio.Future[Outcome]
    ) -> _Written | None:
        """Return the record that a change needs; None if the outcome depends on earlier records alone."""
        entry = self._entries.get(key)
        update: Update | None = None
        match change:
            case Initialize():
                stored = initialized(None if entry is None else entry.state, change)
                self._check_exists(key)
                return self._snapshot(key, stored, outcome)
            case Delete():
                self._check_exists(key)
                if entry is None:
                    outcome.set_result(NO_STATE)
                    return None
                return self._tombstone(key, outcome)
            case Summarize():
                self._check_exists(key)
                if entry is None:
                    outcome.set_result(NO_STATE)
                    return None
            case Read():
                entry = self._known(key, entry)
                entry.state.check_read(change)
                self._check_exists(key)
                return self._read(key, entry, change, outcome)
            case Write():
                entry = self._known(key, entry)
                entry.state.check_write(change)
                self._check_exists(key)
                update = entry.state.written(change)
        if update is None:
            self._wait(entry.end_offset, [(outcome, entry.state.stored)])
            return None
        return self._updated(key, entry, update, outcome)

    def _read(
        self, key: SharePartition, entry: _Entry, read: Read, outcome: asyncio.Future[Outcome]
    ) -> _Written | None:
        """Return the record that fences older leaders; None if the leader is known already."""
        update = entry.state.read_by(read)
        if update is None:
            self._wait(entry.end_offset, [(outcome, self._readable(key, entry))])
            return None
        written = self._updated(key, entry, update, outcome)
        return written._replace(result=lambda: self._readable(key, self._entries[key]))

    def _known(self, key: SharePartition, entry: _Entry | None) -> _Entry:
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"share-partition {key.key} is not initialized")
        return entry

    def _check_exists(self, key: SharePartition) -> None:
        if not self._exists(key.topic_id, key.partition):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the partition of {key.key} does not exist"
            )

    def _updated(
        self, key: SharePartition, entry: _Entry, update: Update, outcome: asyncio.Future[Outcome]
    ) -> _Written:
        # A replay takes the snapshot for the whole state. So none is written while a marker may be in the log whose
        # effect is not yet in memory.
        if entry.updates >= self._limits.updates_per_snapshot and not self._pending.has(key):
            state = ShareState(entry.state.stored)
            state.apply(update)
            return self._snapshot(key, state.stored, outcome)
        record = update_record(StateUpdate(key, entry.snapshot_epoch, update))
        return _Written(
            key,
            record,
            lambda _position, end: self._put_update(entry, update, end),
            outcome,
            lambda: entry.state.stored,
        )

    def _snapshot(
        self, key: SharePartition, stored: StoredShareState, outcome: asyncio.Future[Outcome]
    ) -> _Written:
        entry, now_ms = self._entries.get(key), self._wall_ms()
        epoch, created_ms = (0, now_ms) if entry is None else (entry.snapshot_epoch + 1, entry.created_ms)
        snapshot = StateSnapshot(key, stored, epoch, created_ms, now_ms)
        return _Written(
            key,
            snapshot_record(snapshot),
            lambda position, end: self._put_snapshot(snapshot, position, end),
            outcome,
            lambda: stored,
        )

    def _tombstone(self, key: SharePartition, outcome: asyncio.Future[Outcome]) -> _Written:
        tombstone = StateSnapshot(key, None)
        return _Written(
            key,
            snapshot_record(tombstone),
            lambda position, end: self._put_snapshot(tombstone, position, end),
            outcome,
            lambda: NO_STATE,
        )

    def _put_snapshot(self, snapshot: StateSnapshot, position: int, end: int) -> None:
        self._pending.drop(snapshot.key)
        if snapshot.stored is None:
            self._entries.pop(snapshot.key, None)
            return
        self._entries[snapshot.key] = _Entry(
            ShareState(snapshot.stored), snapshot.epoch, snapshot.created_ms, position, end
        )

    def _put_update(self, entry: _Entry, update: Update, end: int) -> None:
        entry.state.apply(update)
        entry.updates += 1
        entry.end_offset = end

    # ------------------------------------------------------------ transactions

    def write_in_transaction(
        self,
        key: SharePartition,
        write: Write,
        writer: TransactionalProducer,
        outcome: asyncio.Future[Outcome],
    ) -> None:
        """Append a change that takes effect once the writer's transaction commits.

        The caller checks in the same turn of the event loop that the transaction is open here. `outcome` gets the state
        without the change once the change is below the high watermark, or the error. Raises KafkaError, and appends
        nothing.
        """
        check_change(key.partition, write)
        entry = self._known(key, self._entries.get(key))
        entry.state.check_write(write)
        self._check_exists(key)
        update = Update(write.leader_epoch, UNCHANGED_START, UNKNOWN_COUNT, write.batches)
        record = update_record(StateUpdate(key, entry.snapshot_epoch, update))
        batch = transactional_batch_of(
            [record], BatchWriter(writer.producer_id, writer.producer_epoch), self._wall_ms()
        )
        position = self._log.end_offset
        try:
            end = self._log.append_transactional(batch)
        except KafkaError as error:
            raise KafkaError(COORDINATOR_ERRORS.get(error.code, error.code), error.message) from error
        state = PendingState(writer.producer_id, writer.producer_epoch, write.batches)
        self._pending.add(PendingUpdate(key, state, position))
        self._wait(end, [(outcome, entry.state.stored)])

    def transaction_ended(self, producer_id: int, end_offset: int, *, committed: bool) -> None:
        """Apply a marker that is below the high watermark: the last record below `end_offset`."""
        if self.closed:
            return
        end = TransactionEnd(producer_id, committed, end_offset)
        if self.loaded:
            self._end_transaction(end)
        else:
            self._ended.append(end)

    def _end_transaction(self, end: TransactionEnd) -> None:
        for update in self._pending.end(end.producer_id, end.end_offset):
            entry = self._entries.get(update.key)
            if end.committed and entry is not None:
                entry.state.apply_committed(update.state.batches)
                entry.end_offset = max(entry.end_offset, end.end_offset)

    def _readable(self, key: SharePartition, entry: _Entry) -> StoredShareState:
        """Return the state for a leader, with the changes in transactions that have not ended."""
        return entry.state.stored._replace(pending=self._pending.of(key))

    # ------------------------------------------------------------ the log

    def _append(self, due: Iterable[_Written]) -> None:
        for piece in _pieces(due):
            position = self._log.end_offset
            waiting = self._new_waiting()
            self._log.append(batch_of((written.record for written in piece), self._wall_ms()), waiting.tell)
            if waiting.error not in (None, ErrorCode.NONE):
                waiting.answer((written.outcome, NO_STATE) for written in piece)
                continue
            end = self._log.end_offset
            for written in piece:
                written.apply(position, end)
            waiting.answer((written.outcome, written.result()) for written in piece)

    def _wait(self, end: int, outcomes: Sequence[tuple[asyncio.Future[Outcome], StoredShareState]]) -> None:
        waiting = self._new_waiting()
        waiting.answer(outcomes)
        self._log.on_high_watermark(end, waiting.tell)

    def _new_waiting(self) -> _Waiting:
        waiting = _Waiting(self._limits.write_timeout_s, self._waiting.discard)
        self._waiting.add(waiting)
        return waiting

    # ------------------------------------------------------------ upkeep

    def forget_removed(self) -> None:
        """Delete the states of partitions that exist no more. If the log refuses that, the next call repeats it."""
        gone = [key for key in self._entries if not self._exists(key.topic_id, key.partition)]
        loop = asyncio.get_running_loop()
        self._append([self._tombstone(key, loop.create_future()) for key in gone])

    def prune(self) -> None:
        """Remove the records below all last snapshots, as Kafka does.

        A share-partition without changes holds the log's start back. If the log has many more records than states, the
        share-partitions whose snapshots are in its older half get new ones.
        """
        self.forget_removed()
        lowest = min((entry.snapshot_at for entry in self._entries.values()), default=self._log.end_offset)
        self._log.on_high_watermark(lowest, lambda error: self._trim(lowest, error))
        end = self._log.end_offset
        if end - lowest <= self._limits.idle_records_max + 2 * len(self._entries):
            return
        middle = lowest + (end - lowest) // 2
        old = [
            key
            for key, entry in self._entries.items()
            if entry.snapshot_at < middle and not self._pending.has(key)
        ]
        loop = asyncio.get_running_loop()
        self._append(
            [
                self._snapshot(key, self._entries[key].state.stored, loop.create_future())
                for key in old[:_RESNAPSHOTS_AT_ONCE]
            ]
        )

    def _trim(self, offset: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE and not self.closed and offset > self._log.start_offset:
            self._log.trim(offset)


class _Waiting:
    """The outcomes that wait for one event of the log, or until a timeout."""

    def __init__(self, timeout_s: float, ended: Callable[[_Waiting], None]) -> None:
        self.error: ErrorCode | None = None
        self._outcomes: list[tuple[asyncio.Future[Outcome], StoredShareState]] = []
        self._ended = ended
        self._timer = asyncio.get_running_loop().call_later(
            timeout_s, self.tell, ErrorCode.COORDINATOR_NOT_AVAILABLE
        )

    def answer(self, outcomes: Iterable[tuple[asyncio.Future[Outcome], StoredShareState]]) -> None:
        """Set the results of futures, once the event has come."""
        self._outcomes += outcomes
        if self.error is not None:
            self._set_results(self.error)

    def tell(self, error: ErrorCode) -> None:
        """Report the event. Only the first call has an effect."""
        if self.error is not None:
            return
        self.error = error
        self._timer.cancel()
        self._ended(self)
        self._set_results(error)

    def _set_results(self, error: ErrorCode) -> None:
        outcomes, self._outcomes = self._outcomes, []
        code = COORDINATOR_ERRORS.get(error, error)
        for outcome, stored in outcomes:
            if not outcome.done():
                outcome.set_result(stored if code is ErrorCode.NONE else KafkaError(code))


def _pieces(due: Iterable[_Written]) -> Iterator[list[_Written]]:
    """Split records into batches that the log takes. A record that is too large gets a separate batch."""
    piece: list[_Written] = []
    size = 0
    for written in due:
        key, value = written.record
        bytes_more = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if piece and size + bytes_more > _BATCH_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(written)
        size += bytes_more
    if piece:
        yield piece
