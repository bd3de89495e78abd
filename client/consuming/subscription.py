"""What members of a classic group tell each other inside JoinGroup and SyncGroup: topics wanted, partitions
given.

Written in version 0, which every member reads; read in any version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.codec import MalformedMessage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_payload,
    encode_payload,
)


def encode_subscription(topics: Iterable[str]) -> bytes:
    """The bytes that say which topics a member wants."""
    return encode_payload(ConsumerProtocolSubscription(topics=sorted(set(topics))), 0)


def decode_subscription(data: bytes | memoryview) -> list[str]:
    """The topics that a member wants. Raises KafkaError INCONSISTENT_GROUP_PROTOCOL for bytes that are
    none.
    """
    try:
        return decode_payload(ConsumerProtocolSubscription, data).topics
    except MalformedMessage as error:
        raise _unreadable("subscription", error) from None


def encode_assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    """The bytes that tell a member its partitions."""
    assigned = [
        TopicPartition(topic=topic, partitions=list(indexes)) for topic, indexes in partitions.items()
    ]
    return encode_payload(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)


def decode_assignment(data: bytes | memoryview) -> dict[str, list[int]]:
    """A member's partitions by topic; empty bytes are none. Raises KafkaError INCONSISTENT_GROUP_PROTOCOL."""
    if not len(data):
        return {}
    try:
        assigned = decode_payload(ConsumerProtocolAssignment, data).assigned_partitions
    except MalformedMessage as error:
        raise _unreadable("assignment", error) from None
    return {one.topic: one.partitions for one in assigned}


def _unreadable(what: str, error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"cannot read a member's {what}: {error}")
