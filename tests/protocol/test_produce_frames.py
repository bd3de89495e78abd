"""Usual Produce requests are read and answered without a message object: in C as in Python, with equal results."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.direct_codecs import produce_frames_in_python
from ottla.protocol.direct_codecs.produce_frames import write_produced
from ottla.protocol.direct_codecs.produce_frames_in_python import BATCHES_MAX, SentProduce
from ottla.protocol.messages.headers import (
    decode_request_header,
    decode_response,
    encode_request,
    response_header,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.primitives import MalformedMessage

try:
    from ottla.protocol.direct_codecs import _produce_frames as in_c
except ImportError:
    in_c = None

NEEDS_C = pytest.mark.skipif(in_c is None, reason="the extension is not built")
BOTH = [
    pytest.param(produce_frames_in_python, id="in Python"),
    pytest.param(in_c, id="in C", marks=NEEDS_C),
]
ALL_THERE = [module for module in (produce_frames_in_python, in_c) if module is not None]
"""Readers of a request, tested one after the other, since making requests takes most of the time."""
VERSIONS = list(range(3, 14))

names = st.text(st.characters(codec="utf-8"), max_size=40)
partitions = st.builds(
    PartitionProduceData,
    index=st.integers(-(2**31), 2**31 - 1),
    records=st.none() | st.binary(max_size=300),
)
topics = st.builds(
    TopicProduceData,
    name=names,
    topic_id=st.binary(min_size=16, max_size=16),
    partition_data=st.lists(partitions, max_size=4),
)
LEAST = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"")])])
requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | names,
    acks=st.integers(-2, 2),
    timeout_ms=st.integers(-(2**31), 2**31 - 1),
    topic_data=st.lists(topics, max_size=3),
)


def framed(message: ProduceRequest, version: int) -> tuple[memoryview, int]:
    """Return the frame without its size, and the beginning of its body."""
    frame = memoryview(encode_request(message, version, 7, "client"))[4:]
    return frame, decode_request_header(frame)[1]


def as_message_says(frame: memoryview, offset: int, version: int) -> SentProduce | None:
    """Return the usual parts of a request, by their definition."""
    try:
        message = decode(ProduceRequest, frame, version, offset)
    except MalformedMessage:
        return None
    named = [data.topic_id if version >= 13 else data.name for data in message.topic_data]
    batches = [
        (name, part.index, part.records)
        for name, data in zip(named, message.topic_data, strict=True)
        for part in data.partition_data
    ]
    if (
        not 0 < len(batches) <= BATCHES_MAX
        or not all(data.partition_data for data in message.topic_data)
        or any(name == next_name for name, next_name in pairwise(named))
        or any(records is None for _, _, records in batches)
    ):
        return None
    return message.transactional_id, message.acks, message.timeout_ms, batches  # type: ignore[return-value]


@pytest.mark.parametrize("version", VERSIONS)
@given(message=requests)
def test_it_reads_what_messages_say(version: int, message: ProduceRequest) -> None:
    frame, offset = framed(message, version)
    said = as_message_says(frame, offset, version)
    for module in ALL_THERE:
        assert module.read_produce(frame, offset, version) == said


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@given(message=requests, place=st.integers(0), change=st.integers(1, 255), cuts=st.booleans())
@example(message=LEAST, place=0, change=1, cuts=False)  # null by a length that is not -1
def test_damaged_frames_are_read_as_messages_are_or_not_at_all(
    version: int, message: ProduceRequest, place: int, change: int, cuts: bool
) -> None:
    frame, offset = framed(message, version)
    damaged = bytearray(frame)
    at = offset + place % (len(frame) - offset)
    if cuts:
        del damaged[at:]
    else:
        damaged[at] ^= change
    view = memoryview(damaged)
    expected = as_message_says(view, offset, version)
    for module in ALL_THERE:
        read = module.read_produce(view, offset, version)
        # Only a tagged field may be refused by one and not by the other.
        assert read == expected or (read is None and not cuts and version >= 9)


@pytest.mark.parametrize("module", BOTH)
def test_the_records_are_views_of_the_frame(module: ModuleType) -> None:
    data = [PartitionProduceData(index=index, records=bytes([index]) * 200) for index in range(BATCHES_MAX)]
    message = ProduceRequest(
        acks=-1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    frame, offset = framed(message, 9)
    changed = memoryview(bytearray(frame))
    read = module.read_produce(changed, offset, 9)
    assert read is not None
    assert read[:3] == (None, -1, 5)
    for index, (topic, partition, records) in enumerate(read[3]):
        records[0] = 0xFF
        assert (topic, partition, bytes(records)) == ("t", index, b"\xff" + bytes([index]) * 199)
    assert bytes(changed).count(b"\xff") == bytes(frame).count(b"\xff") + BATCHES_MAX


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize("version", [8, 9, 13])
def test_what_is_not_usual_is_left_to_messages(module: ModuleType, version: int) -> None:
    data = PartitionProduceData(index=0, records=b"records")

    def read(*topic_data: TopicProduceData) -> SentProduce | None:
        result: SentProduce | None = module.read_produce(
            *framed(ProduceRequest(topic_data=[*topic_data]), version), version
        )
        return result

    def topic(*data: PartitionProduceData, name: str = "t") -> TopicProduceData:
        return TopicProduceData(name=name, topic_id=name.encode() * 16, partition_data=[*data])

    assert read(topic(data)) is not None
    assert read(topic(data), topic(data, name="u"), topic(data)) is not None
    assert read() is None, "no topic"
    assert read(topic()) is None, "no partition"
    assert read(topic(data), topic(data)) is None, "the same topic twice"
    assert read(topic(PartitionProduceData(index=0, records=None))) is None, "null in place of records"
    assert read(topic(*[data] * BATCHES_MAX)) is not None
    assert read(topic(*[data] * (BATCHES_MAX + 1))) is None, "too many batches"
    assert read(topic(*[data] * BATCHES_MAX), topic(data, name="u")) is None, "too many batches"
    frame, offset = framed(ProduceRequest(topic_data=[topic(data)]), version)
    for wrong in (-1, 0, 1, 2, 14, 1 << 20):
        assert module.read_produce(frame, offset, wrong) is None, "no such version"
    assert module.read_produce(frame, len(frame), version) is None
    assert module.read_produce(frame, len(frame) + 1, version) is None


@NEEDS_C
def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError):
        in_c.read_produce(b"bytes", 0, 9)
    with pytest.raises(TypeError):
        in_c.read_produce(memoryview(b"bytes"), 0)
    with pytest.raises(TypeError):
        in_c.read_produce(memoryview(b"bytes"), "0", 9)


offsets = st.integers(-1, 2**63 - 1)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    sent=st.lists(
        st.tuples(
            names,
            st.binary(min_size=16, max_size=16),
            st.lists(st.tuples(st.integers(0, 2**31 - 1), offsets, offsets, offsets), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=3,
        unique_by=(lambda part: part[0], lambda part: part[1]),
    ),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
)
def test_it_writes_what_messages_write(
    version: int, sent: list[tuple[str, bytes, list[tuple[int, int, int, int]]]], correlation_id: int
) -> None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index, base_offset=base, log_append_time_ms=time, log_start_offset=start
                    )
                    for index, base, time, start in batches
                ],
            )
            for name, topic_id, batches in sent
        ]
    )
    appended = [
        (topic_id if version >= 13 else name, *batch) for name, topic_id, batches in sent for batch in batches
    ]
    frame = write_produced(version, correlation_id, appended)
    body = response_header(ProduceRequest.api_key, version, correlation_id) + encode(response, version)
    assert frame == len(body).to_bytes(4, "big") + body
    assert decode_response(ProduceRequest, frame[4:], version)[0] == correlation_id
