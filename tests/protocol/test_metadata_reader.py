"""Metadata answers are read as the codec decodes them, whatever was read before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.direct_codecs.metadata_layout import TopicWriter
from ottla.protocol.direct_codecs.metadata_reader import MetadataReader, ToldPartition, ToldTopic
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.wire.codec import decode, encode, encode_element
from ottla.protocol.wire.primitives import MalformedMessage, write_uvarint

VERSIONS = st.integers(9, 13)
NOT_ASKED_FOR = -(1 << 31)

ids = st.integers(-1, 3) | st.integers(-(2**31), 2**31 - 1)
few = st.lists(ids, max_size=4) | st.just(list(range(130)))
partitions = st.builds(
    MetadataResponsePartition,
    error_code=st.integers(0, 6),
    partition_index=st.integers(0, 9) | st.integers(-(2**31), 2**31 - 1),
    leader_id=ids,
    leader_epoch=st.integers(-1, 2),
    replica_nodes=few,
    isr_nodes=few,
    offline_replicas=few,
)
topics = st.builds(
    MetadataResponseTopic,
    error_code=st.integers(-1, 9),
    name=st.sampled_from(["orders", "a", "", "n" * 200, "ß"]),
    topic_id=st.sampled_from([bytes(16), b"t" * 16]),
    is_internal=st.booleans(),
    partitions=st.lists(partitions, max_size=5),
)
responses = st.builds(
    MetadataResponse,
    brokers=st.lists(
        st.builds(
            MetadataResponseBroker,
            node_id=ids,
            host=st.text(max_size=5),
            port=ids,
            rack=st.none() | st.text(max_size=3),
        ),
        max_size=3,
    ),
    cluster_id=st.none() | st.text(max_size=5),
    controller_id=ids,
    topics=st.lists(topics, max_size=4),
)


def read(
    frame: bytes,
    version: int,
    alike: dict[bytes, ToldPartition] | None = None,
    known: dict[str, bytes] | None = None,
) -> tuple[MetadataReader, list[ToldTopic]]:
    reader = MetadataReader(frame, version, 0, {} if alike is None else alike)
    return reader, list(reader.topics(lambda name: (known or {}).get(name, b"")))


def as_told(topic: MetadataResponseTopic) -> tuple[object, ...]:
    partitions = {partition.partition_index: ToldPartition.of(partition) for partition in topic.partitions}
    in_order = {index: partitions[index] for index in sorted(partitions)}
    return topic.name, topic.topic_id, topic.is_internal, topic.error_code, list(in_order.items())


def as_read(topic: ToldTopic) -> tuple[object, ...]:
    assert topic.partitions is not None
    return topic.name, topic.id, topic.is_internal, topic.error_code, list(topic.partitions.items())


def same(frame: bytes, version: int, alike: dict[bytes, ToldPartition]) -> None:
    """Check that the reader and the codec agree on a frame."""
    try:
        message = decode(MetadataResponse, frame, version)
    except MalformedMessage:
        try:
            read(frame, version, alike)
        except MalformedMessage:
            return
        raise AssertionError("the codec cannot read it, and the reader can") from None
    reader, found = read(frame, version, alike)
    assert reader.brokers == message.brokers
    assert (reader.cluster_id, reader.controller_id) == (message.cluster_id, message.controller_id)
    assert [as_read(topic) for topic in found] == [as_told(topic) for topic in message.topics]


@given(responses, VERSIONS)
def test_it_reads_what_the_codec_decodes(response: MetadataResponse, version: int) -> None:
    same(encode(response, version), version, {})


@given(responses, VERSIONS, st.data())
def test_damaged_answers_are_refused_where_the_codec_refuses_them(
    response: MetadataResponse, version: int, data: st.DataObject
) -> None:
    frame = bytearray(encode(response, version))
    alike: dict[bytes, ToldPartition] = {}
    read(bytes(frame), version, alike)
    for _ in range(3):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    same(bytes(frame), version, alike)
    same(bytes(frame[: data.draw(st.integers(0, len(frame)))]), version, alike)


@given(responses, responses, VERSIONS)
def test_what_was_read_before_is_passed_over_only_if_it_comes_again(
    first: MetadataResponse, second: MetadataResponse, version: int
) -> None:
    alike: dict[bytes, ToldPartition] = {}
    _, before = read(encode(first, version), version, alike)
    known = {topic.name: topic.encoded for topic in before if topic.name is not None}
    topics = {topic.name: as_read(topic) for topic in before}
    second.topics = [*second.topics, *first.topics]
    frame = encode(second, version)
    _, found = read(frame, version, alike, known)
    for topic, message in zip(found, decode(MetadataResponse, frame, version).topics, strict=True):
        if topic.partitions is None:
            assert topics[topic.name] == as_told(message)
            assert topic.encoded == known[message.name or ""]
        else:
            assert as_read(topic) == as_told(message)
            assert topic.encoded != known.get(message.name or "")


@given(st.lists(st.tuples(partitions, st.dictionaries(st.integers(0, 9), st.binary(max_size=9))), max_size=6))
def test_tagged_fields_that_nobody_knows_are_passed_over(
    tagged: list[tuple[MetadataResponsePartition, dict[int, bytes]]],
) -> None:
    """The fields come from later versions of Kafka."""
    encoded = []
    for partition, fields in tagged:
        out = bytearray(encode_element(partition, MetadataResponse, 13)[:-1])
        write_uvarint(out, len(fields))
        for tag, value in fields.items():
            write_uvarint(out, tag)
            write_uvarint(out, len(value))
            out += value
        encoded.append(bytes(out))
    topic = TopicWriter(13).topic("t", b"t" * 16, False, encoded, NOT_ASKED_FOR)
    empty = encode(MetadataResponse(), 13)
    # The number of topics, the error code and the number of tagged fields stand at the end.
    frame = empty[:-4] + b"\2" + topic + empty[-3:]
    alike: dict[bytes, ToldPartition] = {}
    same(frame, 13, alike)
    same(frame, 13, alike)


def test_partitions_that_are_alike_are_one_object() -> None:
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=index % 2, leader_epoch=3, replica_nodes=[0, 1], isr_nodes=[0, 1]
        )
        for index in range(100)
    ]
    _, (topic,) = read(
        encode(MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)]), 13), 13
    )
    assert topic.partitions is not None
    assert len({id(partition) for partition in topic.partitions.values()}) == 2
