"""The hashes of keys are equal in C and in Python, and the keys of a log are read whatever its batches are like."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.log import LogSlice
from ottla.dataplane.log.segments.descriptors import SharedDescriptor
from ottla.dataplane.share.key_order import ReadKeys
from ottla.dataplane.share.leader import key_hashes_in_python, key_reads
from ottla.dataplane.share.leader.key_hashes_in_python import KEY_BYTES_MAX
from ottla.dataplane.share.leader.key_reads import read_keys
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import ControlRecord, ControlType, encode_batch, encode_control_batch
from tests.protocol.produced import MALFORMED, produced, record, with_header

try:
    from ottla.dataplane.share.leader import _key_hashes as in_c
except ImportError:
    in_c = None

BOTH = [
    pytest.param(key_hashes_in_python.hash_keys, id="in Python"),
    pytest.param(
        in_c and in_c.hash_keys,
        id="in C",
        marks=pytest.mark.skipif(in_c is None, reason="the extension is not built"),
    ),
]
KEYS = st.lists(st.none() | st.binary(max_size=6), max_size=8)
Key = bytes | None


def body_of(keys: Sequence[Key], value: bytes = b"value") -> bytes:
    return b"".join(record(delta, key=key, value=value) for delta, key in enumerate(keys))


def numbers(data: bytes) -> list[int]:
    return list(array("q", data))


@pytest.mark.parametrize("hash_keys", BOTH)
@given(keys=KEYS, cut=st.integers(0, 200), first=st.integers(100, 109), keys_max=st.integers(0, 9))
def test_the_whole_beginning_is_read(hash_keys, keys: list[Key], cut: int, first: int, keys_max: int) -> None:
    body = body_of(keys)[:cut]
    used, skip, records, offsets, hashes = hash_keys(body, 100, first, len(keys), keys_max)
    read = [(100 + delta, hash(key)) for delta, key in enumerate(keys[:records]) if key is not None]
    assert list(zip(numbers(offsets), numbers(hashes), strict=True)) == [
        row for row in read if row[0] >= first
    ]
    assert len(offsets) <= 8 * keys_max
    assert used + skip == len(body_of(keys[:records]))
    if records < len(keys) and len(offsets) < 8 * keys_max:
        assert skip or len(body) - used < len(record(records, key=keys[records]))


@pytest.mark.skipif(in_c is None, reason="the extension is not built")
@given(
    data=st.binary(max_size=60), cut=st.integers(0, 60), mixed=st.binary(max_size=4), at=st.integers(0, 60)
)
def test_both_read_and_refuse_the_same(data: bytes, cut: int, mixed: bytes, at: int) -> None:
    almost = body_of([b"k", None, b"key"])
    for body in (data, almost[:cut], almost[:at] + mixed + almost[at + len(mixed) :]):
        outcomes = []
        for hash_keys in (in_c.hash_keys, key_hashes_in_python.hash_keys):
            try:
                outcomes.append(hash_keys(body, 5, 6, 3, 3))
            except ValueError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("hash_keys", BOTH)
def test_a_huge_key_is_hashed_by_its_beginning(hash_keys) -> None:
    body = record(key=b"k" * (KEY_BYTES_MAX + 1000))
    used, skip, records, _, hashes = hash_keys(body[: KEY_BYTES_MAX + 20], 0, 0, 1, 1)
    assert (used, records, numbers(hashes)) == (KEY_BYTES_MAX + 20, 1, [hash(b"k" * KEY_BYTES_MAX)])
    assert used + skip == len(body)


@pytest.mark.parametrize("hash_keys", BOTH)
@pytest.mark.parametrize("arguments", [(-1, 0, 1, 1), (2**63 - 1, 0, 1, 1)])
def test_offsets_end_within_64_bits(hash_keys, arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="offset"):
        hash_keys(record(), *arguments)


# ---------------------------------------------------------------- the log


def batch(*keys: Key, codec: Compression = Compression.NONE, value: bytes = b"v") -> bytes:
    return encode_batch([(key, value, 1_000) for key in keys], compression=codec)


async def keys_of(data: bytes, first: int = 0, keys_max: int = 100) -> ReadKeys:
    fd = os.memfd_create("log")
    os.write(fd, data)
    records = LogSlice(SharedDescriptor(fd), 0, len(data), 0)
    try:
        return await read_keys(records, first, keys_max)
    finally:
        records.release()


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
async def test_keys_of_batches_are_read(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_reads, "_PIECE_BYTES", 1_000)
    marker = encode_control_batch(
        ControlRecord(ControlType.ABORT, 1), timestamp_ms=1, producer_id=1, producer_epoch=1
    )
    rows = batch(b"a", None, b"b", codec=codec), batch(b"a", b"c" * 5_000, value=b"v" * 9_000, codec=codec)
    log = rows[0] + with_header(marker, base_offset=3) + with_header(rows[1], base_offset=4)
    found = await keys_of(log)
    assert (found.first, found.behind, list(found.offsets)) == (0, 6, [0, 2, 4, 5])
    assert list(found.hashes) == [hash(key) for key in (b"a", b"b", b"a", b"c" * 5_000)]
    assert list((await keys_of(log, 2)).offsets) == [2, 4, 5]
    assert list((await keys_of(log, 3)).offsets) == [4, 5]
    for keys_max, behind in ((2, 3), (3, 5)):
        found = await keys_of(log, 0, keys_max)
        assert (found.behind, len(found.offsets)) == (behind, keys_max)


@pytest.mark.parametrize(
    "fault", ["size of a record negative", "key size beyond the record", "count too high"]
)
async def test_damaged_records_are_an_error_of_the_storage(fault: str) -> None:
    count, body, _ = MALFORMED[fault]
    with pytest.raises(KafkaError, match="keys of records from offset 0 on cannot be read") as caught:
        await keys_of(bytes(produced(count, body)))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
