"""The states of all offsets in the window of a share partition, as runs of offsets with one state."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from .states import ARCHIVED, Acquired, State

Run = tuple[int, int, State]
"""First and last offset of neighbours with one state, and their state."""
Change = Callable[[State], State]
"""A function that returns the state after a change."""

_PASSED_MAX = 8
"""Maximum number of runs for each change that one walk over all changes may pass."""


class StateRuns:
    """States of the offsets from `start` up to `end`, which is the first offset behind the window.

    Neighbours with equal states are one run, of 16 bytes. A change costs the changed runs and a binary search; the
    runs behind them move in memory as one block.
    """

    __slots__ = ("_acquirable", "_firsts", "_states", "end", "held", "unfinished")

    def __init__(self, start: int) -> None:
        # First offsets of all runs, and of the runs that may be acquired.
        self._firsts = array("q")
        self._acquirable = array("q")
        self._states: list[State] = []
        self.end = start
        # Number of records that are neither acknowledged nor archived.
        self.unfinished = 0
        # Number of acquired records of each member.
        self.held: Counter[str] = Counter()

    @property
    def start(self) -> int:
        """First offset of the window; `end` if the window is empty."""
        return self._firsts[0] if self._firsts else self.end

    @property
    def run_count(self) -> int:
        """Number of runs in the window."""
        return len(self._firsts)

    def runs(self, first: int, last: int) -> list[Run]:
        """Return the runs between two offsets, cut to these offsets and to the window."""
        return list(self.runs_in([(first, last)]))

    def runs_in(self, spans: Iterable[tuple[int, int]]) -> Iterator[Run]:
        """Yield the runs in ranges of offsets, as `runs` returns them for each. The ranges are in order, and do not
        overlap. The window may not change meanwhile."""
        firsts, states, start, end = self._firsts, self._states, self.start, self.end
        index, run_first, behind = -1, start, start
        for first, last in spans:
            first, last = first if first > start else start, last if last < end else end - 1
            if first > last:
                continue
            if first >= behind:
                index = bisect_right(firsts, first, index + 1) - 1
                run_first, behind = firsts[index], firsts[index + 1] if index + 1 < len(firsts) else end
            while behind <= last:
                yield first if first > run_first else run_first, behind - 1, states[index]
                index, run_first = index + 1, behind
                behind = firsts[index + 1] if index + 1 < len(firsts) else end
            yield first if first > run_first else run_first, last, states[index]

    def end_of_states(self, offset: int, last: int, has: Callable[[State], bool]) -> int:
        """Return the first offset behind the neighbouring runs whose states pass a test, from the run with an offset of
        the window up to the run with another; the begin of the first run if its state does not pass."""
        firsts, index = self._firsts, bisect_right(self._firsts, offset) - 1
        while index < len(firsts) and firsts[index] <= last and has(self._states[index]):
            index += 1
        return firsts[index] if index < len(firsts) else self.end

    def all_runs(self) -> list[Run]:
        """Return all runs of the window."""
        return self.runs(self.start, self.end - 1)

    def next_acquirable(self, offset: int) -> Run | None:
        """Return the first run that may be acquired, at or behind an offset."""
        acquirable = self._acquirable
        index = bisect_right(acquirable, offset) - 1
        if index >= 0:
            run = self._run_at(acquirable[index])
            if run[1] >= offset:
                return offset, run[1], run[2]
        return self._run_at(acquirable[index + 1]) if index + 1 < len(acquirable) else None

    def _run_at(self, first: int) -> Run:
        index = bisect_left(self._firsts, first)
        run_end = self._firsts[index + 1] if index + 1 < len(self._firsts) else self.end
        return first, run_end - 1, self._states[index]

    def extend(self, last: int, state: State) -> None:
        """Extend the window up to an offset; the new offsets have this state."""
        first, self.end = self.end, last + 1
        self._count(state, last + 1 - first)
        if self._states and self._states[-1] == state:
            return
        self._firsts.append(first)
        self._states.append(state)
        if state.is_acquirable:
            self._acquirable.append(first)

    def assign(self, first: int, last: int, state: State) -> None:
        """Replace each state between two offsets of the window by this state."""
        self.update(first, last, lambda _state: state)

    def update(self, first: int, last: int, change: Change) -> None:
        """Replace each state between two offsets of the window by `change(state)`."""
        first, last = max(first, self.start), min(last, self.end - 1)
        if first <= last:
            self._walk([(first, last, change)])

    def update_all(self, changes: Iterable[tuple[int, int, Change]]) -> None:
        """Make changes as `update` does. Their ranges are in the order of offsets, and do not overlap.

        If they change a good part of the runs between the first and the last, one walk over these runs makes them all.
        """
        start, end = self.start, self.end
        cut = [
            (begin, behind - 1, change)
            for first, last, change in changes
            if (begin := first if first > start else start) < (behind := last + 1 if last < end else end)
        ]
        if not cut:
            return
        passed = bisect_right(self._firsts, cut[-1][1]) - bisect_right(self._firsts, cut[0][0])
        if passed <= _PASSED_MAX * len(cut):
            self._walk(cut)
            return
        for change in cut:
            self._walk([change])

    def _walk(self, changes: Sequence[tuple[int, int, Change]]) -> None:
        firsts, states = self._firsts, self._states
        begin = max(0, bisect_left(firsts, changes[0][0]) - 1)
        behind = min(len(firsts), bisect_right(firsts, changes[-1][1]) + 1)
        new, number = _Runs(), 0
        first, last, change = changes[0]
        for index in range(begin, behind):
            # The neighbours of the changed runs are among these: they may merge with them.
            position, before = firsts[index], states[index]
            run_end = firsts[index + 1] if index + 1 < len(firsts) else self.end
            while first < run_end:
                if position < first:
                    new.add(position, before)
                after = change(before)
                changed_from = first if first > position else position
                position = last + 1 if last < run_end else run_end
                if after is not before:
                    self._count(before, changed_from - position)
                    self._count(after, position - changed_from)
                new.add(changed_from, after)
                if last >= run_end:
                    break
                number += 1
                first, last, change = (
                    changes[number] if number < len(changes) else (self.end, self.end, change)
                )
            if position < run_end:
                new.add(position, before)
        self._replace(begin, behind, new)

    def _replace(self, begin: int, behind: int, new: _Runs) -> None:
        firsts = self._firsts
        low = bisect_left(self._acquirable, firsts[begin])
        high = bisect_right(self._acquirable, firsts[behind - 1])
        self._acquirable[low:high] = array(
            "q", [run for run, state in zip(new.firsts, new.states, strict=True) if state.is_acquirable]
        )
        firsts[begin:behind] = array("q", new.firsts)
        self._states[begin:behind] = new.states

    def drop_finished(self) -> None:
        """Move the start of the window behind the finished records at its start."""
        count = self._prefix_runs(lambda state: state.is_finished)
        if count:
            del self._firsts[:count], self._states[:count]

    def end_of_prefix(self, is_in_prefix: Callable[[State], bool]) -> int:
        """Return the first offset of the window whose state is not in the prefix; `end` if all states are."""
        count = self._prefix_runs(is_in_prefix)
        return self._firsts[count] if count < len(self._firsts) else self.end

    def _prefix_runs(self, is_in_prefix: Callable[[State], bool]) -> int:
        count = 0
        while count < len(self._states) and is_in_prefix(self._states[count]):
            count += 1
        return count

    def drop_below(self, offset: int) -> None:
        """Move the start of the window to an offset, whatever the states before it are."""
        if offset <= self.start:
            return
        # Finished records are not counted, and have no place in the index of acquirable runs.
        self.assign(self.start, offset - 1, ARCHIVED)
        self.end = max(self.end, offset)
        index = bisect_right(self._firsts, offset) - 1
        if index >= 0:
            del self._firsts[:index], self._states[:index]
            self._firsts[0] = offset
        if offset == self.end:
            del self._firsts[:], self._states[:]
        self.drop_finished()

    def _count(self, state: State, length: int) -> None:
        if not state.is_finished:
            self.unfinished += length
        if isinstance(state, Acquired):
            held = self.held[state.member_id] + length
            if held:
                self.held[state.member_id] = held
            else:
                del self.held[state.member_id]

    def check(self) -> None:
        """Assert the invariants of the runs, their index and their counts."""
        runs = self.all_runs()
        assert [first for first, _, _ in runs] == list(self._firsts)
        assert all(before[1] + 1 == after[0] for before, after in pairwise(runs))
        assert all(before[2] != after[2] for before, after in pairwise(runs))
        assert [first for first, _, state in runs if state.is_acquirable] == list(self._acquirable)
        assert self.unfinished == sum(
            last + 1 - first for first, last, state in runs if not state.is_finished
        )
        held: Counter[str] = Counter()
        for first, last, state in runs:
            if isinstance(state, Acquired):
                held[state.member_id] += last + 1 - first
        assert held == self.held
        assert not runs or not runs[0][2].is_finished


class _Runs:
    """Runs in the order of offsets; neighbours with equal states become one run."""

    __slots__ = ("firsts", "states")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.states: list[State] = []

    def add(self, first: int, state: State) -> None:
        if self.states:
            before = self.states[-1]
            if before is state or before == state:
                return
        self.firsts.append(first)
        self.states.append(state)
