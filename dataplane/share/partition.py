"""A share partition as a pure state machine (KIP-932): one group's records of one partition, at its leader.

The window reaches from the start offset (Kafka's SPSO), before which all records are finished, up to `end_offset`,
from which no record has been acquired. Acquisitions are in memory alone. Every other change of a delivery begins a
`Transition`: its records are `Changing`, so no member may acquire or acknowledge them. Once the caller has written the
batches of the transition, it calls `commit`, and the start offset moves over finished records. If the write has failed,
the caller calls `roll_back`, and the states are as before.

Times are monotonic, in milliseconds. A lock lasts until `expire` is called at its deadline or later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from .acknowledgements import TRANSACTIONAL_TYPES, AcknowledgedRange, check_ranges, parts_of
from .acquisition import AcquiredRange, Acquisition
from .changes import After, beginning, hold, renewal
from .deadlines import Deadlines
from .key_order import KeyOrder, ReadKeys
from .limits import AcquireMode, ShareLimits
from .state_runs import Change, StateRuns
from .states import (
    ACKNOWLEDGED,
    ARCHIVED,
    NEVER_MS,
    UNTOUCHED,
    AcknowledgeType,
    Acquired,
    Archiving,
    Available,
    Blocked,
    Changing,
    DeathReason,
    Delayed,
    Pending,
    State,
    StateBatch,
    Waiting,
    add_batch,
    deadline_of,
    durable_batch,
    restored_state,
    without_lock,
)
from .transaction_effects import TYPES, committed, finished_parts
from .transitions import DeadRecords, Transition


class ShareSnapshot(NamedTuple):
    """The durable state of a share partition, in the fewest batches."""

    start_offset: int
    batches: tuple[StateBatch, ...]


class SharePartition:
    """The window of one group on one partition, with the states of its records and the members that hold them."""

    def __init__(self, limits: ShareLimits, start_offset: int) -> None:
        # Limits may change at any time; they hold for later acquisitions and changes.
        self.limits = limits
        self._runs = StateRuns(start_offset)
        self._deadlines = Deadlines()
        self._transitions: set[Transition] = set()
        self._transactions: dict[Hashable, list[tuple[int, int]]] = {}
        # The order is that of the settings at the beginning.
        self._order = KeyOrder(start_offset) if limits.is_ordered else None
        # Start offset that is durable, and the largest that a transition carries.
        self._durable_start = self._announced_start = start_offset

    @classmethod
    def restore(
        cls,
        limits: ShareLimits,
        start_offset: int,
        batches: Iterable[StateBatch],
    ) -> SharePartition:
        """Return the share partition of a durable state. Offsets without a batch are as before their first delivery.

        Raises ValueError if batches overlap or are not in order.
        """
        partition = cls(limits, start_offset)
        runs = partition._runs
        behind = start_offset
        for batch in batches:
            if batch.last < batch.first or batch.first < behind:
                raise ValueError(
                    f"state batch {batch.first}-{batch.last}: the first offset has to be {behind} or later, and "
                    "the last not smaller"
                )
            if batch.first > runs.end:
                runs.extend(batch.first - 1, UNTOUCHED)
            runs.extend(batch.last, restored_state(batch))
            if batch.not_before_ms:
                partition._deadlines.add(batch.not_before_ms, batch.first, batch.last)
            behind = batch.last + 1
        runs.drop_finished()
        return partition

    # ------------------------------------------------------------ the window

    @property
    def start_offset(self) -> int:
        """First offset that is not finished (Kafka's SPSO)."""
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """First offset behind the window."""
        return self._runs.end

    @property
    def unfinished_count(self) -> int:
        """Number of records in the window that are neither acknowledged nor archived."""
        return self._runs.unfinished

    @property
    def acquired_count(self) -> int:
        """Number of records that members hold under a lock."""
        return sum(self._runs.held.values())

    @property
    def greatest_holder(self) -> str:
        """The member that holds the most records under a lock; empty if no member holds any."""
        held = self._runs.held
        return max(held, key=held.__getitem__) if held else ""

    @property
    def run_count(self) -> int:
        """Number of ranges in the window whose records have the same state, by which the memory of the window grows."""
        return self._runs.run_count

    @property
    def delivery_complete_count(self) -> int:
        """Number of finished offsets in the window, with gaps."""
        return self.end_offset - self.start_offset - self.unfinished_count

    @property
    def can_acquire(self) -> bool:
        """True if a fetch may acquire an available record in the window, or a new record within the limit of locks."""
        return self._runs.unfinished < self.limits.record_locks or self.next_fetch_offset() < self.end_offset

    def next_fetch_offset(self) -> int:
        """Return the first offset that a member may acquire, from which the next fetch reads the log."""
        run = self._runs.next_acquirable(self.start_offset)
        offset = self.end_offset if run is None else run[0]
        return offset if self._order is None else min(offset, max(self._order.walked_to, self.start_offset))

    @property
    def is_ordered(self) -> bool:
        """True if records with the same key are delivered one after the other."""
        return self._order is not None

    @property
    def keys_from(self) -> int | None:
        """First offset whose key has to be read before the next acquisition; None if no key has to be read."""
        if self._order is None or (offset := self.next_fetch_offset()) < self._order.read_to:
            return None
        return offset

    @property
    def key_count(self) -> int:
        """Number of records whose keys are in memory."""
        return 0 if self._order is None else len(self._order)

    def learn_keys(self, keys: ReadKeys) -> None:
        """Keep keys that were read from `keys_from` on, for the next acquisitions."""
        if self._order is not None:
            self._order.skip(self.start_offset)
            self._order.learn(keys)

    # ------------------------------------------------------------ acquisition

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        batches: Iterable[tuple[int, int]],
        max_records: int,
        mode: AcquireMode,
        now_ms: int,
    ) -> tuple[AcquiredRange, ...]:
        """Acquire available records for a member, and return their ranges.

        `batches` are first and last offset of the record batches that were read from `fetch_offset` on. The caller
        leaves out control batches, and aborted batches for a read_committed group. Offsets between the batches are
        gaps, and become finished. Batches that were left out at the end of the read go to `archive` after this call.

        In batch-optimised mode the last batch may exceed both `max_records` and the limit of locks. With an order of
        keys the mode is strict, and the acquisition ends before the first record whose key was not read.
        Raises ValueError if the batches were read from an offset behind the window.
        """
        runs = self._runs
        if fetch_offset > runs.end:
            raise ValueError(
                f"batches were read from offset {fetch_offset}, but the window ends at {runs.end}"
            )
        holder = (member_id, now_ms + self.limits.lock_duration_ms)
        order = self._order
        if order is not None:
            mode = AcquireMode.RECORD_LIMIT
        acquisition = Acquisition(runs, self.limits, holder, max_records, mode)
        position = max(fetch_offset, runs.start)
        for first, last in batches:
            if acquisition.is_complete:
                break
            if last < runs.start:
                continue
            if position < first:
                acquisition.pass_gap(position, first - 1)
                self._finish_keys(position, first - 1)
            if order is None:
                acquisition.take(max(first, runs.start), last)
            else:
                order.skip(min(first, runs.end))
                acquisition.take_ordered(max(first, runs.start), last, order)
            position = last + 1
        for acquired in acquisition.acquired:
            self._add_deadline(holder[1], acquired.first, acquired.last)
        runs.drop_finished()
        return tuple(acquisition.acquired)

    def archive(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Archive available offsets that no member shall get, such as aborted records for a read_committed group.

        The ranges are in order. A range at the end of the window extends it, so that the next fetch begins behind the
        range. A range behind the end is left for a later fetch. The log has the cause, so nothing is written.
        """
        runs = self._runs
        for first, last in ranges:
            runs.update(first, last, lambda state: ARCHIVED if isinstance(state, Waiting) else state)
            if first <= runs.end <= last:
                runs.extend(last, ARCHIVED)
            self._finish_keys(first, last)
            if self._order is not None and first <= self._order.walked_to <= last < runs.end:
                self._order.skip(last + 1)
        runs.drop_finished()

    def archive_below(self, offset: int) -> None:
        """Move the start offset to the start of the log, whoever holds the records before it.

        A later transition carries the start offset to the durable state.
        """
        before = self.start_offset
        self._runs.drop_below(offset)
        self._finish_keys(before, offset - 1)

    def _finish_keys(self, first: int, last: int) -> None:
        """Free the keys of finished records between two offsets. Records behind them are available now."""
        if self._order is None:
            return
        held = [
            (run_first, run_last)
            for run_first, run_last, state in self._runs.runs(first, last)
            if not state.is_finished
        ]
        position = first
        for run_first, run_last in [*held, (last + 1, last)]:
            for offset in self._order.finish(position, run_first - 1):
                self._runs.update(
                    offset,
                    offset,
                    lambda state: Available(state.delivery_count) if isinstance(state, Blocked) else state,
                )
            position = run_last + 1

    def _block_keys(self, first: int, last: int) -> None:
        """Block the available records between two offsets behind earlier records of their keys."""
        if self._order is None:
            return
        for offset in self._order.blocked(first, last):
            self._runs.update(
                offset,
                offset,
                lambda state: Blocked(state.delivery_count) if isinstance(state, Available) else state,
            )

    # ------------------------------------------------------------ acknowledgement

    def acknowledge(self, member_id: str, ranges: Sequence[AcknowledgedRange], now_ms: int) -> Transition:
        """Apply acknowledgements of a member. Released records stay unavailable for the delay of their range.

        Offsets before the start offset are skipped, since they are finished. Renewed locks need no commit.

        Raises KafkaError, and changes nothing: INVALID_RECORD_STATE if the member does not hold one of the records, or
        INVALID_REQUEST if a range is malformed or ends behind the window.
        """
        check_ranges(ranges)
        self._check_held(member_id, ranges)
        transition, parts = self._begin(), parts_of(ranges)
        deadline_ms = now_ms + self.limits.lock_duration_ms
        changes: dict[tuple[AcknowledgeType, int], Change] = {}
        for _, _, kind, delay_ms in parts:
            if (kind, delay_ms) in changes:
                continue
            after = self._outcome(kind, now_ms + delay_ms if delay_ms else 0)
            is_renewal = kind is AcknowledgeType.RENEW
            changes[kind, delay_ms] = renewal(deadline_ms) if is_renewal else beginning(transition, after)
        self._runs.update_all((first, last, changes[kind, delay]) for first, last, kind, delay in parts)
        for first, last, kind, _ in parts:
            if kind is AcknowledgeType.RENEW:
                self._add_deadline(deadline_ms, first, last)
            else:
                transition.spans.append((first, last))
        return self._seal(transition)

    def _check_held(self, member_id: str, ranges: Iterable[AcknowledgedRange]) -> None:
        runs = self._runs

        def is_held(state: State) -> bool:
            return isinstance(state, Acquired) and state.member_id == member_id

        # The member holds the records from the one offset up to the other. Earlier ranges were checked.
        held_from = held_to = runs.start
        for first, last, _, _ in ranges:
            if last >= runs.end > runs.start:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Acknowledgement: range {first}-{last} ends behind offset {runs.end - 1}, the last acquired.",
                )
            if (held_from <= first and last < held_to) or last < runs.start:
                continue
            held_from = max(first, runs.start)
            held_to = runs.end_of_states(held_from, last, is_held) if last < runs.end else held_from
            if last >= held_to:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"Acknowledgement: member {member_id} does not hold all records of range {first}-{last}.",
                )

    def _outcome(self, kind: AcknowledgeType, not_before_ms: int = 0) -> After:
        """Return the state after an acknowledgement, as a function of the delivery count."""
        if kind is AcknowledgeType.ACCEPT:
            return lambda _count: ACKNOWLEDGED
        if kind is AcknowledgeType.GAP:
            return lambda _count: ARCHIVED
        if kind is AcknowledgeType.REJECT:
            return lambda count: self._dead(count, DeathReason.REJECTED)
        return lambda count: self._put_back(count, not_before_ms)

    def _put_back(self, count: int, not_before_ms: int = 0) -> State:
        """Return the state after a delivery that has failed: available, or dead at the limit of deliveries."""
        if count >= self.limits.delivery_limit:
            return self._dead(count, DeathReason.DELIVERY_LIMIT)
        return Delayed(count, not_before_ms) if not_before_ms else Available(count)

    def _dead(self, count: int, reason: DeathReason) -> State:
        return Archiving(count, reason) if self.limits.has_dead_letters else ARCHIVED

    # ------------------------------------------------------------ ends of locks, sessions and dead letters

    def release(self, member_id: str, now_ms: int) -> Transition:
        """Release all records that a member holds, since its share session has ended.

        Its locks end now: if this write fails, or that of a change on its way, `expire` releases the records again.
        The count stays, as in Kafka. If it fell, a record at which each member stops would be delivered for ever.
        """
        runs, may_hold = self._runs, member_id in self._runs.held or bool(self._transitions)
        transition = self._begin()
        if may_hold:
            runs.update(runs.start, runs.end - 1, lambda state: without_lock(state, member_id, now_ms))
            for first, last, state in runs.all_runs():
                if isinstance(state, Acquired) and state.member_id == member_id:
                    self._change(transition, first, last, self._put_back)
        return self._seal(transition)

    def next_expiry_ms(self) -> int | None:
        """Return the earliest time at which a lock or a delay ends; None if there is none."""
        while (deadline := self._deadlines.earliest()) is not None:
            time_ms, first, last = deadline
            if any(deadline_of(state) == time_ms for _, _, state in self._runs.runs_in([(first, last)])):
                return time_ms
            self._deadlines.pop()
        return None

    def expire(self, now_ms: int) -> Transition:
        """End the locks and delays whose deadline is reached. The end of a delay needs no commit."""
        transition = self._begin()
        while (deadline := self._deadlines.earliest()) is not None and deadline[0] <= now_ms:
            self._deadlines.pop()
            for first, last, state in self._runs.runs(*deadline[1:]):
                if deadline_of(state) > now_ms:
                    continue
                if isinstance(state, Acquired):
                    self._change(transition, first, last, self._put_back)
                elif isinstance(state, Delayed):
                    self._runs.assign(first, last, Available(state.delivery_count))
                    self._block_keys(first, last)
        return self._seal(transition)

    def dead_letters(self) -> tuple[DeadRecords, ...]:
        """Return the records whose dead letters are not yet written."""
        return tuple(
            DeadRecords(first, last, state.delivery_count, state.reason)
            for first, last, state in self._runs.all_runs()
            if isinstance(state, Archiving)
        )

    def dead_letter_written(self, ranges: Iterable[tuple[int, int]]) -> Transition:
        """Archive records whose dead letters are written, in the transaction of these letters.

        Offsets before the start offset are skipped. Raises ValueError if another record does not wait for its letter.
        """
        spans = list(ranges)
        for first, last in spans:
            if last >= self.end_offset or not all(
                isinstance(state, Archiving) for _, _, state in self._runs.runs(first, last)
            ):
                raise ValueError(f"range {first}-{last} has records that do not wait for a dead letter")
        transition = self._begin()
        for first, last in spans:
            self._change(transition, first, last, lambda _count: ARCHIVED)
        return self._seal(transition)

    # ------------------------------------------------------------ transactions

    def acknowledge_pending(
        self, transaction: Hashable, member_id: str, ranges: Sequence[AcknowledgedRange]
    ) -> tuple[StateBatch, ...]:
        """Acknowledge records in a transaction: the member holds them without a lock until the transaction ends.

        Returns the durable states of the records after a commit. Raises KafkaError as `acknowledge` does.
        """
        check_ranges(ranges, TRANSACTIONAL_TYPES, delay_max_ms=0)
        self._check_held(member_id, ranges)
        changes = {kind: hold(transaction, kind) for kind in TRANSACTIONAL_TYPES}
        parts = parts_of(ranges)
        self._runs.update_all((part.first, part.last, changes[part.type]) for part in parts)
        spans = [(part.first, part.last) for part in parts]
        if spans:
            self._transactions.setdefault(transaction, []).extend(spans)
        batches: list[StateBatch] = []
        for first, last, state in self._runs.runs_in(spans):
            assert isinstance(state, Pending)
            add_batch(batches, committed(first, last, state))
        return tuple(batches)

    def restore_pending(self, transaction: Hashable, batches: Iterable[StateBatch]) -> None:
        """Hold records whose durable states change if a transaction commits, at a leader that was elected meanwhile.

        The former leader has delivered each of these records once more than the durable state says.
        """
        for batch in batches:
            if batch.last < self.start_offset:
                continue
            if batch.last >= self._runs.end:
                self._runs.extend(batch.last, UNTOUCHED)

            def held(state: State, kind: AcknowledgeType = TYPES[batch.state]) -> State:
                if isinstance(state, Waiting):
                    return Pending(transaction, "", state.delivery_count + 1, kind)
                return state

            self._runs.update(batch.first, batch.last, held)
            self._transactions.setdefault(transaction, []).append((batch.first, batch.last))

    def settle(self, transaction: Hashable, batches: Sequence[StateBatch]) -> Transition:
        """Apply the end of a transaction, whose effect is in the durable states `batches`, in order.

        Records that are finished there were acknowledged; the others are put back.
        """
        transition = self._begin()
        for span in self._transactions.pop(transaction, ()):
            for first, last, state in self._runs.runs(*span):
                if not isinstance(state, Pending) or state.transaction != transaction:
                    continue
                for part_first, part_last, is_finished in finished_parts(first, last, batches):
                    after = self._outcome(state.type) if is_finished else self._put_back
                    self._change(transition, part_first, part_last, after)
        return self._seal(transition)

    # ------------------------------------------------------------ transitions

    def _begin(self) -> Transition:
        transition = Transition()
        self._transitions.add(transition)
        return transition

    def _change(self, transition: Transition, first: int, last: int, after: After) -> None:
        """Begin the change of all records between two offsets."""
        self._runs.update(first, last, beginning(transition, after))
        transition.spans.append((first, last))

    def _seal(self, transition: Transition) -> Transition:
        """Set the batches, dead letters and start offset of a transition that has all its changes."""
        batches: list[StateBatch] = []
        letters: list[DeadRecords] = []
        transition.spans.sort()
        # Many records share an object for their state.
        known: dict[int, StateBatch | None] = {}
        for first, last, state in self._runs.runs_in(transition.spans):
            assert isinstance(state, Changing)
            after = state.after
            if isinstance(after, Archiving):
                letters.append(DeadRecords(first, last, after.delivery_count, after.reason))
                continue
            if id(state) not in known:
                known[id(state)] = _new_durable(state)
            if (batch := known[id(state)]) is not None:
                add_batch(batches, StateBatch(first, last, *batch[2:]))
        transition.batches, transition.dead_letters = tuple(batches), tuple(letters)
        start = self._start_after(transition)
        if batches and start > self._announced_start:
            transition.start_offset = self._announced_start = start
        return transition

    def _start_after(self, transition: Transition) -> int:
        """Return the start offset once this transition is committed before all others."""

        def is_finished(state: State) -> bool:
            if isinstance(state, Changing) and state.transition is transition:
                return state.after.is_finished
            return state.is_finished

        return self._runs.end_of_prefix(is_finished)

    def commit(self, transition: Transition) -> None:
        """Complete a transition whose batches are durable. Raises ValueError if the transition has ended before."""
        self._end(transition, lambda changing: changing.after)
        if transition.start_offset is not None:
            self._durable_start = max(self._durable_start, transition.start_offset)
        self._runs.drop_finished()

    def roll_back(self, transition: Transition) -> None:
        """Restore the states before a transition whose write has failed. A lock that has ended meanwhile ends with the
        next `expire`. Raises ValueError if the transition has ended before."""
        self._end(transition, lambda changing: changing.before)
        if transition.start_offset is not None:
            self._announced_start = self._durable_start

    def _end(self, transition: Transition, choose: Callable[[Changing], State]) -> None:
        if transition not in self._transitions:
            raise ValueError("the transition has ended, or belongs to another share partition")
        self._transitions.remove(transition)

        def ended(state: State) -> State:
            if isinstance(state, Changing) and state.transition is transition:
                return choose(state)
            return state

        self._runs.update_all((first, last, ended) for first, last in transition.spans)
        if self._order is not None:
            for span in transition.spans:
                self._finish_keys(*span)
                self._block_keys(*span)
        for first, last, state in self._runs.runs_in(transition.spans):
            if (deadline_ms := deadline_of(state)) != NEVER_MS:
                self._add_deadline(deadline_ms, first, last)
            elif isinstance(state, Pending):
                self._transactions.setdefault(state.transaction, []).append((first, last))

    def _add_deadline(self, deadline_ms: int, first: int, last: int) -> None:
        """Add a deadline. Once most deadlines are outdated, the queue is built again from the runs."""
        self._deadlines.add(deadline_ms, first, last)
        if len(self._deadlines) > 2 * self._runs.run_count + 64:
            self._deadlines = Deadlines()
            for run_first, run_last, state in self._runs.all_runs():
                if (time_ms := deadline_of(state)) != NEVER_MS:
                    self._deadlines.add(time_ms, run_first, run_last)

    # ------------------------------------------------------------ durable state

    def snapshot(self) -> ShareSnapshot:
        """Return the durable state: transitions that have not ended are not in it, and acquisitions never are."""
        batches: list[StateBatch] = []
        for run in self._runs.all_runs():
            batch = durable_batch(*run)
            if batch is not None:
                add_batch(batches, batch)
        return ShareSnapshot(self.start_offset, tuple(batches))

    def check(self) -> None:
        """Assert the invariants of the state."""
        self._runs.check()
        if self._order is not None:
            self._order.check()
        for _, _, state in self._runs.all_runs():
            assert not isinstance(state, Changing) or state.transition in self._transitions
            assert not isinstance(state, Pending) or state.transaction in self._transactions


def _new_durable(state: Changing) -> StateBatch | None:
    """Return the durable form of a record after its change; None if the change does not alter the form."""
    batch = durable_batch(0, 0, state.after)
    return batch if batch != durable_batch(0, 0, state.before) else None
