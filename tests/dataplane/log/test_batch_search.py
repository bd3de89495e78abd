"""The search for a batch gives equal results in C and in Python, and follows the definitions."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.log.segments import batch_search, batch_search_in_python
from ottla.dataplane.log.segments.batch_walk import walk_file
from ottla.dataplane.log.storage_errors import BrokenBatch
from ottla.protocol.records.record_batch import HEADER_SIZE

from .batches import make_batch

try:
    from ottla.dataplane.log.segments import _batch_search as in_c
except ImportError:
    in_c = None

NEEDS_C = pytest.mark.skipif(in_c is None, reason="the extension is not built")
BOTH = [
    pytest.param(batch_search_in_python, id="in Python"),
    pytest.param(in_c, id="in C", marks=NEEDS_C),
]

ENTRIES = {">ii": (0, 1), ">qi": (0, 1), ">hqqqq": (2, 3)}
"""Formats of index entries, and their searched fields."""
sizes = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6000)), min_size=1, max_size=12)
"""Sizes of batches: the number of records, and the bytes of the last one."""


@contextmanager
def file_of(data: bytes) -> Iterator[int]:
    """Yield the descriptor of an unnamed file."""
    fd = os.memfd_create("log")
    try:
        os.write(fd, data)
        yield fd
    finally:
        os.close(fd)


def log_of(batches: list[tuple[int, int]]) -> bytes:
    data, offset = b"", 0
    for count, size in batches:
        data += make_batch(count, bytes(size), base_offset=offset)
        offset += count
    return data


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize("entry", ENTRIES)
@given(data=st.data())
def test_entries_are_counted_up_to_a_field(module, entry: str, data: st.DataObject) -> None:
    packed, field = struct.Struct(entry), data.draw(st.sampled_from(ENTRIES[entry]))
    at = struct.calcsize(entry[: 1 + field])
    field_bytes = struct.calcsize(">" + entry[1 + field])
    bound = 2 ** (8 * field_bytes - 1)
    numbers = st.integers(-bound, bound - 1)
    values = sorted(data.draw(st.lists(numbers, max_size=30)))
    entries = b"".join(
        packed.pack(*(value if n == field else 7 for n in range(len(entry) - 1))) for value in values
    )
    target = data.draw(st.one_of(numbers, st.sampled_from(values or [0]), st.integers(-2 * bound, 2 * bound)))
    length = data.draw(st.integers(0, len(values)))
    expected = sum(value <= target for value in values[:length])
    assert module.count_until(entries, length, packed.size, at, field_bytes, target) == expected


@NEEDS_C
@pytest.mark.parametrize(
    "given_values", [(3, 8, 4, 4), (2, 0, 0, 4), (-1, 8, 0, 4), (2, 8, 5, 4), (2, 8, -1, 4), (2, 8, 0, 3)]
)
def test_no_entry_is_read_outside_the_index(given_values: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="the entries are not as many"):
        in_c.count_until(bytes(16), *given_values, 5)


@pytest.mark.parametrize("search", [batch_search_in_python.last_boundary, batch_search.last_boundary])
@given(batches=sizes, data=st.data())
def test_a_boundary_is_where_the_last_whole_batch_ends(search, batches, data: st.DataObject) -> None:
    content = log_of(batches)
    with file_of(content) as fd:
        found = list(walk_file(fd, 0, len(content), next_offset=0))
        starts = [position for position, _ in found]
        start = data.draw(st.sampled_from(starts))
        limit = data.draw(st.integers(start - 10, len(content) + 10))
        ends = [position for position in [*starts[1:], len(content)] if start < position <= limit]
        boundary = max(ends, default=start)
        follows = {position: header.base_offset for position, header in found}.get(boundary, -1)
        assert search(fd, start, limit, len(content), 0) == (boundary, follows)


@given(
    batches=sizes,
    flips=st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 255)), max_size=3),
    limit=st.integers(0, 40_000),
    cut=st.integers(0, 100),
    next_offset=st.integers(0, 3),
)
def test_a_damaged_file_is_judged_alike(batches, flips, limit: int, cut: int, next_offset: int) -> None:
    content = bytearray(log_of(batches))
    for at, value in flips:
        content[at % len(content)] = value
    end = len(content)

    def judged(search: Callable[..., tuple[int, int]]) -> tuple[int, int] | str:
        try:
            return search(fd, 0, limit, end, next_offset)
        except BrokenBatch as broken:
            return f"{broken.position}: {broken.reason}"

    with file_of(bytes(content[: end - cut])) as fd:
        assert judged(batch_search.last_boundary) == judged(batch_search_in_python.last_boundary)


@NEEDS_C
@given(batches=sizes, held_bytes=st.integers(0, 3000), cut=st.integers(0, 200))
def test_headers_are_walked_as_far_as_they_are_held(batches, held_bytes: int, cut: int) -> None:
    content = log_of(batches)
    end = len(content) - cut
    with file_of(content) as fd:
        found = [*walk_file(fd, 0, len(content), next_offset=0)]
    walked = in_c.walk_headers(content[:held_bytes], 0, len(content), end, 0)
    position, offset = 0, 0
    for at, header in found:
        if at >= end:
            break
        if at + HEADER_SIZE > held_bytes and end - at >= HEADER_SIZE:
            assert walked == ((at, -1, offset) if at else None)
            return
        if at + header.size > end:
            assert walked is None
            return
        position, offset = at + header.size, header.next_offset
    assert walked == (position, -1, offset)


@pytest.mark.parametrize("search", [batch_search_in_python.last_boundary, batch_search.last_boundary])
def test_a_file_that_cannot_be_read_is_no_damage(search) -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="Illegal seek"):
            search(reading, 0, 10, 1000, 0)
    finally:
        os.close(reading)
        os.close(writing)
