"""The acquisition of records for one fetch: which records of the read batches a member gets."""

from __future__ import annotations

from typing import NamedTuple

from .key_order import KeyOrder
from .limits import AcquireMode, ShareLimits
from .state_runs import StateRuns
from .states import ARCHIVED, UNTOUCHED, Acquired, Available, Blocked, State, Waiting


class AcquiredRange(NamedTuple):
    """A range of acquired records with one delivery count, which includes this delivery."""

    first: int
    last: int
    delivery_count: int


class Acquisition:
    """Records that one fetch acquires in the order of offsets, within its maximum and the limits of the group."""

    def __init__(
        self,
        runs: StateRuns,
        limits: ShareLimits,
        holder: tuple[str, int],
        max_records: int,
        mode: AcquireMode,
    ) -> None:
        self._runs = runs
        self._limits = limits
        self._member_id, self._deadline_ms = holder
        self._max_records = max_records
        self._is_strict = mode is AcquireMode.RECORD_LIMIT
        # Delivery count of all records of a fetch with a reduced maximum.
        self._throttled_count: int | None = None
        self._taken = 0
        # A record that this fetch may not take ends it, so that no record overtakes another.
        self._has_ended = False
        self.acquired: list[AcquiredRange] = []

    @property
    def is_complete(self) -> bool:
        """True if the fetch takes no further batch."""
        return self._has_ended or self._taken >= self._max_records

    def pass_gap(self, first: int, last: int) -> None:
        """Finish the offsets of a gap in the log, which compaction or control batches have left.

        Records that members hold stay as they are; the members acknowledge them.
        """
        runs = self._runs
        runs.update(first, last, lambda state: ARCHIVED if isinstance(state, Waiting) else state)
        if last >= runs.end:
            runs.extend(last, ARCHIVED)

    def take(self, first: int, last: int) -> None:
        """Acquire the available records of one batch. The window reaches at least to its first offset."""
        self._take_available(first, last)
        if not self._has_ended and last >= self._runs.end:
            self._take_new(last)

    def take_ordered(self, first: int, last: int, order: KeyOrder) -> None:
        """Acquire the available records of one batch that are the first of their keys.

        The window reaches at least to the first offset, and grows up to the limit of locks, as far as keys were read.
        Records without a key have no order. Blocked records stop no others.
        """
        runs = self._runs
        room = max(0, self._limits.record_locks - runs.unfinished)
        upto = min(last + 1, order.read_to, runs.end + room)
        if upto > runs.end:
            runs.extend(upto - 1, UNTOUCHED)
        self._walk(order, upto)
        self._take_available(first, min(last, order.walked_to - 1))
        self._has_ended |= order.walked_to <= last

    def _walk(self, order: KeyOrder, upto: int) -> None:
        """Take the keys of records before an offset into account, and block records behind others of their keys."""
        states = iter(self._runs.runs(order.walked_to, upto - 1))
        run_first, run_last, state = next(states, (upto, upto, ARCHIVED))
        blocked: list[tuple[int, int, State]] = []
        for offset, key in order.walk(upto):
            while offset > run_last:
                run_first, run_last, state = next(states)
            if offset < run_first or state.is_finished:
                continue
            if order.add(offset, key) and isinstance(state, Available):
                if blocked and blocked[-1][1:] == (offset - 1, state):
                    blocked[-1] = (blocked[-1][0], offset, state)
                else:
                    blocked.append((offset, offset, state))
        for first, last, state in blocked:
            assert isinstance(state, Available)
            self._runs.assign(first, last, Blocked(state.delivery_count))

    def _take_available(self, first: int, last: int) -> None:
        """Acquire available records of the window."""
        runs = self._runs
        offset = first
        while not self._has_ended:
            run = runs.next_acquirable(offset)
            if run is None or run[0] > last:
                break
            run_first, run_last, state = run
            assert isinstance(state, Available)
            granted = self._grant(min(run_last, last) + 1 - run_first, state.delivery_count)
            if granted:
                offset = run_first + granted
                self._add(run_first, offset - 1, state.delivery_count + 1)

    def _take_new(self, last: int) -> None:
        """Acquire records behind the window. In batch-optimised mode the last batch may exceed the limit of locks."""
        runs = self._runs
        room = self._limits.record_locks - runs.unfinished
        length = last + 1 - runs.end
        if self._is_strict or room <= 0:
            self._has_ended = room < length
            length = min(length, room)
        granted = self._grant(length, UNTOUCHED.delivery_count) if length > 0 else 0
        if granted:
            first = runs.end
            runs.extend(first + granted - 1, self._state(1))
            self._note(first, first + granted - 1, 1)

    def _grant(self, wanted: int, delivery_count: int) -> int:
        """Return how many of the wanted records the fetch may take, and end the fetch at the first refused record."""
        if not self._taken:
            maximum = self._limits.throttled(delivery_count, self._max_records)
            if maximum is not None:
                self._throttled_count, self._max_records, self._is_strict = delivery_count, maximum, True
        elif self._throttled_count is not None:
            if delivery_count != self._throttled_count:
                wanted = 0
        elif self._limits.throttled(delivery_count, self._max_records) is not None:
            wanted = 0
        granted = min(wanted, self._max_records - self._taken) if self._is_strict else wanted
        self._taken += granted
        self._has_ended |= granted < wanted or not wanted
        return granted

    def _add(self, first: int, last: int, delivery_count: int) -> None:
        self._runs.assign(first, last, self._state(delivery_count))
        self._note(first, last, delivery_count)

    def _state(self, delivery_count: int) -> State:
        return Acquired(self._member_id, delivery_count, self._deadline_ms)

    def _note(self, first: int, last: int, delivery_count: int) -> None:
        acquired = self.acquired
        if acquired and acquired[-1].last + 1 == first and acquired[-1].delivery_count == delivery_count:
            acquired[-1] = acquired[-1]._replace(last=last)
        else:
            acquired.append(AcquiredRange(first, last, delivery_count))
