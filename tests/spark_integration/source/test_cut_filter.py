"""The contents of micro-batches, compared with a scan of the whole log: every committed record once, no transaction
torn.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla import TopicPartition
from ottla.client.transactions.cut_filter import CutFilter, Step, Window
from ottla.spark_integration.source.slices import Range, split

from .log_model import TOPIC, Log, read_through

ENOUGH = 1 << 30


def read_batch(
    log: Log,
    start: dict[TopicPartition, tuple[int, int]],
    end: dict[TopicPartition, int],
    random: Random,
    bytes_max: int,
) -> dict[TopicPartition, list[int]]:
    """Return all slices of a micro-batch. `start`: offset, and the beginning of open transactions."""
    found: dict[TopicPartition, list[int]] = {}
    ranges = [
        Range(partition, start[partition][1], end[partition], Window(start[partition][0], end[partition]))
        for partition in log.partitions
    ]
    ranges = [range_ for range_ in ranges if range_.window and range_.window.start < range_.window.end]
    for range_ in split(ranges, at_least=random.choice((None, 3, 8)), records_max=random.choice((None, 5))):
        assert range_.window is not None
        cut = CutFilter(range_.start, range_.end, range_.window, bytes_max)
        found.setdefault(range_.partition, []).extend(
            read_through(log.partitions[range_.partition], cut, range_.end, random)
        )
    return found


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), st.sampled_from([0, 150, ENOUGH]), st.integers(1, 60))
def test_micro_batches_hold_every_committed_record_once_and_no_transaction_in_part(
    random: Random, bytes_max: int, steps: int
) -> None:
    log = Log.of(random.randint(1, 3))
    log.grow(random, steps)
    indexes = sorted(random.sample(range(-1, log.decided), random.randint(0, log.decided)))
    start = dict.fromkeys(log.partitions, (0, 0))
    seen: dict[TopicPartition, list[int]] = {partition: [] for partition in log.partitions}
    batch_of: dict[int, int] = {}
    for number, index in enumerate([*indexes, log.decided - 1]):
        cuts = {partition: log.cut_offset(partition, index) for partition in log.partitions}
        offsets = {partition: cut.offset for partition, cut in cuts.items()}
        for partition, given_ in read_batch(log, start, offsets, random, bytes_max).items():
            assert given_ == sorted(given_)
            seen[partition] += given_
            for offset in given_:
                transaction = log.transaction_at(partition, offset)
                if transaction >= 0:
                    assert batch_of.setdefault(transaction, number) == number
                    assert log.committed[transaction] <= index
        start = {partition: (cut.offset, cut.open_from) for partition, cut in cuts.items()}
    for partition, offsets_seen in seen.items():
        assert sorted(offsets_seen) == sorted(log.committed_records(partition, log.end(partition)))


def test_one_that_stays_open_makes_the_rest_be_read_for_its_markers_alone() -> None:
    """The held records stay within the bound in this manner; later records are given out afterwards, once."""
    log, partition = Log.of(1), TopicPartition(TOPIC, 0)
    log.produce(partition, 1, producer_id=0)
    for _ in range(50):
        log.produce(partition, 10)
    log.decide(0, commits=True)
    end = log.end(partition)
    batch_bytes = len(log.partitions[partition][1].data)
    cut = CutFilter(0, end, Window(0, end), 3 * batch_bytes)
    scanned = 0
    for entry in log.partitions[partition]:
        if cut.step is Step.SCAN:
            scanned += 1
            cut.scan(entry.header, entry.data)
        else:
            cut.read(entry.header, entry.data)
            assert not cut.take() or scanned
    assert scanned > 45
    assert cut.step is Step.SCAN
    assert len(cut.take()) == 52 - scanned
    assert cut.step is Step.READ
    again = [entry for entry in log.partitions[partition] if entry.header.next_offset > cut.position]
    for entry in again:
        cut.read(entry.header, entry.data)
    assert len(cut.take()) == scanned - 1
    assert cut.step is Step.NOTHING


@pytest.mark.parametrize("aborted", [True, False])
def test_what_is_aborted_or_still_open_is_left_out(aborted: bool) -> None:
    log, partition = Log.of(1), TopicPartition(TOPIC, 0)
    log.produce(partition, 3, producer_id=0)
    log.produce(partition, 2)
    if aborted:
        log.decide(0, commits=False)
    end = log.end(partition)
    assert read_through(
        log.partitions[partition], CutFilter(0, end, Window(0, end), ENOUGH), end, Random(1)
    ) == [
        3,
        4,
    ]


@given(
    st.lists(st.integers(0, 50), max_size=6),
    st.one_of(st.none(), st.integers(1, 30)),
    st.one_of(st.none(), st.integers(1, 30)),
)
def test_slices_are_the_ranges_and_as_many_and_small_as_asked_for(
    sizes: list[int], at_least: int | None, records_max: int | None
) -> None:
    ranges = [Range(TopicPartition(TOPIC, index), 7, 7 + size, None) for index, size in enumerate(sizes)]
    slices = split(ranges, at_least=at_least, records_max=records_max)
    covered = sorted(
        (range_.partition, offset) for range_ in slices for offset in range(range_.start, range_.end)
    )
    assert covered == sorted(
        (range_.partition, offset) for range_ in ranges for offset in range(range_.start, range_.end)
    )
    assert all(range_.size for range_ in slices)
    if records_max is not None:
        assert all(range_.size <= records_max for range_ in slices)
    if at_least is not None and slices:
        assert len(slices) >= min(at_least, sum(sizes))
