"""Random histories of a share partition, compared after each step with a dictionary of single offsets.

Transitions commit and roll back in any order, leaders fail in the middle, and time passes.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.dataplane.share.acknowledgements import AcknowledgedRange
from ottla.dataplane.share.limits import AcquireMode, ShareLimits
from ottla.dataplane.share.partition import SharePartition
from ottla.dataplane.share.states import (
    UNTOUCHED,
    AcknowledgeType,
    Acquired,
    Archiving,
    Available,
    Changing,
    Delayed,
    DurableState,
    Pending,
    State,
    StateBatch,
    add_batch,
)
from ottla.dataplane.share.transitions import Transition
from ottla.protocol.errors import ErrorCode, KafkaError

from .share_model import Durable, Model, durable, restored

LOCK_MS = 100
BATCH_MAX = 5
MEMBERS = st.sampled_from(("a", "b"))
TRANSACTIONS = st.sampled_from(("t", "u"))
BATCHES = st.tuples(st.integers(1, BATCH_MAX), st.sampled_from((0, 0, 0, 1, 3)))
"""Length of a batch, and of the gap before the batch."""
RARELY = st.sampled_from((False, False, False, True))
MODES = st.sampled_from(AcquireMode)


_TYPES = {
    DurableState.ACKNOWLEDGED: AcknowledgeType.ACCEPT,
    DurableState.ARCHIVED: AcknowledgeType.GAP,
    DurableState.AVAILABLE: AcknowledgeType.RELEASE,
}


def _is_pending(state: State) -> bool:
    return isinstance(state.before if isinstance(state, Changing) else state, Pending)


class ShareHistory(RuleBasedStateMachine):
    """A share partition, its model, the log that members read, and the state that was written."""

    @initialize(
        delivery_limit=st.integers(2, 6),
        record_locks=st.integers(3, 12),
        has_dead_letters=st.booleans(),
        batches=st.lists(BATCHES, min_size=5, max_size=15),
    )
    def begin(
        self, delivery_limit: int, record_locks: int, has_dead_letters: bool, batches: list[tuple[int, int]]
    ) -> None:
        limits = ShareLimits(LOCK_MS, delivery_limit, record_locks, has_dead_letters)
        self.share, self.model = SharePartition(limits, 0), Model(limits)
        self.now_ms = 0
        self.log: list[tuple[int, int]] = []
        self.log_end = 0
        for length, gap in batches:
            self.append(length, gap)
        self.open: list[Transition] = []
        # Start offsets in the order in which their transitions were made, and whether they were written.
        self.starts: list[tuple[Transition, int]] = []
        self.written: dict[int, Durable] = {}
        self.written_starts: dict[int, int] = {}
        # Offsets whose finish was written.
        self.finished: set[int] = set()
        # Durable states that count once a transaction commits.
        self.pending: dict[str, list[StateBatch]] = {}

    # ------------------------------------------------------------ the log

    @precondition(lambda self: self.log_end < self.model.end + 20)
    @rule(batches=st.lists(BATCHES, min_size=1, max_size=4))
    def produce(self, batches: list[tuple[int, int]]) -> None:
        for length, gap in batches:
            self.append(length, gap)

    def append(self, length: int, gap: int) -> None:
        first = self.log_end + gap
        self.log_end = first + length
        self.log.append((first, self.log_end - 1))

    @precondition(lambda self: len(self.log) > 1)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        del self.log[data.draw(st.integers(0, len(self.log) - 2))]

    @rule(distance=st.sampled_from((0, 0, 0, 1, 2, 6)))
    def delete_records(self, distance: int) -> None:
        offset = min(self.model.start + distance, self.log_end)
        self.share.archive_below(offset)
        for below in [known for known in self.model.states if known < offset]:
            del self.model.states[below]
        self.model.start = max(self.model.start, offset)
        self.model.end = max(self.model.end, offset)
        self.model.advance()

    @rule(length=st.integers(1, 3), is_aborted=RARELY)
    def abort(self, length: int, is_aborted: bool) -> None:
        if not is_aborted:
            return
        first = self.share.next_fetch_offset()
        last = min(first + length, self.log_end) - 1
        if last >= first:
            self.share.archive([(first, last), (self.log_end + 5, self.log_end + 6)])
            for offset in range(first, last + 1):
                self.model.pass_by(offset)
            self.model.advance()

    # ------------------------------------------------------------ members

    @rule(member=MEMBERS, max_records=st.integers(0, 6), mode=MODES, batches=st.integers(1, 4))
    def acquire(self, member: str, max_records: int, mode: AcquireMode, batches: int) -> None:
        fetch_offset = self.share.next_fetch_offset()
        read = [batch for batch in self.log if batch[1] >= fetch_offset][:batches]
        before = self.model.unfinished
        acquired = self.share.acquire(member, fetch_offset, read, max_records, mode, self.now_ms)
        expected = self.model.acquire(member, fetch_offset, read, max_records, mode, self.now_ms)
        assert {o: count for first, last, count in acquired for o in range(first, last + 1)} == expected
        assert all(isinstance(self.model.states[offset], Acquired) for offset in expected)
        assert not self.finished & set(expected)
        if mode is AcquireMode.RECORD_LIMIT:
            assert len(expected) <= max_records
            assert self.model.unfinished <= max(before, self.model.limits.record_locks)
        else:
            assert self.model.unfinished < max(before, self.model.limits.record_locks) + BATCH_MAX

    def _ranges(
        self, data: st.DataObject, member: str, types: st.SearchStrategy[int]
    ) -> list[AcknowledgedRange]:
        """Draw ranges, mostly of records that the member holds."""
        model = self.model
        source = data.draw(st.integers(0, 9))
        if source == 0:
            offsets = sorted(data.draw(st.sets(st.integers(max(0, model.start - 2), model.end), min_size=1)))
        else:
            held = model.where(
                lambda state: isinstance(state, Acquired) and (source == 1 or state.member_id == member)
            )
            if not held:
                return []
            first = data.draw(st.integers(0, len(held) - 1))
            offsets = held[first : first + data.draw(st.integers(1, 8))]
        ranges: list[AcknowledgedRange] = []
        for offset in offsets:
            kind = data.draw(types)
            if (
                ranges
                and ranges[-1].last + 1 == offset
                and len(ranges[-1].types) == offset - ranges[-1].first
            ):
                ranges[-1] = ranges[-1]._replace(last=offset, types=(*ranges[-1].types, kind))
            else:
                ranges.append(AcknowledgedRange(offset, offset, (kind,)))
        if data.draw(st.booleans()):
            ranges = [found._replace(types=found.types[:1]) for found in ranges]
        return ranges

    def _refusal(self, member: str, ranges: list[AcknowledgedRange]) -> ErrorCode | None:
        model = self.model
        for first, last, _, _ in ranges:
            if last >= model.end > model.start:
                return ErrorCode.INVALID_REQUEST
            if not all(model.holds(member, offset) for offset in range(first, last + 1)):
                return ErrorCode.INVALID_RECORD_STATE
        return None

    @rule(member=MEMBERS, data=st.data(), delay_ms=st.sampled_from((0, 0, 50)))
    def acknowledge(self, member: str, data: st.DataObject, delay_ms: int) -> None:
        ranges = self._ranges(data, member, st.sampled_from((0, 1, 1, 2, 2, 2, 3, 4)))
        released = {AcknowledgeType.RELEASE}
        ranges = [
            found._replace(delay_ms=delay_ms if set(found.types) == released else 0) for found in ranges
        ]
        refusal = self._refusal(member, ranges)
        if refusal is not None:
            with pytest.raises(KafkaError) as caught:
                self.share.acknowledge(member, ranges, self.now_ms)
            assert caught.value.code is refusal
            return
        transition = self.share.acknowledge(member, ranges, self.now_ms)
        self.model.acknowledge(ranges, self.now_ms, transition)
        self._opened(transition)

    @rule(member=MEMBERS)
    def release(self, member: str) -> None:
        transition = self.share.release(member, self.now_ms)
        self.model.release(member, self.now_ms, transition)
        self._opened(transition)

    def _count(self, offset: int) -> int:
        state = self.model.states[offset]
        assert isinstance(state, Acquired | Pending)
        return state.delivery_count

    # ------------------------------------------------------------ time

    @rule(passed_ms=st.sampled_from((1, 30, LOCK_MS)))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        transition = self.share.expire(self.now_ms)
        for offset, state in self.model.states.items():
            if isinstance(state, Acquired) and state.deadline_ms <= self.now_ms:
                self.model.change(offset, self.model.put_back(state.delivery_count), transition)
            elif isinstance(state, Delayed) and state.deadline_ms <= self.now_ms:
                self.model.states[offset] = Available(state.delivery_count)
        self._opened(transition)

    # ------------------------------------------------------------ transactions and dead letters

    @rule(member=MEMBERS, transaction=TRANSACTIONS, data=st.data())
    def acknowledge_pending(self, member: str, transaction: str, data: st.DataObject) -> None:
        # Leaders refuse rejections in a group with dead letters.
        kinds = st.integers(0, 2 if self.model.limits.has_dead_letters else 3)
        ranges = self._ranges(data, member, kinds)
        if self._refusal(member, ranges) is not None:
            return
        batches = self.share.acknowledge_pending(transaction, member, ranges)
        self.pending.setdefault(transaction, []).extend(batches)
        for first, last, types, _ in ranges:
            for offset in range(max(first, self.model.start), last + 1):
                kind = AcknowledgeType(types[offset - first] if len(types) > 1 else types[0])
                self.model.states[offset] = Pending(transaction, member, self._count(offset), kind)

    @precondition(lambda self: self.model.where(lambda state: isinstance(state, Pending)))
    @rule(transaction=TRANSACTIONS, is_committed=st.booleans())
    def settle(self, transaction: str, is_committed: bool) -> None:
        """End a transaction, and apply the durable states. The transaction may have ended before a failed write."""
        for batch in self.pending.pop(transaction, ()):
            if is_committed and batch.state is not DurableState.AVAILABLE:
                self._write(batch)
        transition = self.share.settle(transaction, self._written_batches(0))
        for offset, state in self.model.states.items():
            if isinstance(state, Pending) and state.transaction == transaction:
                count = state.delivery_count
                is_finished = offset in self.finished
                after = self.model.outcome(state.type, count) if is_finished else self.model.put_back(count)
                self.model.change(offset, after, transition)
        self._opened(transition)

    @precondition(lambda self: self.share.dead_letters())
    @rule()
    def write_dead_letters(self) -> None:
        letters = self.share.dead_letters()
        offsets = self.model.where(lambda state: isinstance(state, Archiving))
        assert [o for letter in letters for o in range(letter.first, letter.last + 1)] == offsets
        transition = self.share.dead_letter_written([(letter.first, letter.last) for letter in letters])
        for offset in offsets:
            self.model.change(offset, restored((DurableState.ARCHIVED, 0, 0)), transition)
        self._opened(transition)

    # ------------------------------------------------------------ writes

    def _opened(self, transition: Transition) -> None:
        if not transition.spans:
            self.share.commit(transition)
            return
        self.open.append(transition)
        if transition.start_offset is not None:
            self.starts.append((transition, transition.start_offset))

    @rule(member=MEMBERS, kinds=st.lists(st.sampled_from((1, 2, 2, 2, 3)), min_size=1, max_size=3))
    def work(self, member: str, kinds: list[int]) -> None:
        """Acquire and acknowledge records, with all writes successful."""
        while self.open:
            self._end(self.open.pop(), is_committed=True)
        for kind in kinds:
            self.acquire(member, 6, AcquireMode.RECORD_LIMIT, 3)
            held = self.model.where(lambda state: isinstance(state, Acquired) and state.member_id == member)
            ranges = [AcknowledgedRange(offset, offset, (kind,)) for offset in held]
            transition = self.share.acknowledge(member, ranges, self.now_ms)
            self.model.acknowledge(ranges, self.now_ms, transition)
            self._opened(transition)
            while self.open:
                self._end(self.open.pop(), is_committed=True)

    @rule(member=MEMBERS)
    def race(self, member: str) -> None:
        """Accept records in two acknowledgements, whose writes are on their way at once."""
        self.acquire(member, 6, AcquireMode.RECORD_LIMIT, 3)
        held = self.model.where(lambda state: isinstance(state, Acquired) and state.member_id == member)
        middle = len(held) // 2
        for offsets in (held[:middle], held[middle:]):
            ranges = [AcknowledgedRange(offset, offset, (1,)) for offset in offsets]
            transition = self.share.acknowledge(member, ranges, self.now_ms)
            self.model.acknowledge(ranges, self.now_ms, transition)
            self._opened(transition)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_committed=st.sampled_from((True, True, False)))
    def end(self, data: st.DataObject, is_committed: bool) -> None:
        self._end(self.open.pop(data.draw(st.integers(0, len(self.open) - 1))), is_committed=is_committed)

    def _end(self, transition: Transition, *, is_committed: bool) -> None:
        (self.share.commit if is_committed else self.share.roll_back)(transition)
        self.model.end_transition(transition, is_committed=is_committed)
        if is_committed:
            for batch in transition.batches:
                self._write(batch)
            self._write_start(transition)

    def _write(self, batch: StateBatch) -> None:
        for offset in range(batch.first, batch.last + 1):
            self.written[offset] = batch.state, batch.delivery_count, batch.not_before_ms
            if batch.state is not DurableState.AVAILABLE:
                self.finished.add(offset)

    def _write_start(self, transition: Transition) -> None:
        """Write a start offset. The writes are in the order of the transitions, so their start offsets rise."""
        for index, (maker, start) in enumerate(self.starts):
            if maker is transition:
                self.written_starts[index] = start
                assert start <= self.model.start
        ordered = [self.written_starts[index] for index in sorted(self.written_starts)]
        assert ordered == sorted(ordered)

    @rule(from_writes=st.booleans(), has_failed=RARELY)
    def fail_over(self, from_writes: bool, has_failed: bool) -> None:
        """Restore the partition from its snapshot, or from all written batches, and from the start of the log."""
        if not has_failed:
            return
        start, batches = self.share.snapshot()
        if from_writes or any(map(self._is_ahead, self.model.states)):
            start = max(self.written_starts.values(), default=0)
            batches = self._written_batches(start)
        self.share = SharePartition.restore(self.model.limits, start, batches)
        for transaction, states in self.pending.items():
            self.share.restore_pending(transaction, states)
        self.share.archive_below(self.model.start)
        self._model_of(batches)
        self.open.clear()

    def _is_ahead(self, offset: int) -> bool:
        """Return whether the durable state has the end of a transaction that the leader has not applied."""
        return _is_pending(self.model.states[offset]) and offset in self.finished

    def _written_batches(self, start: int) -> tuple[StateBatch, ...]:
        batches: list[StateBatch] = []
        for offset in sorted(offset for offset in self.written if offset >= start):
            add_batch(batches, StateBatch(offset, offset, *self.written[offset]))
        return tuple(batches)

    def _model_of(self, batches: tuple[StateBatch, ...]) -> None:
        model, known = self.model, {}
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                known[offset] = restored((batch.state, batch.delivery_count, batch.not_before_ms))
        for transaction, states in self.pending.items():
            for batch in states:
                for offset in range(max(batch.first, model.start), batch.last + 1):
                    count = known.get(offset, UNTOUCHED)
                    assert isinstance(count, Available)
                    known[offset] = Pending(transaction, "", count.delivery_count + 1, _TYPES[batch.state])
        model.end = max((*known, model.start - 1)) + 1
        model.states = {o: known.get(o, UNTOUCHED) for o in range(model.start, model.end)}
        model.advance()

    # ------------------------------------------------------------ what holds after each step

    @invariant()
    def equals_the_model(self) -> None:
        share, model = self.share, self.model
        share.check()
        runs = share._runs.all_runs()
        assert {o: state for first, last, state in runs for o in range(first, last + 1)} == model.states
        assert (share.start_offset, share.end_offset) == (model.start, model.end)
        assert share.unfinished_count == model.unfinished
        assert share.next_fetch_offset() == model.next_fetch_offset
        assert share.next_expiry_ms() == model.next_expiry_ms

    @invariant()
    def survives_a_failover(self) -> None:
        share, model = self.share, self.model
        snapshot = share.snapshot()
        expected = {o: value for o, state in model.states.items() if (value := durable(state)) is not None}
        found = {o: batch[2:] for batch in snapshot.batches for o in range(batch.first, batch.last + 1)}
        assert found == expected
        assert SharePartition.restore(model.limits, *snapshot).snapshot() == snapshot
        # Finished gaps and aborted records are not written, since the log has them.
        for offset, state in model.states.items():
            value, written = durable(state), self.written.get(offset)
            if (value is not None and value[0] is DurableState.ARCHIVED) or _is_pending(state):
                continue
            # The end of a delay is not written either, since the time is.
            if written is not None and (value is None or written[2] <= self.now_ms):
                written = (*written[:2], 0) if value is None or value[2] == 0 else written
            assert value == written, offset


ShareHistory.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
test_a_share_partition_equals_its_model = ShareHistory.TestCase
