"""Record batch headers: accepted ones, refused ones with their error codes, and the effects of patching."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record_batch import (
    HEADER_SIZE,
    check_integrity,
    parse_header,
    patch_offset_and_epoch,
    patch_timestamp,
    validate_produced,
    walk_batches,
)
from tests.dataplane.log.batches import raw_batch


def refusal(data: bytes | bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate_produced(memoryview(data))
    return caught.value.code


def test_fields_and_derived_values() -> None:
    batch = raw_batch(3, b"abc", base_offset=40, timestamp=7, max_timestamp=9, producer=(5, 2, 2**31 - 2))
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 42, 43)
    assert (header.size, header.record_count, header.base_timestamp, header.max_timestamp) == (64, 3, 7, 9)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 2**31 - 2)
    assert header.last_sequence == 0, "sequences wrap from 2^31 - 1 to 0"


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=8))
def test_walk_finds_every_batch(payloads: list[bytes]) -> None:
    batches = [raw_batch(1 + i, payload, base_offset=i * 10) for i, payload in enumerate(payloads)]
    data = b"".join(batches)
    walked = list(walk_batches(memoryview(data)))
    assert [data[at : at + header.size] for at, header in walked] == [bytes(batch) for batch in batches]
    assert [header.base_offset for _, header in walked] == [i * 10 for i in range(len(payloads))]


@given(st.integers(0, 2 * (HEADER_SIZE + 10)))
def test_partial_tail_ends_the_walk_only_where_allowed(kept: int) -> None:
    size = HEADER_SIZE + 10
    data = (raw_batch(1, b"0123456789") * 2)[:kept]
    assert len(list(walk_batches(data, partial_tail=True))) == kept // size
    if kept % size:
        with pytest.raises(KafkaError) as caught:
            list(walk_batches(data))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.integers(min_value=0), st.integers(0, 7))
def test_any_flipped_bit_that_matters_is_found(position: int, bit: int) -> None:
    batch = raw_batch(2, b"some records")
    position = 16 + position % (
        len(batch) - 16
    )  # Offset, length and epoch precede; the CRC does not cover them.
    batch[position] ^= 1 << bit
    header = parse_header(batch)
    with pytest.raises(KafkaError):
        check_integrity(batch, 0, header)


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_absurd_lengths_are_refused(length: int) -> None:
    batch = raw_batch()
    struct.pack_into(">i", batch, 8, length)
    assert refusal(batch) is ErrorCode.CORRUPT_MESSAGE


def test_refusals_of_what_a_client_may_not_send() -> None:
    assert refusal(b"") is ErrorCode.INVALID_RECORD
    assert refusal(b"x" * 30) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(raw_batch(attributes=0x20)) is ErrorCode.INVALID_RECORD
    assert refusal(raw_batch(attributes=0x10)) is ErrorCode.INVALID_RECORD
    assert refusal(raw_batch(base_offset=7)) is ErrorCode.INVALID_RECORD
    assert refusal(raw_batch(attributes=5)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refusal(raw_batch(producer=(1, 0, -1))) is ErrorCode.INVALID_RECORD
    assert refusal(raw_batch(producer=(1, -1, 0))) is ErrorCode.INVALID_RECORD
    old = raw_batch()
    old[16] = 1
    assert refusal(old) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    miscounted = raw_batch(2)
    struct.pack_into(">i", miscounted, 57, 3)
    header = parse_header(miscounted)
    patch_timestamp(miscounted, 0, header, log_append_time=False, max_timestamp_ms=header.max_timestamp)
    assert refusal(miscounted) is ErrorCode.INVALID_RECORD


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1), st.booleans(), st.integers(0, 2**62))
def test_patching_changes_only_its_fields_and_keeps_the_crc_right(
    offset: int, epoch: int, log_append_time: bool, timestamp: int
) -> None:
    first, batch = raw_batch(), raw_batch(4, b"payload", attributes=3)
    data = bytearray(first + batch)
    before = parse_header(batch)
    patch_offset_and_epoch(memoryview(data), len(first), offset, epoch)
    patch_timestamp(data, len(first), before, log_append_time=log_append_time, max_timestamp_ms=timestamp)
    after = parse_header(data, len(first))
    assert data[: len(first)] == first
    assert after == before._replace(
        base_offset=offset,
        partition_leader_epoch=epoch,
        attributes=3 | (8 if log_append_time else 0),
        max_timestamp=timestamp,
        crc=after.crc,
    )
    check_integrity(data, len(first), after)
