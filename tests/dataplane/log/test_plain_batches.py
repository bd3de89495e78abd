"""The walk in C over plain batches ends before each batch that recovery has to judge."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.dataplane.log.recovery.segment_scan import skim

from .batches import make_batch

pytestmark = pytest.mark.skipif(skim is None, reason="the extension is not built")

BASE, EPOCH, NOW, SIZES = 100, 3, 1_000, (50, 50, 50_000, 50, 50)
"""The log begins at offset 100. One batch is so large that the headers around it are read alone."""
LAST = BASE + len(SIZES)


@contextmanager
def file_of(data: bytes) -> Iterator[int]:
    fd = os.memfd_create("log")
    try:
        os.write(fd, data)
        yield fd
    finally:
        os.close(fd)


def batches() -> list[bytearray]:
    return [
        make_batch(payload=bytes(size), base_offset=BASE + number, leader_epoch=EPOCH, timestamp=NOW + number)
        for number, size in enumerate(SIZES)
    ]


def skimmed(
    data: bytes, *, end: int | None = None, upto: int = LAST, contiguous: bool = True, interval: int = 0
) -> tuple[int, ...]:
    """Return the state after a walk from the beginning."""
    assert skim is not None
    with file_of(data) as fd:
        return skim(
            fd,
            0,
            len(data) if end is None else end,
            BASE,
            BASE,
            upto,
            EPOCH,
            int(contiguous),
            interval,
            0,
            -1,
            BASE,
            -1,
        )


def test_plain_batches_are_taken_to_the_end() -> None:
    data = b"".join(batches())
    position, next_offset, since, time_ms, time_offset, has_producers, offsets, times = skimmed(data)
    assert (position, next_offset) == (len(data), LAST)
    assert since == len(batches()[-1])
    assert (time_ms, time_offset) == (NOW + len(SIZES) - 1, LAST - 1)
    assert not has_producers
    starts = [sum(map(len, batches()[:number])) for number in range(1, len(SIZES))]
    assert list(struct.iter_unpack(">ii", offsets)) == list(enumerate(starts, 1))
    assert list(struct.iter_unpack(">qi", times)) == [(NOW + number, number) for number in range(4)]


@pytest.mark.parametrize("number", range(len(SIZES)))
@pytest.mark.parametrize(
    ("place", "layout", "value"),
    [
        (0, ">q", 200),  # a gap
        (0, ">q", 2**63 - 1),
        (0, ">q", -1),
        (8, ">i", 48),  # below a header
        (8, ">i", -1),
        (8, ">i", 2**31 - 1),
        (12, ">i", EPOCH + 1),
        (12, ">i", EPOCH - 1),
        (16, ">b", 1),
        (21, ">h", 0x20),
        (23, ">i", -1),
        (23, ">i", 2**31 - 1),
        (35, ">q", -1),
    ],
)
def test_the_walk_ends_before_a_batch_of_another_kind(
    number: int, place: int, layout: str, value: int
) -> None:
    parts = batches()
    struct.pack_into(layout, parts[number], place, value)
    position, next_offset, *_ = skimmed(b"".join(parts), upto=1_000)
    assert (position, next_offset) == (sum(map(len, parts[:number])), BASE + number)


def test_gaps_are_plain_in_a_compacted_log() -> None:
    parts = batches()
    del parts[1]
    position, next_offset, *_ = skimmed(b"".join(parts), contiguous=False)
    assert (position, next_offset) == (sum(map(len, parts)), LAST)


def test_the_walk_ends_where_the_next_segment_begins() -> None:
    parts = batches()
    position, next_offset, *_ = skimmed(b"".join(parts), upto=LAST - 1)
    assert (position, next_offset) == (sum(map(len, parts[:-1])), LAST - 1)


@pytest.mark.parametrize("cut", [1, 40, 100])
def test_batches_beyond_the_trusted_bytes_are_left(cut: int) -> None:
    parts = batches()
    data = b"".join(parts)
    position, *_ = skimmed(data, end=len(data) - cut)
    assert position == sum(map(len, parts[:-1]))
    position, *_ = skimmed(data[: len(data) - cut], end=len(data))
    assert position in (sum(map(len, parts[:-1])), len(data)), "a header alone shows no cut"


def test_producers_are_noted() -> None:
    parts = batches()
    parts[3] = make_batch(
        payload=b"x", base_offset=BASE + 3, leader_epoch=EPOCH, timestamp=NOW, producer=(7, 0, 0)
    )
    assert skimmed(b"".join(parts))[5]


def test_a_walk_makes_no_more_entries_than_it_has_room_for() -> None:
    parts = [
        make_batch(payload=b"", base_offset=BASE + number, leader_epoch=EPOCH, timestamp=NOW)
        for number in range(5_000)
    ]
    position, next_offset, *_, offsets, times = skimmed(b"".join(parts), upto=BASE + 5_000)
    assert len(offsets) == 8 * 4096
    assert len(times) == 12
    assert next_offset == BASE + 4097
    assert position == 4097 * len(parts[0])


def test_a_file_that_cannot_be_read_has_no_plain_batches() -> None:
    assert skim is not None
    assert skim(1 << 30, 0, 10_000, 0, 0, 100, 0, 1, 0, 0, -1, 0, -1)[:2] == (0, 0)


@pytest.mark.parametrize("wrong", [(), (1,) * 12, (-1, *[0] * 12), (0, -1, *[0] * 11), ("x", *[0] * 12)])
def test_other_arguments_are_refused(wrong: tuple[object, ...]) -> None:
    assert skim is not None
    with pytest.raises((TypeError, ValueError)):
        skim(*wrong)  # type: ignore[arg-type]
