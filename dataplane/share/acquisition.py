"""The acquisition of records for one fetch: which records of the read batches a member gets."""

from __future__ import annotations

from collections.abc import Mapping
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
        if not self._has_ended and last >= runs.end:
            self._take_new(last)

    def take_ordered(self, first: int, last: int, order: KeyOrder, keys: Mapping[int, int]) -> None:
        """Acquire the available records of one batch that are the first of their keys.

        `keys` are the hashes of the keys by offset, at least from `order.walked_to` on. Records without a key have no
        order. The window reaches at least to the first offset. Blocked records stop no others.
        """
        runs = self._runs
        for offset in range(first, last + 1):
            if self.is_complete:
                return
            if offset >= runs.end:
                if runs.unfinished >= self._limits.record_locks:
                    self._has_ended = True
                    return
                runs.extend(offset, UNTOUCHED)
            if offset >= order.walked_to:
                order.walked_to = offset + 1
                self._walk(offset, order, keys.get(offset))
            (_, _, state) = runs.runs(offset, offset)[0]
            if isinstance(state, Available) and self._grant(1, state.delivery_count):
                self._add(offset, offset, state.delivery_count + 1)

    def _walk(self, offset: int, order: KeyOrder, key: int | None) -> None:
        """Take the key of a record into account, which is known from now on."""
        (_, _, state) = self._runs.runs(offset, offset)[0]
        if key is None or state.is_finished:
            return
        order.add(offset, key)
        if isinstance(state, Available) and order.is_blocked(offset):
            self._runs.assign(offset, offset, Blocked(state.delivery_count))

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
