"""The records of an answer that the member has acquired: they are read out of whole batches, gaps and damage apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.records import TopicPartition
from ottla.client.sharing.acquired import AcquiredOffsets, acquired_records
from ottla.protocol.messages.share_fetch import AcquiredRecords
from ottla.protocol.records.record import ControlType
from tests.client.test_fetched import LogBuilder

ORDERS = TopicPartition("orders", 0)


def ranges(*acquired: tuple[int, int, int]) -> list[AcquiredRecords]:
    return [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in acquired
    ]


def read(log: LogBuilder, *acquired: tuple[int, int, int]) -> AcquiredOffsets:
    return acquired_records(ORDERS, memoryview(bytes(log.data)), ranges(*acquired))


def offsets_of(found: AcquiredOffsets) -> list[tuple[int, int]]:
    return [(record.offset, count) for record, count in found.records]


def test_only_acquired_records_of_a_batch_are_read() -> None:
    log = LogBuilder(10).add(*(b"%d" % number for number in range(10)))
    found = read(log, (12, 13, 1), (17, 17, 4))
    assert offsets_of(found) == [(12, 1), (13, 1), (17, 4)]
    assert [record.value for record, _ in found.records] == [b"2", b"3", b"7"]
    assert not found.gaps
    assert not found.damages


def test_acquired_offsets_without_records_are_gaps() -> None:
    log = LogBuilder().add(b"a").end(ControlType.COMMIT, 7)
    log.next_offset = 5  # Compaction removed offsets 2 to 4.
    log.add(b"b")
    found = read(log, (0, 5, 1))
    assert offsets_of(found) == [(0, 1), (5, 1)]
    assert found.gaps == [(1, 1), (2, 4)]


def test_a_damaged_batch_is_damage_and_the_next_batch_is_read() -> None:
    log = LogBuilder().add(b"a", b"b")
    log.data[-1] ^= 1
    log.add(b"c")
    found = read(log, (1, 2, 3))
    ((first, last, count, error),) = found.damages
    assert (first, last, count) == (1, 1, 3)
    assert error.next_offset == 2
    assert offsets_of(found) == [(2, 3)]


def test_acquired_offsets_behind_the_end_of_the_bytes_are_damage() -> None:
    found = read(LogBuilder().add(b"a"), (0, 3, 1))
    assert offsets_of(found) == [(0, 1)]
    assert [(damage.first, damage.last) for damage in found.damages] == [(1, 3)]


@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=6),
    acquired=st.sets(st.integers(0, 40)),
    cut=st.integers(0, 20),
)
def test_each_acquired_offset_is_a_record_or_a_gap_or_damage(
    sizes: list[tuple[int, int]], acquired: set[int], cut: int
) -> None:
    log = LogBuilder()
    stored: set[int] = set()
    for size, missing in sizes:
        log.next_offset += missing
        stored |= set(range(log.next_offset, log.next_offset + size))
        log.add(*(b"x" for _ in range(size)))
    if cut:
        del log.data[-cut:]
    found = read(log, *((offset, offset, 1) for offset in sorted(acquired)))
    records = {record.offset for record, _ in found.records}
    gaps = {offset for first, last in found.gaps for offset in range(first, last + 1)}
    damaged = {damage.first for damage in found.damages}
    assert records | gaps | damaged == acquired
    assert len(records) + len(gaps) + len(damaged) == len(acquired)
    assert records <= stored
    assert not gaps & stored
