"""Runs of states: many changes at once, and reads of many ranges, as one offset after the other would have them."""

from __future__ import annotations

import random
from itertools import groupby

import pytest

from ottla.dataplane.share.state_runs import StateRuns
from ottla.dataplane.share.states import ACKNOWLEDGED, ARCHIVED, Acquired, Available, State

START, END = 10, 400
STATES: tuple[State, ...] = (Available(), Available(1), ACKNOWLEDGED, ARCHIVED, Acquired("a", 1, 5))


def some_runs(chance: random.Random, longest: int) -> tuple[StateRuns, dict[int, State]]:
    """Return runs of random states, and the state of each offset."""
    runs = StateRuns(START)
    runs.extend(START, Available(7))
    while runs.end < END:
        runs.extend(runs.end + chance.randrange(longest), chance.choice(STATES))
    return runs, {
        offset: state for first, last, state in runs.all_runs() for offset in range(first, last + 1)
    }


def some_ranges(chance: random.Random, count: int) -> list[tuple[int, int]]:
    """Return ranges in order, some of which begin before the window or end behind it."""
    edges = sorted(chance.sample(range(END + 20), 2 * count))
    return list(zip(edges[::2], edges[1::2], strict=True))


@pytest.mark.parametrize("longest", [1, 4, 200])
@pytest.mark.parametrize("count", [1, 2, 60])
def test_many_changes_at_once_are_those_of_single_offsets(longest: int, count: int) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        runs, states = some_runs(chance, longest)
        changes = []
        for first, last in some_ranges(chance, count):
            after = chance.choice(STATES)

            def change(state: State, after: State = after) -> State:
                return state if state == ARCHIVED else after

            changes.append((first, last, change))
            states.update({o: change(states[o]) for o in range(first, last + 1) if o in states})
        runs.update_all(changes)
        found = {o: state for first, last, state in runs.all_runs() for o in range(first, last + 1)}
        assert found == states, seed
        runs.drop_finished()
        runs.check()


@pytest.mark.parametrize("longest", [1, 4, 200])
def test_the_runs_of_many_ranges_are_those_of_their_offsets(longest: int) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        runs, states = some_runs(chance, longest)
        for count in (1, 2, 60):
            ranges = some_ranges(chance, count)
            expected = []
            for first, last in ranges:
                offsets = [offset for offset in range(first, last + 1) if offset in states]
                for state, equal in groupby(offsets, states.__getitem__):
                    run = [*equal]
                    expected.append((run[0], run[-1], state))
            assert list(runs.runs_in(ranges)) == expected, seed
    assert list(StateRuns(5).runs_in([(0, 9)])) == []


def test_the_end_of_states_is_the_end_of_a_run() -> None:
    runs = StateRuns(0)
    for last, state in ((9, Available()), (19, Available(1)), (29, ARCHIVED), (39, Available())):
        runs.extend(last, state)

    def is_available(state: State) -> bool:
        return isinstance(state, Available)

    assert runs.end_of_states(5, 7, is_available) == 10
    assert runs.end_of_states(5, 15, is_available) == 20
    assert runs.end_of_states(5, 35, is_available) == 20
    assert runs.end_of_states(25, 35, is_available) == 20
    assert runs.end_of_states(30, 100, is_available) == 40


def test_changes_of_an_empty_window_do_nothing() -> None:
    runs = StateRuns(5)
    runs.update_all([(0, 4, lambda _state: ARCHIVED), (5, 9, lambda _state: ARCHIVED)])
    runs.check()
    assert (runs.start, runs.end) == (5, 5)
