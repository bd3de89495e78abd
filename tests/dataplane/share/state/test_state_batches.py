"""Combined state batches against a model that has a state for each offset."""

from __future__ import annotations

import cProfile
from collections.abc import Iterable
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.share.state.state_batches import StateBatches, stronger
from ottla.dataplane.share.states import DurableState, StateBatch

_OFFSETS = 40


@st.composite
def state_batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, _OFFSETS - 1))
    last = draw(st.integers(first, min(_OFFSETS - 1, first + 12)))
    return StateBatch(first, last, draw(st.sampled_from(DurableState)), draw(st.integers(0, 3)))


def by_offset(batches: Iterable[StateBatch], start: int = 0) -> dict[int, tuple[DurableState, int]]:
    """Return state and count of each offset: the strongest of all batches that have the offset."""
    states: dict[int, StateBatch] = {}
    for batch in batches:
        for offset in range(max(batch.first, start), batch.last + 1):
            states[offset] = stronger(states.get(offset, batch), batch)
    return {offset: (batch.state, batch.delivery_count) for offset, batch in states.items()}


def check(batches: tuple[StateBatch, ...]) -> None:
    for batch, following in pairwise(batches):
        assert batch.last < following.first
        assert batch.last + 1 < following.first or batch[2:] != following[2:]
    assert all(batch.first <= batch.last for batch in batches)


@given(st.lists(state_batches(), max_size=12), st.integers(0, _OFFSETS))
def test_each_offset_has_the_strongest_of_its_states(added: list[StateBatch], start: int) -> None:
    combined = StateBatches(added)
    check(combined.as_tuple())
    assert by_offset(combined.as_tuple()) == by_offset(added)
    combined.drop_below(start)
    check(combined.as_tuple())
    assert by_offset(combined.as_tuple()) == by_offset(added, start)


@given(st.lists(state_batches(), max_size=8), st.randoms())
def test_late_and_repeated_batches_change_nothing(added: list[StateBatch], random: Random) -> None:
    shuffled = added + added[:3]
    random.shuffle(shuffled)
    assert StateBatches(shuffled).as_tuple() == StateBatches(added).as_tuple()


def test_many_batches_are_combined_together() -> None:
    """A write of 24,000 batches took the coordinator 0.2 s, and its repetition 0.28 s."""
    count = 3_000
    written = [
        StateBatch(offset, offset, DurableState(2 * (offset % 2)), 1 - offset % 2) for offset in range(count)
    ]
    profile = cProfile.Profile()
    profile.enable()
    batches = StateBatches(written)
    batches.add_all(written)
    profile.disable()
    assert batches.as_tuple() == tuple(written)
    assert sum(entry.callcount for entry in profile.getstats()) < 60 * count


def test_far_batches_are_combined_alone() -> None:
    written = [StateBatch(2 * offset, 2 * offset, DurableState.ACKNOWLEDGED) for offset in range(3_000)]
    batches = StateBatches(written)
    profile = cProfile.Profile()
    profile.enable()
    batches.add_all([StateBatch(1, 1, DurableState.ACKNOWLEDGED), written[-1]])
    profile.disable()
    assert batches.as_tuple() == (StateBatch(0, 2, DurableState.ACKNOWLEDGED), *written[2:])
    assert sum(entry.callcount for entry in profile.getstats()) < 300


def test_a_finished_state_without_a_count_is_stronger_than_a_counted_delivery() -> None:
    available = StateBatch(0, 9, DurableState.AVAILABLE, 3)
    acknowledged = StateBatch(4, 4, DurableState.ACKNOWLEDGED)
    assert StateBatches([acknowledged, available]).as_tuple() == (
        StateBatch(0, 3, DurableState.AVAILABLE, 3),
        acknowledged,
        StateBatch(5, 9, DurableState.AVAILABLE, 3),
    )
