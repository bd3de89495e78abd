"""The ends of micro-batches, planned over partitions in memory, and their resulting contents."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla import TopicPartition
from ottla.client.admin import Cut, CutOffset
from ottla.client.transactions.cut_filter import CutFilter
from ottla.client.transactions.cut_search import CutSearch, spread
from ottla.spark_integration.source.admission import is_due
from ottla.spark_integration.source.cluster_view import Found
from ottla.spark_integration.source.data_loss import DataLost
from ottla.spark_integration.source.position import (
    PartitionPosition,
    Position,
    WrongCheckpoint,
    read_position,
)
from ottla.spark_integration.source.settings import SourceSettings, read_settings
from ottla.spark_integration.source.stream_planner import StreamPlanner

from .log_model import TOPIC, Log, read_through

OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": TOPIC}


class View:
    """A cluster with one topic in memory."""

    def __init__(self, log: Log, isolation: str = "atomic") -> None:
        self.log = log
        self.level = isolation
        self.topic_id = "0a"
        self.cluster = "west"
        self.missing: set[TopicPartition] = set()
        self.log_starts: dict[TopicPartition, int] = {}

    async def cluster_id(self) -> str:
        return self.cluster

    async def isolation(self) -> str:
        return self.level

    async def partitions(self, *, must_exist: bool = False) -> Found:
        return Found(frozenset(self.log.partitions) - self.missing, {TOPIC: self.topic_id})

    async def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.log_starts.get(partition, 0) for partition in partitions}

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.log.end(partition) for partition in partitions}

    async def ends_reaching(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return await self.ends(offsets)

    async def newest_cut(self, partitions: Collection[TopicPartition]) -> Cut:
        return self.log.newest_cut()

    async def cut_offsets(
        self, cut: Cut, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CutOffset]:
        return {partition: self.log.cut_offset(partition, cut.commit_index) for partition in partitions}


def planner(log: Log, isolation: str = "atomic", **options: str) -> tuple[StreamPlanner, View]:
    view = View(log, isolation)
    given_ = read_settings({**OPTIONS, "startingOffsets": "earliest", **options}, streaming=True)
    return StreamPlanner(given_, view), view  # type: ignore[arg-type]


def stored(position: Position) -> Position:
    """Return the position as restored from the checkpoint."""
    assert read_position(position.to_json()) == position
    return read_position(position.to_json())


async def batch(
    plan: StreamPlanner, log: Log, start: Position, end: Position
) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for range_ in await plan.ranges(start, end):
        assert range_.window is not None
        cut = CutFilter(range_.start, range_.end, range_.window, 1 << 30)
        found[range_.partition] = read_through(log.partitions[range_.partition], cut, range_.end, Random(0))
    return found


@settings(max_examples=200)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.booleans())
def test_limited_micro_batches_come_to_everything_once(
    random: Random, maximum: int, available_now: bool
) -> None:
    """The log grows meanwhile, with restarts in between."""

    async def run() -> None:
        log = Log.of(random.randint(1, 3))
        log.grow(random, random.randint(0, 80))
        plan, _ = planner(log, maxOffsetsPerTrigger=str(maximum))
        start = stored(await plan.first())
        if available_now:
            await plan.stop_at_newest()
            end_of_run = dict.fromkeys(log.partitions, 0) | {
                partition: log.end(partition) for partition in log.partitions
            }
        seen: dict[TopicPartition, list[int]] = {partition: [] for partition in log.partitions}
        batch_of: dict[int, int] = {}
        number = 0
        growths = 0 if available_now else random.randint(0, 30)
        while True:
            end = stored(await plan.next(start, limited=True))
            if growths:
                growths -= 1
                log.grow(random, random.randint(0, 8))
            elif end == start:
                break
            number += 1
            size = sum(
                end.places[partition].offset - start.places[partition].offset for partition in log.partitions
            )
            assert all(
                end.places[partition].offset >= start.places[partition].offset for partition in log.partitions
            )
            for partition, offsets in (await batch(plan, log, start, end)).items():
                seen[partition] += offsets
                for offset in offsets:
                    transaction = log.transaction_at(partition, offset)
                    if transaction >= 0:
                        assert batch_of.setdefault(transaction, number) == number
            if size > maximum:
                decided = [index for index in log.committed.values() if start.cut < index < end.cut]
                assert end.cut == start.cut + 1 or not decided
            start = end
            if random.random() < 0.2 and not available_now:
                plan, _ = planner(log, maxOffsetsPerTrigger=str(maximum))
        for partition in log.partitions:
            if not available_now:
                assert start.places[partition].offset == log.end(partition)
            else:
                assert start.places[partition].offset == end_of_run[partition]
            assert sorted(seen[partition]) == sorted(log.committed_records(partition, log.end(partition)))

    asyncio.run(run())


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 100), min_size=1), st.integers(0, 400))
def test_an_allowance_is_spread_in_proportion_and_wholly(room: dict[int, int], allowance: int) -> None:
    shares = spread(allowance, room)
    assert sum(shares.values()) == min(allowance, sum(room.values()))
    total = sum(room.values())
    for key, share in shares.items():
        assert 0 <= share <= room[key]
        if total > allowance:
            assert abs(share - room[key] * allowance / total) <= 1


@given(st.lists(st.integers(0, 20), min_size=1, max_size=300), st.integers(0, 500), st.integers(-1, 1000))
def test_a_cut_within_the_allowance_is_found(steps: list[int], allowance: int, first: int) -> None:
    costs = {first: 0}
    for at, step in enumerate(steps):
        costs[first + at + 1] = costs[first + at] + step
    newest = first + len(steps)
    search = CutSearch(first, newest, costs[newest], allowance)
    probes = 0
    while (index := search.next_index) is not None:
        search.tell(index, costs[index])
        probes += 1
    assert costs[search.found] <= allowance
    if costs[search.found] < 0.8 * allowance:
        assert search.found == max(index for index, cost in costs.items() if cost <= allowance)
        assert search.behind == min(search.found + 1, newest)
    assert probes <= 2 * (len(steps).bit_length() + 1)


def test_a_micro_batch_waits_for_enough_but_not_for_ever() -> None:
    assert not is_due(0, None, 1e9, 0)
    assert is_due(1, None, 0, 1000)
    assert not is_due(9, 10, 999, 1000)
    assert is_due(10, 10, 0, 1000)
    assert is_due(1, 10, 1000, 1000)


def test_among_many_transactions_alike_a_cut_is_found_with_few_questions() -> None:
    search, probes = CutSearch(0, 1_000_000, 50_000_000, 10_000), 0
    while (index := search.next_index) is not None:
        search.tell(index, 50 * index)
        probes += 1
    assert probes <= 2
    assert 160 <= search.found <= 200


async def test_a_topic_that_was_made_anew_is_lost_data_and_read_from_its_beginning() -> None:
    log = Log.of(1)
    log.produce(TopicPartition(TOPIC, 0), 10)
    plan, view = planner(log)
    end = await plan.next(await plan.first(), limited=True)
    view.topic_id, view.log = "0b", Log.of(1)
    view.log.produce(TopicPartition(TOPIC, 0), 10)
    with pytest.raises(DataLost, match="'orders' was deleted and made anew"):
        await plan.next(end, limited=True)
    going_on, _ = planner(view.log, failOnDataLoss="false")
    going_on._view = view  # type: ignore[assignment]
    after = await going_on.next(end, limited=True)
    assert [(range_.start, range_.end) for range_ in await going_on.ranges(end, after)] == [(0, 10)]


async def test_a_batch_that_was_planned_is_not_read_from_a_topic_that_was_made_anew() -> None:
    """The query ended before it had read the batch, and is restarted. Other records have the planned offsets now."""
    log = Log.of(1)
    log.produce(TopicPartition(TOPIC, 0), 10)
    plan, view = planner(log)
    start = await plan.first()
    end = await plan.next(start, limited=True)
    view.topic_id, view.log = "0b", Log.of(1)
    view.log.produce(TopicPartition(TOPIC, 0), 20)
    with pytest.raises(DataLost, match="'orders' was deleted and made anew before a planned batch was read"):
        await plan.ranges(start, end)
    lenient = StreamPlanner(_lenient(), view)  # type: ignore[arg-type]
    assert await lenient.ranges(start, end) == []
    after = await lenient.next(end, limited=True)
    assert [(range_.start, range_.end) for range_ in await lenient.ranges(end, after)] == [(0, 20)]


async def test_deleted_partitions_and_records_are_told_of_or_left_out() -> None:
    first, other = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    log = Log.of(2)
    for partition in (first, other):
        log.produce(partition, 10)
    plan, view = planner(log)
    start = await plan.first()
    end = await plan.next(start, limited=True)
    view.log_starts = {first: 4}
    with pytest.raises(DataLost, match="orders-0 begins at offset 4 by now"):
        await plan.ranges(start, end)
    view.log_starts, view.missing = {}, {other}
    with pytest.raises(DataLost, match="orders-1 was deleted before offsets 0 to 10 were read"):
        await plan.ranges(start, end)
    with pytest.raises(DataLost, match="partitions were deleted, or are not read any more: orders-1"):
        await plan.next(end, limited=True)
    lenient = StreamPlanner(_lenient(), view)  # type: ignore[arg-type]
    view.log_starts = {first: 4}
    assert [(part.partition, part.start, part.end) for part in await lenient.ranges(start, end)] == [
        (first, 4, 10)
    ]
    assert (await lenient.next(end, limited=True)).places == {first: PartitionPosition(10, 10)}


async def test_a_log_that_has_lost_records_is_told_of_before_new_records_get_their_offsets() -> None:
    """The log of orders-1 was cut off at offset 6, and the query has read up to 10."""
    first, other = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    log = Log.of(2)
    for partition in (first, other):
        log.produce(partition, 10)
    plan, view = planner(log)
    end = await plan.next(await plan.first(), limited=True)
    view.log = Log.of(2)
    view.log.produce(first, 12)
    view.log.produce(other, 6)
    with pytest.raises(DataLost, match="orders-1 ends at offset 6 by now, and was read up to 10"):
        await plan.next(end, limited=True)
    lenient = StreamPlanner(_lenient(), view)  # type: ignore[arg-type]
    set_back = await lenient.next(end, limited=True)
    assert set_back.places == {first: PartitionPosition(10, 10), other: PartitionPosition(6, 6)}
    assert await lenient.ranges(end, set_back) == []
    view.log.produce(other, 3)
    after = await lenient.next(set_back, limited=True)
    read = [(part.partition, part.start, part.end) for part in await lenient.ranges(set_back, after)]
    assert read == [(first, 10, 12), (other, 6, 9)]


async def test_an_older_cut_alone_is_no_loss() -> None:
    log = Log.of(1)
    log.produce(TopicPartition(TOPIC, 0), 10)
    plan, view = planner(log)
    end = await plan.next(await plan.first(), limited=True)

    async def older(cut: Cut, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CutOffset]:
        return dict.fromkeys(partitions, CutOffset(8, 8, 0))

    view.cut_offsets = older  # type: ignore[method-assign]
    assert await plan.next(end, limited=True) == end


def _lenient() -> SourceSettings:
    return replace(read_settings(OPTIONS, streaming=True), fail_on_data_loss=False)


async def test_a_checkpoint_with_an_open_transaction_is_read_on_as_it_was_written() -> None:
    log = Log.of(1)
    log.produce(TopicPartition(TOPIC, 0), 3, producer_id=1)
    plan, _ = planner(log)
    end = await plan.next(await plan.first(), limited=True)
    assert end.places == {TopicPartition(TOPIC, 0): PartitionPosition(3, 0)}
    other, _ = planner(log, "read_committed")
    with pytest.raises(
        WrongCheckpoint, match="written with isolation=atomic, and a transaction is open in orders-0"
    ):
        await other.next(end, limited=True)
    log.decide(1, commits=True)
    whole = await plan.next(end, limited=True)
    assert (await other.next(whole, limited=True)).places == whole.places


@pytest.mark.parametrize("isolation", ["atomic", "read_committed"])
async def test_a_checkpoint_of_another_cluster_is_refused_wherever_it_stands(isolation: str) -> None:
    """The checkpoint's end is a planned batch, which is replayed."""
    log = Log.of(1)
    log.produce(TopicPartition(TOPIC, 0), 3)
    plan, _ = planner(log, isolation)
    start = stored(await plan.first())
    end = stored(await plan.next(start, limited=True))
    assert (start.cluster, end.cluster) == ("west", "west")
    other, view = planner(log, isolation)
    view.cluster = "east"
    for refused in (other.next(start, limited=True), other.next(end, limited=True), other.ranges(start, end)):
        with pytest.raises(
            WrongCheckpoint, match=r"written with cluster west, and east is read now.*take-over"
        ):
            await refused
    moved = replace(start, cluster="east")
    with pytest.raises(WrongCheckpoint, match="with cluster west"):
        await other.ranges(moved, end)
    assert (await other.next(moved, limited=True)).cluster == "east"
    unknown = replace(start, cluster="")
    assert "cluster" not in unknown.to_json(), "as earlier releases have it"
    assert (await other.next(stored(unknown), limited=True)).cluster == "east"


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"orders": {"0": 5}}, "which format.*ottla.* has not written"),
        ("gibberish", "has not written"),
        (
            {"ottla": 2, "isolation": "atomic", "cut": 1, "topics": {}},
            "format 2, this release of Ottla knows 1",
        ),
        ({"ottla": 1, "isolation": "atomic", "cut": 1}, "damaged offsets"),
        (
            {
                "ottla": 1,
                "isolation": "atomic",
                "cut": 1,
                "topics": {"t": {"id": "", "partitions": {"0": {"offset": -1}}}},
            },
            "-1 is no offset",
        ),
        (
            {
                "ottla": 1,
                "isolation": "atomic",
                "cut": 1,
                "topics": {"t": {"id": "", "partitions": {"0": {"offset": 3, "openFrom": 4}}}},
            },
            "openFrom 4 is above offset 3",
        ),
    ],
)
def test_what_is_no_position_is_refused(given_: Any, says: str) -> None:
    with pytest.raises(WrongCheckpoint, match=says):
        read_position(given_)
