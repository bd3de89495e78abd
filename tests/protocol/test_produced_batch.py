"""The records of a produced batch, in every codec: accepted and refused ones, and the cost of the check."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression, compress
from ottla.protocol.records.produced_batch import ExpandsTooFar, walk_records
from ottla.protocol.records.record import NewRecord, encode_batch
from ottla.protocol.records.record_batch import parse_header
from tests.dataplane.log.batches import raw_batch
from tests.protocol.produced import FINE, MALFORMED, NOW, TWO, produced, record

EVER_MS = 2**63 - 1
COMPRESSED = [codec for codec in Compression if codec]
MANY = b"".join(record(number, value=b"%04d" % number * 80) for number in range(1000))


def walked(batch: bytes | bytearray, expanded_bytes_max: int = 1 << 30) -> int:
    return walk_records(memoryview(batch), parse_header(batch), -EVER_MS, EVER_MS, False, expanded_bytes_max)


def refusal(codec: Compression, stream: bytes, count: int = 2) -> str:
    """Return the message for a batch with this compressed data."""
    with pytest.raises(KafkaError) as caught:
        walked(raw_batch(count, stream, attributes=codec))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    return caught.value.message


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_records_are_refused(codec: Compression, what: str) -> None:
    count, body, part = MALFORMED[what]
    with pytest.raises(KafkaError) as caught:
        walked(produced(count, body, codec))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    # Some libraries make a stream of nothing out of nothing.
    assert part in caught.value.message or not body


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("what", FINE)
def test_what_is_fine_passes(codec: Compression, what: str) -> None:
    walked(produced(*FINE[what], codec))


@pytest.mark.parametrize("codec", list(Compression))
@given(
    records=st.lists(
        st.tuples(st.none() | st.binary(max_size=50), st.binary(max_size=500), st.integers(0, 1 << 42)),
        min_size=1,
        max_size=50,
    )
)
@settings(max_examples=20)
def test_what_our_producer_writes_passes(codec: Compression, records: list[NewRecord]) -> None:
    batch = encode_batch(records, compression=codec)
    assert walked(batch) == max(record[2] for record in records)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_damaged_data_is_refused(codec: Compression) -> None:
    whole = compress(codec, MANY)
    for kept in (0, 1, len(whole) // 2, len(whole) - 8, len(whole) - 4, len(whole) - 1):
        refusal(codec, whole[:kept], 1000)
    refusal(codec, b"garbage garbage garbage", 1000)
    refusal(codec, whole + b"more", 1000)


def test_of_lz4_one_frame_is_read_and_its_blocks_are_independent() -> None:
    """librdkafka and Kafka's Java clients read no more, and would stand still at such a batch."""

    def frame(body: bytes, **options: bool | int) -> bytes:
        return bytes(lz4.frame.compress(body, **{"block_linked": False, "store_size": False, **options}))

    options: list[dict[str, bool | int]] = [
        {"content_checksum": True},
        {"block_checksum": True},
        {"store_size": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ]
    for option in options:
        walked(raw_batch(1000, frame(MANY, **option), attributes=Compression.LZ4))
    half = len(TWO) // 2
    assert "consumers read one" in refusal(Compression.LZ4, frame(TWO[:half]) + frame(TWO[half:]))
    assert "consumers read one" in refusal(Compression.LZ4, frame(TWO) + frame(b""))
    assert "depend on each other" in refusal(Compression.LZ4, frame(MANY, block_linked=True), 1000)
    wrong_sum = bytearray(frame(TWO, content_checksum=True))
    wrong_sum[-1] ^= 1
    refusal(Compression.LZ4, bytes(wrong_sum))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_gzip_and_zstd_may_come_in_several_pieces(codec: Compression) -> None:
    half = len(TWO) // 2
    walked(raw_batch(2, compress(codec, TWO[:half]) + compress(codec, TWO[half:]), attributes=codec))


def test_what_else_zstd_may_have() -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    for compressor in (
        zstandard.ZstdCompressor(write_checksum=True),
        zstandard.ZstdCompressor(write_content_size=False),
    ):
        frame = compressor.compress(MANY)
        walked(raw_batch(1000, frame, attributes=Compression.ZSTD))
        walked(raw_batch(1000, skippable + frame, attributes=Compression.ZSTD))
        assert "cut short" in refusal(Compression.ZSTD, frame[:-1], 1000)


def test_raw_snappy_is_read_as_well() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TWO))
    walked(raw_batch(2, raw, attributes=Compression.SNAPPY))
    assert "claims to expand" in refusal(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + raw[1:])


def test_an_unknown_codec_is_called_so() -> None:
    with pytest.raises(KafkaError) as caught:
        walked(raw_batch(1, TWO, attributes=6))
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def peak_bytes(what: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        what()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_memory_does_not_grow_with_what_a_batch_expands_to(codec: Compression) -> None:
    batch = produced(1, record(value=bytes(50 << 20)), codec)
    assert len(batch) < 300_000
    assert peak_bytes(lambda: walked(batch)) < 2 << 20
    with pytest.raises(ExpandsTooFar, match="more than the 1000000 bytes"):
        walked(batch, 1_000_000)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(seed=st.integers(0, 1 << 60))
@settings(max_examples=60)
def test_any_damage_is_refused_or_makes_no_difference(codec: Compression, seed: int) -> None:
    chance = Random(seed)
    data = bytearray(compress(codec, MANY[: chance.choice([len(TWO), 40_000])]))
    for _ in range(chance.randint(1, 3)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    codes = {ErrorCode.INVALID_RECORD}
    try:
        walked(raw_batch(1000, bytes(data), attributes=codec))
    except KafkaError as error:
        codes.add(error.code)
    assert codes == {ErrorCode.INVALID_RECORD}


def test_the_time_of_a_header_is_not_believed() -> None:
    body = record(0) + record(1, later_ms=500)
    for claimed in (-1, NOW, NOW + 10**9):
        batch = raw_batch(2, body, timestamp=NOW, max_timestamp=claimed)
        assert walked(batch) == NOW + 500
