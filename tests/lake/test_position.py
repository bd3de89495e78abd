"""The position of a table in its topic: its properties, and the ranges that rounds read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import TopicPartition
from ottla.client.transactions.cut_search import ReadPlace
from ottla.lake.failures import TableRefused
from ottla.lake.position import (
    FROM,
    TO,
    PartitionReach,
    TablePosition,
    check_same_topic,
    cut_position,
    position_properties,
    read_position,
)

OFFSETS = st.integers(0, 1 << 62)


@st.composite
def places(draw: st.DrawFn) -> PartitionReach:
    """Return a place whose open transactions begin at or before it."""
    open_from, offset = sorted((draw(OFFSETS), draw(OFFSETS)))
    return PartitionReach(offset, open_from)


POSITIONS = st.builds(
    TablePosition,
    st.just("orders"),
    st.just("0a0b"),
    st.just("cluster"),
    st.integers(-1, 1 << 40),
    st.dictionaries(st.integers(0, 5), places()),
)


@given(POSITIONS, POSITIONS)
def test_a_snapshots_properties_have_the_position(start: TablePosition, end: TablePosition) -> None:
    properties = position_properties(start, end)
    assert read_position(properties) == end
    assert read_position({**properties, TO: properties[FROM]}) == replace(end, places=start.places)


@given(POSITIONS, POSITIONS)
def test_a_position_never_moves_backwards(start: TablePosition, cut: TablePosition) -> None:
    end = start.moved_to(cut)
    assert not end.is_before(start)
    assert not end.is_before(cut)
    assert end.cut == max(start.cut, cut.cut)
    assert end.places.keys() == start.places.keys() | cut.places.keys()


@given(POSITIONS, POSITIONS)
def test_the_ranges_are_what_lies_between_two_positions(start: TablePosition, cut: TablePosition) -> None:
    end = start.moved_to(cut)
    ranges = start.ranges_to(end)
    assert sum(range_.window.end - range_.window.start for range_ in ranges) == start.offsets_to(end)
    for range_ in ranges:
        assert range_.first == start.place(range_.partition).open_from <= range_.window.start
    assert end.ranges_to(end) == []


@given(POSITIONS, st.dictionaries(st.integers(0, 5), OFFSETS))
def test_lost_records_are_named_and_passed_over(start: TablePosition, beginnings: dict[int, int]) -> None:
    begun = start.begun_at(beginnings)
    assert begun.lost(beginnings) == {}
    known = {index for index, place in start.places.items() if place.open_from < beginnings.get(index, 0)}
    assert start.lost(beginnings).keys() == known
    assert all(begun.place(index).offset >= beginning for index, beginning in beginnings.items())


def test_a_cut_has_the_places_of_its_topic() -> None:
    found = {TopicPartition("orders", 1): ReadPlace(7, 5), TopicPartition("other", 0): ReadPlace(9, 9)}
    own = {partition: PartitionReach(*place) for partition, place in found.items()}
    assert cut_position("orders", "0a", "c", 4, own).places == {1: PartitionReach(7, 5)}


@pytest.mark.parametrize(
    "vector", ["", "[]", "{", '{"0": 3}', '{"0": [3]}', '{"0": [3, 4]}', '{"0": [-1, -1]}', '{"x": [1, 1]}']
)
def test_a_damaged_position_is_refused(vector: str) -> None:
    properties = position_properties(
        TablePosition("t", "", ""), TablePosition("t", "", "", 1, {0: PartitionReach(1, 1)})
    )
    given = {**properties, TO: vector}
    if not vector:
        assert read_position(given) is None
        return
    with pytest.raises(TableRefused, match="damaged position"):
        read_position(given)


def test_a_topic_that_was_made_anew_is_refused() -> None:
    position = TablePosition("orders", "0a", "cluster")
    check_same_topic(position, position, "lake.orders")
    with pytest.raises(TableRefused, match="accept-new"):
        check_same_topic(position, replace(position, topic_id="0b"), "lake.orders")
    with pytest.raises(TableRefused, match="accept-new"):
        check_same_topic(position, replace(position, cluster="other"), "lake.orders")
    with pytest.raises(TableRefused, match=r"`ottla lake take-over lake.orders`"):
        check_same_topic(position, replace(position, cluster="other"), "lake.orders")
    with pytest.raises(TableRefused, match="another ottla"):
        check_same_topic(position, replace(position, topic="bills"), "lake.orders")


@given(POSITIONS, st.dictionaries(st.integers(0, 5), OFFSETS))
def test_a_position_is_ahead_of_partitions_that_end_before_it(
    position: TablePosition, ends: dict[int, int]
) -> None:
    ahead = position.ahead_of(ends)
    assert ahead == sorted(ahead)
    assert {partition for partition, _, _ in ahead} == {
        index for index, place in position.places.items() if ends.get(index, 0) < place.offset
    }
    for partition, offset, end in ahead:
        assert (offset, end) == (position.places[partition].offset, ends.get(partition, 0))
    reached = {index: place.offset for index, place in position.places.items()}
    assert not position.ahead_of(reached)


def test_a_copy_continues_a_position_at_the_same_offsets() -> None:
    position = TablePosition("orders", "0a", "west", 40, {0: PartitionReach(7, 5)})
    now = TablePosition("orders", "0b", "east")
    assert position.continued_by(now, 90) == TablePosition("orders", "0b", "east", 40, position.places)
    assert position.continued_by(now, 30).cut == 30, "a cut that the new cluster does not have yet"
