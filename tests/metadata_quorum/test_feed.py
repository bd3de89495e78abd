"""The record ring and the snapshots built beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.feed import CHANGE_BYTES, FeedEntry, MetadataFeed, SnapshotBuilder
from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.cluster.partition_change import PartitionChange

scopes = st.none() | st.frozensets(st.integers(1, 3), min_size=1)
changes = st.builds(
    lambda index, replicas: PartitionChange(b"t" * 16, index, PartitionState(replicas, replicas)),
    st.integers(0, 3),
    st.lists(st.integers(1, 3)).map(tuple),
)
records = st.binary(min_size=1, max_size=20) | changes
entries = st.lists(st.builds(FeedEntry, scopes, records), max_size=60)


def encoded(record: bytes | PartitionChange) -> bytes:
    return record if isinstance(record, bytes) else record.encoded()


@given(
    entries,
    st.integers(0, 100),
    st.integers(1, 30),
    st.integers(1, 3),
    st.integers(1, 7),
    st.integers(1, 60),
)
def test_reading_on_gives_every_record_of_the_broker_once(
    history: list[FeedEntry], start: int, capacity: int, broker_id: int, max_records: int, max_bytes: int
) -> None:
    expected = [encoded(entry.record) for entry in history]
    feed = MetadataFeed(start, capacity_records=capacity)
    feed.append(history)
    assert feed.end_offset == start + len(history)
    assert feed.end_offset - feed.start_offset == min(capacity, len(history))
    position, received = feed.start_offset, []
    while position < feed.end_offset:
        piece = feed.read(position, broker_id, max_records=max_records, max_bytes=max_bytes)
        assert piece.first_offset == position < piece.end_offset
        assert len(piece.records) <= max_records
        received += piece.records
        position = piece.end_offset
    kept = list(zip(history, expected, strict=True))[len(history) - (feed.end_offset - feed.start_offset) :]
    assert received == [record for e, record in kept if e.scope is None or broker_id in e.scope]


def test_what_nobody_reads_is_not_encoded() -> None:
    """Brokers follow the leader of the quorum. The other nodes have as many changes to keep."""
    feed = MetadataFeed()
    history = [FeedEntry(None, PartitionChange(b"t" * 16, 0, PartitionState((1,), (1,)))) for _ in range(6)]
    feed.append(history)
    first = feed.read(1, 1, max_records=2, max_bytes=1000)
    again = feed.read(1, 2, max_records=2, max_bytes=1000)
    assert [isinstance(entry.record, bytes) for entry in history] == [False, True, True, False, False, False]
    assert all(
        record is again_record for record, again_record in zip(first.records, again.records, strict=True)
    )


def test_what_was_encoded_counts_as_it_is() -> None:
    def change(*replicas: int) -> FeedEntry:
        return FeedEntry(None, PartitionChange(b"t" * 16, 0, PartitionState(replicas, replicas)))

    feed = MetadataFeed(capacity_bytes=3 * CHANGE_BYTES)
    feed.append(change(*range(50)) for _ in range(3))
    assert feed.start_offset == 0
    feed.read(0, 1, max_records=1, max_bytes=1)
    feed.append([change(1)])
    assert (feed.start_offset, feed.end_offset) == (1, 4), "one was of several hundred bytes, and is gone"
    feed.append([change(1)])
    assert (feed.start_offset, feed.end_offset) == (2, 5), "and what it counted with it"


def test_an_offset_before_the_ring_needs_a_snapshot_and_one_beyond_it_waits() -> None:
    feed = MetadataFeed(capacity_bytes=30)
    feed.append(FeedEntry(None, bytes(10)) for _ in range(5))
    assert (feed.start_offset, feed.end_offset) == (2, 5)
    assert not feed.covers(1)
    with pytest.raises(ValueError, match="metadata offset 1"):
        feed.read(1, 1, max_records=10, max_bytes=100)
    assert feed.covers(9)
    assert feed.read(9, 1, max_records=10, max_bytes=100).records == []


def test_records_of_others_advance_the_offset() -> None:
    feed = MetadataFeed()
    feed.append([FeedEntry(frozenset({2}), b"x"), FeedEntry(frozenset({2}), b"y")])
    piece = feed.read(0, 1, max_records=10, max_bytes=100)
    assert (piece.records, piece.end_offset) == ([], 2)


def test_a_jump_of_the_image_empties_the_ring() -> None:
    feed = MetadataFeed()
    feed.append([FeedEntry(None, b"x")])
    feed.restart_at(70)
    assert not feed.covers(1)
    assert (feed.start_offset, feed.end_offset) == (70, 70)


@given(st.lists(st.binary(max_size=40), max_size=50), st.integers(1, 9), st.integers(1, 100))
def test_a_snapshot_holds_all_records_in_bounded_chunks(
    records: list[bytes], slice_size: int, chunk_bytes: int
) -> None:
    builder = SnapshotBuilder(9, iter(records), chunk_bytes=chunk_bytes)
    turns = 1
    while builder.work(slice_size) is None:
        turns += 1
    snapshot = builder.finished
    assert snapshot is not None
    assert turns == len(records) // slice_size + 1
    assert [record for chunk in snapshot.chunks for record in chunk] == records
    assert all(len(chunk) <= 1 or sum(map(len, chunk)) <= chunk_bytes for chunk in snapshot.chunks)
    assert len(snapshot.chunks) >= 1


def test_the_ring_knows_the_mark_of_the_history_at_every_offset_it_holds() -> None:
    feed = MetadataFeed(10, capacity_records=3)
    feed.restart_at(10, 7)
    feed.append(FeedEntry(None, b"x", mark) for mark in (71, 72, 72))
    assert [feed.history_at(offset) for offset in range(9, 15)] == [0, 7, 71, 72, 72, 0]
    feed.append([FeedEntry(None, b"y", 73)])
    assert [feed.history_at(offset) for offset in range(10, 15)] == [0, 71, 72, 72, 73]
    piece = feed.read(12, 1, max_records=1, max_bytes=100)
    assert (piece.first_history, piece.end_history) == (72, 72)


@pytest.mark.parametrize(
    ("offset", "history", "lacks"),
    [(2, 72, False), (2, 99, True), (3, 72, True), (2, 0, False), (0, 5, False), (-1, 0, False)],
    ids=["the same", "another", "beyond the end", "an unknown one", "unknown here", "none told"],
)
def test_what_a_history_lacks_of_another(offset: int, history: int, lacks: bool) -> None:
    feed = MetadataFeed()
    feed.append(FeedEntry(None, b"x", mark) for mark in (71, 72))
    assert feed.lacks(offset, history) == lacks
