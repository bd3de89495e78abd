"""Record batches: our own round trip, and both ways against aiokafka and kafka-python."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from random import Random

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression, compress, decompress
from ottla.protocol.records.record import (
    ControlRecord,
    ControlType,
    NewRecord,
    Record,
    decode_control_record,
    decode_records,
    encode_batch,
    encode_control_batch,
    expanded_body,
    recompressed,
)
from ottla.protocol.records.record_batch import parse_header, validate_produced
from tests.protocol.record_codecs import record_codec_in_use as record_codec_in_use

CODECS = list(Compression)
COMPRESSED = [codec for codec in CODECS if codec]
blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), blobs), max_size=3)
new_records = st.lists(st.tuples(blobs, blobs, st.integers(0, 1 << 42), headers), min_size=1, max_size=20)


def as_new(record: Record) -> NewRecord:
    return record.key, record.value, record.timestamp_ms, list(record.headers)


@pytest.mark.parametrize("codec", CODECS)
@given(records=new_records)
@settings(max_examples=20)
def test_what_is_encoded_is_decoded(codec: Compression, records: list[NewRecord]) -> None:
    batch = encode_batch(records, compression=codec, producer_id=8, producer_epoch=3, base_sequence=5)
    ((_, header),) = validate_produced(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 3, 5)
    assert header.record_count == len(records) == header.last_offset + 1
    assert header.max_timestamp == max(record[2] for record in records)
    assert header.base_timestamp == records[0][2]
    decoded = list(decode_records(memoryview(batch)))
    assert [as_new(record) for record in decoded] == records
    assert [record.offset for record in decoded] == list(range(len(records)))


@pytest.mark.parametrize("codec", CODECS)
@given(records=new_records, before=st.sampled_from(CODECS))
@settings(max_examples=20)
def test_another_compression_changes_nothing_else(
    codec: Compression, before: Compression, records: list[NewRecord]
) -> None:
    batch = encode_batch(
        records, compression=before, producer_id=8, producer_epoch=3, base_sequence=5, transactional=True
    )
    header = parse_header(batch)
    changed = recompressed(header, expanded_body(batch, header), codec)
    ((_, header),) = validate_produced(changed)
    assert header.compression == codec
    assert header.is_transactional
    assert header[6:] == parse_header(batch)[6:]
    assert list(decode_records(changed)) == list(decode_records(batch))


@pytest.mark.parametrize("codec", CODECS)
def test_others_read_what_we_write(codec: Compression) -> None:
    rng = Random(1)
    records: list[NewRecord] = [
        (rng.randbytes(8), rng.randbytes(rng.randrange(20)) * 400, 1_700_000_000_000 + i, [("name", b"x")])
        for i in range(40)
    ]
    batch = encode_batch(records, compression=codec)
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in theirs] == records
    batches = MemoryRecords(batch)
    again = batches.next_batch()
    assert again is not None
    assert again.validate_crc()
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in again] == records


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_others_write(codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for i in range(40):
        builder.append(i, 1_700_000_000_000 + i, b"key", b"value" * i, [("h", b"v")])
    decoded = list(decode_records(memoryview(bytes(builder.build()))))
    assert [as_new(r) for r in decoded] == [
        (b"key", b"value" * i, 1_700_000_000_000 + i, [("h", b"v")]) for i in range(40)
    ]


@pytest.mark.parametrize("kind", list(ControlType))
def test_control_batches(kind: ControlType) -> None:
    marker = ControlRecord(kind, 12)
    batch = encode_control_batch(marker, timestamp_ms=99, producer_id=7, producer_epoch=2)
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    (record,) = decode_records(batch)
    assert decode_control_record(record) == marker
    unknown = record._replace(key=b"\0\0\0\x05")
    assert decode_control_record(unknown) is None
    with pytest.raises(KafkaError):
        decode_control_record(record._replace(key=b"\0"))


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="one record or more"):
        encode_batch([])


FOREIGN: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.GZIP: lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:]),
    Compression.SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    Compression.LZ4: lambda data: lz4.frame.compress(data, store_size=True, content_checksum=True),
    Compression.ZSTD: zstandard.ZstdCompressor(write_content_size=False).compress,
}


@pytest.mark.parametrize("codec", COMPRESSED)
def test_other_forms_of_the_same_compression(codec: Compression) -> None:
    data = bytes(range(256)) * 500
    assert decompress(codec, FOREIGN[codec](data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_expansion_is_bounded(codec: Compression) -> None:
    bomb = compress(codec, bytes(8_000_000))
    with pytest.raises(KafkaError) as refused:
        decompress(codec, bomb, 1_000_000)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert decompress(codec, bomb, 8_000_000) == bytes(8_000_000)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=20)
def test_damaged_compression(codec: Compression, seed: int) -> None:
    rng = Random(seed)
    damaged = bytearray(compress(codec, rng.randbytes(100) * 20))
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    del damaged[rng.randrange(1, len(damaged)) :]
    try:
        decompress(codec, damaged, 1_000_000)
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE  # noqa: PT017


def test_an_unknown_codec() -> None:
    with pytest.raises(KafkaError) as refused:
        decompress(6, b"")
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=150)
def test_damaged_batches(seed: int) -> None:
    rng = Random(seed)
    batch = bytearray(encode_batch([(b"key", b"value" * 5, 10 + i, [("h", None)]) for i in range(5)]))
    for _ in range(rng.randint(1, 3)):
        batch[rng.randrange(len(batch))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    if rng.random() < 0.3:
        del batch[rng.randrange(len(batch)) :]
    try:
        list(decode_records(batch, 1_000_000))
    except KafkaError as error:
        assert error.code in (  # noqa: PT017
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )


def test_a_count_beyond_the_data_is_refused() -> None:
    batch = bytearray(encode_batch([(None, b"v", 1)]))
    struct.pack_into(">i", batch, 57, 0x7FFFFFFF)
    with pytest.raises(KafkaError):
        list(decode_records(batch))
