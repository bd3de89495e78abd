"""Keys and values of `__consumer_offsets` as Kafka 4.4 writes them, and consumers' payloads."""

from __future__ import annotations

import pytest

from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_payload,
    encode_payload,
)
from ottla.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.wire.codec import MalformedMessage, decode, encode
from ottla.protocol.wire.schema import Message

TOPIC_ID = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")


def offset(version: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=300,
        metadata="m",
        commit_timestamp=1_700_000_000_000,
        leader_epoch=5 if version >= 3 else -1,
        expire_timestamp=7 if version == 1 else -1,
        topic_id=TOPIC_ID if version == 4 else bytes(16),
    )


def group(version: int) -> GroupMetadataValue:
    member = GroupMetadataMember(
        member_id="id",
        client_id="c",
        client_host="/h",
        session_timeout=10,
        subscription=b"\1",
        assignment=b"\2\3",
        group_instance_id="i" if version >= 3 else None,
        rebalance_timeout=20 if version >= 1 else -1,
    )
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader=None,
        members=[member],
        current_state_timestamp=9 if version >= 2 else -1,
    )


# Written by the classes of Kafka 4.4 from the same values.
WRITTEN_BY_KAFKA: list[tuple[Message, int, str]] = [
    (offset(0), 0, "000000000000012c00016d0000018bcfe56800"),
    (offset(1), 1, "000000000000012c00016d0000018bcfe568000000000000000007"),
    (offset(2), 2, "000000000000012c00016d0000018bcfe56800"),
    (offset(3), 3, "000000000000012c0000000500016d0000018bcfe56800"),
    (offset(4), 4, "000000000000012c00000005026d0000018bcfe5680001001000000000000000010000000000000002"),
    (
        group(0),
        0,
        "0008636f6e73756d657200000004000572616e6765ffff000000010002696400016300022f680000000a"
        "0000000101000000020203",
    ),
    (
        group(1),
        1,
        "0008636f6e73756d657200000004000572616e6765ffff000000010002696400016300022f6800000014"
        "0000000a0000000101000000020203",
    ),
    (
        group(2),
        2,
        "0008636f6e73756d657200000004000572616e6765ffff0000000000000009000000010002696400016300022f68"
        "000000140000000a0000000101000000020203",
    ),
    (
        group(3),
        3,
        "0008636f6e73756d657200000004000572616e6765ffff0000000000000009000000010002696400016900016300022f68"
        "000000140000000a0000000101000000020203",
    ),
    (
        group(4),
        4,
        "09636f6e73756d6572000000040672616e67650000000000000000090203696402690263032f68"
        "000000140000000a02010302030000",
    ),
    (OffsetCommitKey(group="g", topic="t", partition=3), 1, "00016700017400000003"),
    (GroupMetadataKey(group="g"), 2, "000167"),
]


@pytest.mark.parametrize(("message", "version", "written"), WRITTEN_BY_KAFKA)
def test_records_are_those_of_kafka(message: Message, version: int, written: str) -> None:
    assert encode(message, version).hex() == written
    assert decode(type(message), bytes.fromhex(written), version) == message


def test_payloads_carry_their_version() -> None:
    owned = [TopicPartition(topic="t", partitions=[0, 2])]
    subscription = ConsumerProtocolSubscription(
        topics=["t"], owned_partitions=owned, generation_id=3, rack_id="a"
    )
    payload = encode_payload(subscription, 3)
    assert payload[:2] == b"\0\3"
    assert decode_payload(ConsumerProtocolSubscription, payload) == subscription
    newer = b"\0\x09" + payload[2:] + b"fields of the future"
    assert decode_payload(ConsumerProtocolSubscription, newer) == subscription


@pytest.mark.parametrize("payload", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1"])
def test_damaged_payloads(payload: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_payload(ConsumerProtocolAssignment, payload)
