"""The rules of the codec: limits, tagged fields, fields missing in a version, gaps, and hostile bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.headers import (
    APART_BYTES,
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    request_pieces,
    response_header,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.protocol.records.record import SealedBatch
from ottla.protocol.wire.codec import (
    MalformedMessage,
    UnsupportedField,
    UnsupportedVersion,
    decode,
    decode_from,
    encode,
    encode_parts,
)
from ottla.protocol.wire.primitives import write_uvarint
from ottla.protocol.wire.schema import (
    Message,
    array,
    boolean,
    bytes_,
    data,
    float64,
    int8,
    int32,
    string,
    uint16,
    uuid,
)
from tests.protocol.kio_bridge import kio_class, random_message

HOSTILE = [
    (ProduceRequest, 3),
    (ProduceRequest, 9),
    (FetchRequest, 11),
    (FetchRequest, 17),
    (MetadataRequest, 9),
    (MetadataResponse, 12),
    (FetchResponse, 16),
    (ShareFetchRequest, 2),
    (ShareFetchResponse, 2),
    (ApiVersionsResponse, 3),
]
MEMORY_BYTES_MAX = 4 * 1024 * 1024


@data()
class Old(Message):
    number: int = int32(default=7)
    items: list[str] = array(string)


@data()
class Grown(Message):
    number: int = int32(default=7)
    items: list[str] = array(string)
    small: int = int8(tag=0, default=-1)
    flag: bool = boolean(tag=3)
    many: list[bytes] = array(uuid, tag=200)
    port: int = uint16(tag=201)
    ratio: float = float64(tag=202)


@data("0-2", flexible="none")
class Versioned(Message):
    kept: int = int32()
    optional: int = int32("1+", ignorable=True, default=-1)
    needed: int = int32("2+", default=-1)
    blob: bytes | None = bytes_("0+", nullable="1+")


def test_a_reader_skips_tagged_fields_that_it_does_not_know() -> None:
    grown = Grown(number=1, items=["a"], small=5, flag=True, many=[bytes(range(16))], port=65535, ratio=0.5)
    assert decode(Old, encode(grown, 0), 0) == Old(number=1, items=["a"])
    assert decode(Grown, encode(grown, 0), 0) == grown
    assert decode(Grown, encode(Old(), 0), 0) == Grown()


def test_defaults_are_not_shared() -> None:
    Old().items.append("x")
    assert Old().items == []


def test_a_field_the_version_lacks_is_refused_unless_it_may_be_ignored() -> None:
    assert decode(Versioned, encode(Versioned(kept=1, optional=5), 0), 0) == Versioned(kept=1)
    with pytest.raises(UnsupportedField, match=r"Versioned\.needed"):
        encode(Versioned(needed=0), 1)
    with pytest.raises(UnsupportedField, match=r"Versioned\.blob"):
        encode(Versioned(blob=None), 0)
    with pytest.raises(UnsupportedVersion, match="0 to 2"):
        encode(Versioned(), 3)
    with pytest.raises(UnsupportedVersion):
        decode(Versioned, b"", -1)


@pytest.mark.parametrize(
    "message",
    [Old(number=1 << 31), Old(items=["x" * 40_000]), Grown(many=[b"short"]), Grown(port=-1)],
)
def test_a_value_out_of_range_is_refused(message: Message) -> None:
    with pytest.raises(UnsupportedField):
        encode(message, 0)


def test_a_record_view_is_not_copied() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"abc")])]
    )
    buffer = bytearray(encode(request, 9))
    decoded = decode(ProduceRequest, memoryview(buffer), 9)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"abc"
    assert records.obj is buffer


class Slice:
    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize("version", [4, 11, 12, 17])
@given(sizes=st.lists(st.none() | st.integers(0, 300), max_size=5))
@settings(max_examples=10)
def test_holes_stand_where_the_records_would(version: int, sizes: list[int | None]) -> None:
    def response(whole: bool) -> FetchResponse:
        partitions = [
            PartitionData(
                partition_index=i,
                records=None if size is None else bytes(size) if whole else Slice(size),  # type: ignore[arg-type]
            )
            for i, size in enumerate(sizes)
        ]
        return FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])

    parts = encode_parts(response(whole=False), version)
    assert [p.size for p in parts if isinstance(p, Slice)] == [size for size in sizes if size is not None]
    filled = b"".join(bytes(p.size) if isinstance(p, Slice) else p for p in parts)
    assert filled == encode(response(whole=True), version)


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("cls", "version", "payload"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 1, b"\x00\x1e\x84\x80" + bytes(3_000_000)),
        (MetadataRequest, 9, uvarint(1_000_002) + bytes(2_000_000)),
        (MetadataRequest, 9, uvarint(0xFFFFFFFF)),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\xff\xff\x01"),
        (MetadataRequest, 9, b"\x01\x00\x00\x00" + uvarint(10_001) + bytes(30_000)),
        (MetadataRequest, 9, b"\x01\x00\x00\x00" + b"\x01\x05" + uvarint(1 << 30)),
        (MetadataRequest, 9, b"\x02" + uvarint(40_001) + b"x" * 40_000 + b"\x00\x00\x00\x00\x00"),
        (ProduceRequest, 3, b"\x7f\xff"),
        (ProduceRequest, 3, b"\x00\x01\xff" + bytes(10)),
        (Grown, 0, b"\x00\x00\x00\x07\x01\x01\x00\x02\x05\x05"),
    ],
)
def test_lengths_beyond_a_limit_are_refused_before_memory_is_taken(
    cls: type[Message], version: int, payload: bytes
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(cls, payload, version)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("cls", "version"), HOSTILE, ids=lambda v: getattr(v, "__name__", v))
@given(noise=st.binary(max_size=300))
@settings(max_examples=40)
def test_random_bytes_are_malformed_or_a_message(cls: type[Message], version: int, noise: bytes) -> None:
    try:
        _, end = decode_from(cls, noise, version)
    except MalformedMessage:
        return
    assert end <= len(noise)


@pytest.mark.parametrize(("cls", "version"), HOSTILE, ids=lambda v: getattr(v, "__name__", v))
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=10)
def test_damaged_messages_are_malformed_or_a_message(cls: type[Message], version: int, seed: int) -> None:
    rng = Random(seed)
    whole = encode(random_message(rng, cls, version, kio_class(cls, version)), version)
    with pytest.raises(MalformedMessage):
        decode(cls, whole[: rng.randrange(len(whole))], version)
    damaged = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    try:
        decode(cls, memoryview(damaged), version)
    except MalformedMessage:
        pass


@pytest.mark.parametrize("client_id", [None, "", "client"])
@pytest.mark.parametrize("version", [0, 3])
def test_request_frames(version: int, client_id: str | None) -> None:
    frame = encode_request(ApiVersionsRequest(client_software_name="ottla"), version, 9, client_id)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(memoryview(frame)[4:])
    assert header == RequestHeader(18, version, 9, client_id)
    request, end = decode_from(ApiVersionsRequest, frame[4:], version, position)
    assert request.client_software_name == ("ottla" if version >= 3 else "")
    assert end == len(frame) - 4


@pytest.mark.parametrize(
    "bodies", [(), (0,), (100, 16_000), (100, 20_000), (16_384, 3, 300_000), (40_000, 40_000)]
)
@pytest.mark.parametrize("version", [8, 9, 12])
def test_a_frame_in_pieces_is_that_in_one(version: int, bodies: tuple[int, ...]) -> None:
    batches = [SealedBatch(b"%061d" % number, bytes(size)) for number, size in enumerate(bodies)]

    def request(records: Iterable[Any]) -> ProduceRequest:
        partitions = [PartitionProduceData(index=at, records=data) for at, data in enumerate(records)]
        return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)])

    pieces = request_pieces(request(batches), version, 9, "client")
    assert b"".join(pieces) == encode_request(request(map(b"".join, batches)), version, 9, "client")
    large = [batch.body for batch in batches if len(batch.body) >= APART_BYTES]
    assert [piece.obj for piece in pieces if isinstance(piece, memoryview)] == large


@pytest.mark.parametrize("version", [1, 9])
def test_response_frames(version: int) -> None:
    frame = response_header(3, version, 77) + encode(MetadataResponse(controller_id=4), version)
    assert decode_response(MetadataRequest, frame, version) == (77, MetadataResponse(controller_id=4))
    with pytest.raises(MalformedMessage):
        decode_response(MetadataRequest, frame[:4], version)


def test_the_header_of_api_versions_never_has_tagged_fields() -> None:
    assert response_header(18, 3, 1) == response_header(18, 0, 1)


@given(st.binary(max_size=40))
@settings(max_examples=100)
def test_random_request_headers(noise: bytes) -> None:
    try:
        _, position = decode_request_header(noise)
    except MalformedMessage:
        return
    assert position <= len(noise)


def test_a_topic_name_with_text_that_is_not_utf8() -> None:
    good = encode(MetadataRequest(topics=[MetadataRequestTopic(name="abc")]), 1)
    with pytest.raises(MalformedMessage, match="UTF-8"):
        decode(MetadataRequest, good.replace(b"abc", b"\xff\xfe\xfd"), 1)


@data()
class Numbers(Message):
    """A message with arrays of numbers of each size."""

    tiny: list[int] = array(int8)
    small: list[int] = array(uint16)
    plain: list[int] = array(int32)
    broken: list[float] = array(float64)


@given(
    st.lists(st.integers(-128, 127), max_size=40),
    st.lists(st.integers(0, 2**16 - 1), max_size=40),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40),
    st.lists(st.floats(allow_nan=False), max_size=40),
    st.data(),
)
def test_arrays_of_few_and_of_many_numbers(
    tiny: list[int], small: list[int], plain: list[int], broken: list[float], drawn: st.DataObject
) -> None:
    message = Numbers(tiny=tiny, small=small, plain=plain, broken=broken)
    encoded = encode(message, 0)
    assert decode_from(Numbers, encoded, 0) == (message, len(encoded))
    with pytest.raises(MalformedMessage):
        decode(Numbers, encoded[: drawn.draw(st.integers(0, len(encoded) - 1))], 0)
