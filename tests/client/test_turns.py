"""The order in which a consumer takes records of its partitions, and the share of a lagging partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from ottla.client.consuming.assigned import CHUNKS_AHEAD, AssignedPartition
from ottla.client.consuming.columns.fetching import FetchedColumns
from ottla.client.consuming.fetched import FetchedRecords
from ottla.client.consuming.fetcher import Fetcher
from ottla.client.consuming.inbox import Inbox
from ottla.client.consuming.turns import Turns
from ottla.client.records import TopicPartition
from ottla.protocol.records.record import encode_batch
from ottla.protocol.records.record_batch import patch_offset_and_epoch


def places(number: int) -> list[TopicPartition]:
    return [TopicPartition("t", index) for index in range(number)]


class Taking:
    """A consumer's takes of up to `limit` records from partitions with given numbers of waiting records."""

    def __init__(self, partitions: int, limit: int) -> None:
        self.turns = Turns()
        self.turns.keep(places(partitions))
        self.waiting: Counter[TopicPartition] = Counter()
        self.limit = limit

    def take(self) -> list[tuple[TopicPartition, int]]:
        """Take, and return the record count of each partition in order."""
        taken: list[tuple[TopicPartition, int]] = []
        left = self.limit
        ring = self.turns.ring

        def ready_from(begin: int) -> Iterator[int]:
            places = (*range(begin, len(ring)), *range(begin))
            return iter([place for place in places if self.waiting[ring[place]]])

        for place in self.turns.take(ready_from):
            partition = ring[place]
            some = min(left, self.waiting[partition])
            taken.append((partition, some))
            self.waiting[partition] -= some
            left -= some
            if not left:
                self.turns.ended_at(place, has_more=self.waiting[partition] > 0)
                break
        return taken


@st.composite
def loads(draw: st.DrawFn) -> tuple[int, int, list[list[int]]]:
    """Draw a number of partitions, a limit, and the arrivals in each partition before each take."""
    partitions = draw(st.integers(1, 6))
    arrivals = st.lists(st.integers(0, 12), min_size=partitions, max_size=partitions)
    return partitions, draw(st.integers(1, 20)), draw(st.lists(arrivals, min_size=1, max_size=80))


@given(loads())
def test_a_take_has_each_partition_once_and_stops_at_its_limit(
    load: tuple[int, int, list[list[int]]],
) -> None:
    partitions, limit, arrivals = load
    taking = Taking(partitions, limit)
    for arrived in arrivals:
        taking.waiting.update(dict(zip(places(partitions), arrived, strict=True)))
        before = +taking.waiting
        taken = taking.take()
        assert len(dict(taken)) == len(taken)
        assert sum(number for _, number in taken) == min(limit, before.total())
        order = [partition.partition for partition, _ in taken]  # Round the ring once.
        assert order in [sorted(order)[place:] + sorted(order)[:place] for place in range(len(order) or 1)]


@given(loads())
def test_the_next_take_begins_where_the_last_one_was_cut_short(
    load: tuple[int, int, list[list[int]]],
) -> None:
    """The exception is a partition that was first there too, or was first again since its last turn."""
    partitions, limit, arrivals = load
    taking = Taking(partitions, limit)
    cut: TopicPartition | None = None
    begun_with: list[TopicPartition] = []
    for arrived in arrivals:
        taking.waiting.update(dict(zip(places(partitions), arrived, strict=True)))
        taken = taking.take()
        if not taken:
            continue
        first, (last, _) = taken[0][0], taken[-1]
        note(f"{first} first, {last} last, {cut} cut short before")
        if cut is not None and begun_with[-1] != cut and cut not in begun_with[-partitions:]:
            assert first == cut
        begun_with.append(first)
        cut = last if taking.waiting[last] else None


