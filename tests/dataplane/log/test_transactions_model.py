"""Transactions of a log compared with a plain list of its batches, through appends, markers, cuts, retention and
restarts.

Compared are the last stable offset, open and aborted transactions, and the state of producers.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.composed import append_marker, append_unsequenced
from ottla.dataplane.log.producers import recent_markers
from ottla.dataplane.log.producers.marker_search import MarkerSearch
from ottla.dataplane.log.producers.producer_state import ProducerStates
from ottla.dataplane.log.segments.aborted_transaction import AbortedTransaction
from ottla.protocol.records.record import (
    ControlRecord,
    ControlType,
    encode_control_batch,
    read_control_record,
)
from ottla.protocol.records.record_batch import BatchHeader, parse_header, patch_offset_and_epoch
from tests.dataplane.log.batches import make_batch

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=150, retention_ms=-1)
NOW = 1_000
LEADER_EPOCH = 3
TRANSACTIONAL = 0x10


class Batch(NamedTuple):
    header: BatchHeader
    marker: ControlRecord | None
    size: int

    @property
    def is_data(self) -> bool:
        return self.marker is None and self.header.is_transactional


class Transaction(NamedTuple):
    """A transaction with data; `end` is the offset of its marker."""

    producer_id: int
    first: int
    end: int | None
    aborted: bool
    stable: int


def transactions_in(batches: list[Batch]) -> list[Transaction]:
    """Return all transactions by the simplest walk: ended ones in the order of their markers, then open ones in the
    order of their beginning.
    """
    open_: dict[int, int] = {}
    ended = []
    for header, marker, _ in batches:
        if marker is None and header.is_transactional:
            open_.setdefault(header.producer_id, header.base_offset)
        elif marker is not None and header.producer_id in open_:
            end, first = header.base_offset, open_.pop(header.producer_id)
            stable = min(open_.values(), default=end + 1)
            aborted = marker.type is ControlType.ABORT
            ended.append(Transaction(header.producer_id, first, end, aborted, stable))
    still_open = sorted((first, producer_id) for producer_id, first in open_.items())
    return ended + [Transaction(producer_id, first, None, False, -1) for first, producer_id in still_open]


def last_stable(batches: list[Batch], high_watermark: int, log_start: int) -> int:
    unstable = [
        each.first for each in transactions_in(batches) if each.end is None or each.end >= high_watermark
    ]
    return min(max(min(unstable, default=high_watermark), log_start), high_watermark)


def replayed(batches: list[Batch]) -> ProducerStates:
    states = ProducerStates()
    for header, marker, _ in batches:
        if marker is not None:
            states.record_marker(header, marker, header.base_offset, NOW)
        else:
            states.record(header, header.base_offset, NOW)
    return states


def known_of(states: ProducerStates) -> dict[int, tuple[object, ...]]:
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.last_sequence,
            entry.next_sequence,
            entry.batches[-1][:4] if entry.batches else None,
            entry.marker_number,
            entry.marker_commit_index,
            entry.transaction_first_offset,
        )
        for entry in states.entries()
    }


class TransactionsAgainstAList(RuleBasedStateMachine):
    """A state machine whose `batches` are the truth; those below the log start stay in it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ottla-transactions-"))
        self.batches: list[Batch] = []
        self.high_watermark = self.log_start = self.recovery_point = self.commit_index = 0
        self.log: PartitionLog
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(recent_markers, "LISTED_MAX", 4)

    @initialize()
    def start(self) -> None:
        self._open(clean=False)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(clean=False)
        shutil.rmtree(self.folder)
        self.patches.undo()

    @property
    def end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else 0

    def _open(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.folder / "t-0",
            CONFIG,
            clean_shutdown=clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start,
            now_ms=NOW,
        )
        self.log.durability.before_recovery_point_falls = self._recovery_point_fell

    def _recovery_point_fell(self, offset: int) -> None:
        self.recovery_point = offset

    def _note(self, batch: bytes | bytearray) -> None:
        header = parse_header(batch)
        self.batches.append(
            Batch(header, read_control_record(batch) if header.is_control else None, len(batch))
        )

    def _placed(self, batch: bytes | bytearray) -> bytearray:
        placed = bytearray(batch)
        patch_offset_and_epoch(placed, 0, self.end, LEADER_EPOCH)
        return placed

    # Growing

    @rule(
        producer_id=st.integers(-1, 3),
        count=st.integers(1, 4),
        transactional=st.sampled_from([True, True, False]),
        sequenced=st.sampled_from([True, True, True, False]),
        size=st.sampled_from([5, 60, 300]),
        leads=st.booleans(),
    )
    def produce(
        self, producer_id: int, count: int, transactional: bool, sequenced: bool, size: int, leads: bool
    ) -> None:
        producer = (-1, -1, -1)
        transactional &= producer_id >= 0
        sequenced |= not transactional
        if producer_id >= 0:
            entry = self.log.producers.get(producer_id)
            epoch = 0 if entry is None else entry.producer_epoch
            sequence = 0 if entry is None else entry.last_sequence + 1
            producer = (producer_id, epoch, sequence if sequenced else -1)
            if not transactional and producer_id in self.log.transactions.open:
                return
        produced = make_batch(count, b"p" * size, attributes=TRANSACTIONAL * transactional, producer=producer)
        batch = self._placed(produced)
        self._note(batch)
        if not leads:
            self.log.append_as_follower(memoryview(batch), NOW)
        elif sequenced:
            self.log.produced.append(memoryview(produced), LEADER_EPOCH, NOW)
        else:
            append_unsequenced(self.log, memoryview(produced), LEADER_EPOCH, NOW)

    @rule(
        producer_id=st.integers(0, 3),
        commit=st.booleans(),
        raises_epoch=st.booleans(),
        leads=st.booleans(),
    )
    def end_transaction(self, producer_id: int, commit: bool, raises_epoch: bool, leads: bool) -> None:
        entry = self.log.producers.get(producer_id)
        epoch = raises_epoch + (0 if entry is None else entry.producer_epoch)
        number = 1 if entry is None else entry.marker_number + 1
        self.commit_index += 1
        marker = ControlRecord(ControlType(commit), number, self.commit_index)
        batch = self._placed(
            encode_control_batch(marker, timestamp_ms=NOW, producer_id=producer_id, producer_epoch=epoch)
        )
        self._note(batch)
        if not leads:
            self.log.append_as_follower(memoryview(batch), NOW)
            return
        result = append_marker(
            self.log,
            producer_id,
            epoch,
            commit=commit,
            number=number,
            commit_index=self.commit_index,
            leader_epoch=LEADER_EPOCH,
            now_ms=NOW,
        )
        assert result.first_offset == self.end - 1
        piece = self.log.read(result.first_offset, 1, self.end, at_least_one=True)
        assert piece.read() == bytes(batch)
        piece.release()

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(fraction=st.floats(0, 1))
    def raise_high_watermark(self, fraction: float) -> None:
        self.high_watermark += int((self.end - self.high_watermark) * fraction + 0.5)

    # Cutting

    @precondition(lambda self: self.batches)
    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        first = self.log.segments[0].base_offset
        self.log.truncation.truncate_to(first + int((self.end - first) * fraction))
        self._cut()

    def _cut(self) -> None:
        while self.batches and self.end > self.log.log_end_offset:
            self.batches.pop()
        assert self.end == self.log.log_end_offset or not self.batches
        self.log_start = min(self.log_start, self.end)
        self.high_watermark = min(self.high_watermark, self.end)

    @rule(fraction=st.floats(0, 1))
    def trim(self, fraction: float) -> None:
        self.log_start += int((self.high_watermark - self.log_start) * fraction)
        self.log.advance_log_start_offset(self.log_start)
        self._unlink_doomed()

    @rule()
    def retain(self) -> None:
        self.log.config = replace(CONFIG, retention_bytes=1500)
        while self.log.old_segments.retain(self.high_watermark, NOW):
            pass
        self.log.config = CONFIG
        self.log_start = self.log.log_start_offset
        self._unlink_doomed()

    def _unlink_doomed(self) -> None:
        while self.log.doomed:
            self.log.doomed.pop().unlink(missing_ok=True)

    # Restarting

    @rule()
    def flush(self) -> None:
        self.recovery_point = self.log.flush()

    @rule(damage=st.sampled_from([None, None, b"", b"\1", b"\0\7" * 17]), older=st.floats(0, 1))
    def restart_cleanly(self, damage: bytes | None, older: float) -> None:
        self.log.close(clean=True)
        self.recovery_point = self.end
        self._restart(damage, older, clean=True)

    @rule(
        seed=st.integers(0, 2**32),
        lose=st.booleans(),
        damage=st.sampled_from([None, b"\1", b"\0\7" * 17]),
        older=st.floats(0, 1),
    )
    def crash(self, seed: int, lose: bool, damage: bytes | None, older: float) -> None:
        """Crash the log: its active segment may lose unflushed data; the high watermark is an older one."""
        active = self.log.segments[-1]
        self.log.close(clean=False)
        if lose:
            mine = [batch for batch in self.batches if batch.header.base_offset >= active.base_offset]
            flushed = sum(batch.size for batch in mine if batch.header.next_offset <= self.recovery_point)
            kept = random.Random(seed).randint(flushed, sum(batch.size for batch in mine))
            with active.path.open("r+b") as file:
                file.truncate(kept)
        self._restart(damage, older, clean=False)

    def _restart(self, damage: bytes | None, older: float, *, clean: bool) -> None:
        """Restart with damaged indexes.

        Any damaged index is repaired, but a missing one cannot be distinguished from an unneeded one.
        """
        for path in (self.folder / "t-0").glob("*.txnindex"):
            if damage:
                path.write_bytes(damage)
        self._open(clean=clean)
        self._cut()
        below = self.high_watermark - self.log_start
        self.high_watermark = self.log_start + int(below * older)

    # Invariants

    @invariant()
    def the_list_agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        log.check()
        assert log.log_end_offset == self.end
        self.high_watermark = max(self.high_watermark, self.log_start)
        assert log.transactions.last_stable_offset(self.high_watermark) == last_stable(
            self.batches, self.high_watermark, self.log_start
        )
        transactions = transactions_in(self.batches)
        assert list(log.transactions.open.items()) == [
            (each.producer_id, each.first) for each in transactions if each.end is None
        ]
        assert known_of(log.producers) == known_of(replayed(self.batches))
        markers = [batch.marker for batch in self.batches if batch.marker is not None]
        assert log.transactions.last_commit_index == max(
            (marker.commit_index for marker in markers), default=-1
        )
        self._check_aborted(self.log_start, self.end)
        for segment in log.segments:
            assert segment is log.segment_list.active or segment.transaction_index.path.exists() == bool(
                len(segment.transaction_index)
            )

    @rule(fraction=st.floats(0, 1))
    def ask_at_another_high_watermark(self, fraction: float) -> None:
        """Query with a lower high watermark, as after a restart, which must give right answers, too."""
        offset = self.log_start + int((self.end - self.log_start) * fraction)
        assert self.log.transactions.last_stable_offset(offset) == last_stable(
            self.batches, offset, self.log_start
        )

    @rule(fraction=st.floats(0, 1))
    def cut(self, fraction: float) -> None:
        """Compare the cut above a commit index, whether its marker is listed or must be searched for.

        If the marker was deleted, the cut is the log start. The answer includes the beginning of the first open
        transaction there, as far as it was not deleted.
        """
        asked = round((self.commit_index + 1) * fraction) - 1
        found = self.log.transactions.marker_above(asked)
        if isinstance(found, MarkerSearch):
            search, found = found, found.find()
            search.close()
        above = next(
            (
                at
                for at, batch in enumerate(self.batches)
                if batch.marker and batch.marker.commit_index > asked
            ),
            None,
        )
        assert (above is None) == (found is None)
        if found is not None and above is not None:
            expected = self.batches[above].header.base_offset
            assert max(found.offset, self.log_start) == max(expected, self.log_start)
            open_ = {
                transaction.producer_id: transaction.first
                for transaction in transactions_in(self.batches[:above])
                if transaction.end is None
            }
            begin = min(open_.values(), default=expected)
            if found.offset == expected and begin >= self.log.segments[0].base_offset:
                assert found.open_from == begin
            ends = [
                transaction.end
                for transaction in transactions_in(self.batches[:above])
                if transaction.end is not None
            ]
            assert found.least_offset <= found.offset
            if found.offset == expected:
                assert max(found.least_offset, self.log_start) == max(
                    0, self.log_start, *(end + 1 for end in ends)
                )
            assert not any(
                self.log_start <= batch.header.base_offset < found.open_from
                for batch in self.batches[:above]
                if batch.is_data and open_.get(batch.header.producer_id, expected) <= batch.header.base_offset
            )

    @rule(begin=st.floats(0, 1), upto=st.floats(0, 1))
    def fetch(self, begin: float, upto: float) -> None:
        start, end = self.log_start, self.end
        low, high = sorted(start + int((end - start) * fraction) for fraction in (begin, upto))
        self._check_aborted(low, high)
        self._check_aborted_among(low, high)

    def _check_aborted_among(self, low: int, high: int) -> None:
        """Check that the answer has all aborted transactions that overlap the read range, and none beyond the possible
        end.
        """
        records = self.log.read(low, 700, high, at_least_one=True)
        among = self.log.transactions.aborted_among(records, low, high)
        assert among == [each for each in self.log.transactions.aborted(low, high) if each in among]
        start, data = 0, records.read()
        records.release()
        while start < len(data):
            header = parse_header(data, start)
            assert set(self.log.transactions.aborted(low, header.next_offset)) <= set(among)
            start += header.size

    def _check_aborted(self, low: int, high: int) -> None:
        assert self.log.transactions.aborted(low, high) == [
            AbortedTransaction(each.producer_id, each.first, each.end, each.stable)
            for each in transactions_in(self.batches)
            if each.end is not None and each.aborted and each.end >= low and each.first < high
        ]


TransactionsAgainstAList.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestTransactions = TransactionsAgainstAList.TestCase
