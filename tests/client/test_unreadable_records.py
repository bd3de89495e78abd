"""An unreadable batch is reported with its offset and the offset after it, and skipped by a
consumer that seeks there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from ottla.client.consuming.fetched import FetchedRecords
from ottla.client.failures import UnreadableRecords
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import Columns, encode_batch
from ottla.protocol.records.record_batch import patch_offset_and_epoch
from tests.poisoned import POISONS, poisoned, sealed

HERE = TopicPartition("t", 3)


def log_of(*batches: bytes) -> bytes:
    """Return a log of batches with three records each, from offset 10 on."""
    placed = b""
    for number, batch in enumerate(batches):
        copy = bytearray(batch)
        patch_offset_and_epoch(copy, 0, 10 + 3 * number, 7)
        placed += copy
    return placed


def plain(name: str) -> bytes:
    return encode_batch([(b"k", f"{name}{number}".encode(), 5) for number in range(3)])


def offsets_taken(chunk: FetchedRecords) -> list[int]:
    taken: list[int] = []
    while some := chunk.take(100):
        taken += [record.offset for record in some]
    return taken


def rows_taken(chunk: FetchedRecords) -> list[int]:
    taken: list[int] = []
    while chunk.take_into(Columns(with_headers=False), 100):
        taken.append(chunk.next_offset - 1)
    return taken


def batches_walked(chunk: FetchedRecords) -> list[int]:
    return [header.base_offset for header, _ in chunk.batches()]


@pytest.mark.parametrize("take", [offsets_taken, rows_taken])
@pytest.mark.parametrize("kind", POISONS)
def test_the_error_names_the_batch_and_where_to_go_on(
    kind: str, take: Callable[[FetchedRecords], list[int]]
) -> None:
    log = log_of(plain("a"), poisoned(plain("b"), kind), plain("c"))
    chunk = FetchedRecords(HERE, memoryview(log), 10)
    for _ in range(3):
        with pytest.raises(UnreadableRecords, match="t-3: the batch at offset 13 ") as caught:
            take(chunk)
        error = caught.value
        assert (error.partition, error.offset, error.next_offset) == (HERE, 13, 16)
        assert "seek to 16" in error.message
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert 13 <= chunk.next_offset <= 16
    assert take(FetchedRecords(HERE, memoryview(log), 16)) in ([16, 17, 18], [18])


@pytest.mark.parametrize("take", [offsets_taken, rows_taken, batches_walked])
def test_so_does_that_of_a_wrong_checksum_and_of_what_is_no_batch(
    take: Callable[[FetchedRecords], list[int]],
) -> None:
    flipped, magic, length = (bytearray(plain("b")) for _ in range(3))
    flipped[-1] ^= 1
    magic[16] = 1
    struct.pack_into(">i", length, 8, 3)
    for damaged, code, behind in (
        (flipped, ErrorCode.CORRUPT_MESSAGE, 16),
        (magic, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, 16),
        (length, ErrorCode.CORRUPT_MESSAGE, 14),  # its length is unknown
    ):
        chunk = FetchedRecords(HERE, memoryview(log_of(plain("a"), bytes(damaged), plain("c"))), 13)
        with pytest.raises(UnreadableRecords, match="t-3: the batch at offset 13 ") as caught:
            take(chunk)
        assert (caught.value.offset, caught.value.next_offset, caught.value.code) == (13, behind, code)


@pytest.mark.parametrize("take", [offsets_taken, rows_taken, batches_walked])
@pytest.mark.parametrize("bit", [60, 33, 21])
def test_a_batch_far_behind_the_end_of_the_log_is_damaged(
    bit: int, take: Callable[[FetchedRecords], list[int]]
) -> None:
    """No checksum covers the base offset. A reader that believes it goes on at an offset that does not exist."""
    log = bytearray(log_of(plain("a"), plain("b"), plain("c")))
    second = len(log) // 3
    (offset,) = struct.unpack_from(">q", log, second)
    struct.pack_into(">q", log, second, offset ^ 1 << bit)
    chunk = FetchedRecords(HERE, memoryview(bytes(log)), 10, high_watermark=19)
    assert chunk.end_offset == 13
    with pytest.raises(
        UnreadableRecords, match=r"t-3: the batch at offset 13 .* the log ended at 19"
    ) as caught:
        take(chunk)
    assert (caught.value.offset, caught.value.next_offset) == (13, 14)


def test_a_batch_shortly_behind_the_end_of_the_log_is_read() -> None:
    """Apache Kafka reads the high watermark before the batches."""
    assert offsets_taken(FetchedRecords(HERE, memoryview(log_of(plain("a"))), 10, high_watermark=10)) == [
        10,
        11,
        12,
    ]


def test_an_answer_without_a_whole_batch_is_damage_too() -> None:
    """A retry would never help."""
    claims = bytearray(plain("a"))
    struct.pack_into(">i", claims, 8, 1 << 30)
    ends_before = bytearray(log_of(plain("a")))
    struct.pack_into(">i", ends_before, 23, -5)  # last offset delta
    for data in (log_of(bytes(claims)), sealed(ends_before)):
        chunk = FetchedRecords(HERE, memoryview(data), 10)
        assert chunk.end_offset == 10
        with pytest.raises(UnreadableRecords, match="offset 10 ") as caught:
            chunk.take(10)
        assert caught.value.next_offset == 11