@given(loads(), st.data())
def test_none_is_first_more_than_twice_as_often_as_another(
    load: tuple[int, int, list[list[int]]], data: st.DataObject
) -> None:
    """This concerns partitions with records at each take; the one or two of an unfinished round do not count."""
    partitions, limit, arrivals = load
    busy = data.draw(st.sets(st.sampled_from(places(partitions)), min_size=1))
    taking = Taking(partitions, limit)
    firsts = Counter(dict.fromkeys(busy, 0))
    for arrived in arrivals:
        taking.waiting.update(dict(zip(places(partitions), arrived, strict=True)))
        for partition in busy:
            taking.waiting[partition] += 1
        taken = taking.take()
        firsts[taken[0][0]] += 1
        of_busy = [firsts[partition] for partition in busy]
        assert max(of_busy) <= 2 * min(of_busy) + 2


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=20), st.integers(1, 4))
def test_partitions_come_and_go(assigned: list[set[int]], limit: int) -> None:
    taking = Taking(0, limit)
    for some in assigned:
        taking.turns.keep([TopicPartition("t", index) for index in sorted(some)])
        taking.waiting = Counter({TopicPartition("t", index): 3 for index in some})
        for _ in range(2):
            taken = taking.take()
            assert {partition.partition for partition, _ in taken} <= some
            assert bool(taken) == bool(+taking.waiting) or not +taking.waiting


# ------------------------------------------------------------ results of reads


class Overloaded:
    """A consumer of six partitions that are written to faster than it reads; one lags far."""

    CHUNK = 40
    LIMIT = 50
    ARRIVING = 10
    """Records that arrive in each partition before each read: 60 in total for every 50 that are read."""

    def __init__(self, late: int) -> None:
        self.late = places(6)[late]
        self.states = {partition: AssignedPartition(partition, position=0) for partition in places(6)}
        self.ends = dict.fromkeys(self.states, 0) | {self.late: 5_000}
        fetcher = SimpleNamespace(assigned=self.states, changed=lambda: None)
        self.inbox = Inbox(cast(Fetcher, fetcher), None)
        self.inbox.reassigned()
        self.batches: dict[int, bytes] = {}

    def arrive(self) -> None:
        for partition, state in self.states.items():
            self.ends[partition] += self.ARRIVING
            while len(state.buffer) < CHUNKS_AHEAD and state.fetch_offset < self.ends[partition]:
                count = min(self.CHUNK, self.ends[partition] - state.fetch_offset)
                batch = bytearray(self._batch(count))
                patch_offset_and_epoch(batch, 0, state.fetch_offset, 1)
                state.buffer.append(FetchedRecords(partition, memoryview(batch), state.fetch_offset))
                state.fetch_offset += count

    def lag(self, partition: TopicPartition) -> int:
        return self.ends[partition] - (self.states[partition].position or 0)

    def _batch(self, count: int) -> bytes:
        if count not in self.batches:
            self.batches[count] = bytes(encode_batch([(None, b"x", 1_000, ())] * count))
        return self.batches[count]


def records(load: Overloaded) -> dict[TopicPartition, int]:
    return {partition: len(some) for partition, some in load.inbox.take(set(), load.LIMIT).items()}


def columns(load: Overloaded) -> dict[TopicPartition, int]:
    before = {partition: state.position or 0 for partition, state in load.states.items()}
    FetchedColumns(load.inbox, set(), load.LIMIT, False).take()
    return {partition: (state.position or 0) - before[partition] for partition, state in load.states.items()}


@pytest.mark.parametrize("read", [records, columns])
@pytest.mark.parametrize("late", range(6))
def test_under_overload_the_one_that_is_behind_gets_its_share(late: int, read: object) -> None:
    """The lagging partition fell back further with each read, besides others without any lag."""
    if read is columns:
        pytest.importorskip("pyarrow")
    load = Overloaded(late)
    taken: Counter[TopicPartition] = Counter()
    for _ in range(240):
        load.arrive()
        taken.update((records if read is records else columns)(load))
    assert taken.total() == 240 * load.LIMIT
    assert taken[load.late] >= taken.total() / 6
    others = [taken[partition] for partition in load.states if partition != load.late]
    assert max(others) <= 2 * min(others)
