"""Frames come out of a stream unchanged, however the stream is divided."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.connections.frame_reader import COPIED_BYTES, SHARED_BYTES, FrameReader, ImpossibleSize

MOST = 64 << 20
EDGES = (
    4,
    5,
    100,
    COPIED_BYTES,
    COPIED_BYTES + 1,
    SHARED_BYTES - 4,
    SHARED_BYTES - 3,
    SHARED_BYTES + 7,
    300_000,
)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def read(reader: FrameReader, stream: bytes, pieces: list[int]) -> list[memoryview]:
    """Return the frames of a stream that arrives in pieces of these maximal sizes, in turn."""
    found: list[memoryview] = []
    position = turn = 0
    while position < len(stream):
        room = reader.room()
        assert len(room)
        some = stream[position : position + min(pieces[turn % len(pieces)], len(room))]
        room[: len(some)] = some
        position, turn = position + len(some), turn + 1
        found += reader.frames(len(some))
    return found


@given(
    sizes=st.lists(st.sampled_from(EDGES) | st.integers(4, 3 * SHARED_BYTES), max_size=8),
    pieces=st.lists(
        st.sampled_from([1_000, 65_535, 65_536, 1 << 20]) | st.integers(300, 200_000), min_size=1
    ),
)
def test_frames_are_whole_and_stay_as_they_were(sizes: list[int], pieces: list[int]) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    found = read(FrameReader(4, MOST), b"".join(map(framed, bodies)), pieces)
    assert [bytes(frame) for frame in found] == bodies
    assert all(frame.readonly for frame in found)


@given(cut=st.integers(1, 3))
def test_a_size_that_is_cut(cut: int) -> None:
    bodies = [b"first" * 3, b"second" * 3]
    assert [
        bytes(frame) for frame in read(FrameReader(4, MOST), b"".join(map(framed, bodies)), [cut])
    ] == bodies


@pytest.mark.parametrize("size", [-1, 3, MOST + 1])
def test_a_size_that_cannot_be(size: int) -> None:
    stream = framed(b"good") + size.to_bytes(4, "big", signed=True)
    with pytest.raises(ImpossibleSize) as refused:
        read(FrameReader(4, MOST), stream, [len(stream)])
    assert refused.value.size == size


def test_no_more_is_allocated_than_arrives() -> None:
    reader = FrameReader(4, MOST)
    tracemalloc.start()
    try:
        assert not read(reader, MOST.to_bytes(4, "big") + bytes(100_000), [1 << 20])
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()
    (frame,) = read(reader, bytes(MOST - 100_000), [1 << 20])
    assert len(frame) == MOST
