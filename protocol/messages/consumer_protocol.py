"""Payloads that consumers exchange through their group: subscriptions and assignments, opaque to the coordinator.

Each payload begins with its version as int16; `encode_payload` writes it and `decode_payload` reads it.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from ..wire.codec import decode, encode
from ..wire.primitives import Buffer, MalformedMessage
from ..wire.schema import Message, array, bytes_, data, int32, string

_M = TypeVar("_M", bound=Message)
_VERSION: Final = struct.Struct(">h")


@data()
class TopicPartition(Message):
    """Partitions of one topic."""

    topic: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data("0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    """Topics that a member wants to consume: the metadata of a JoinGroup protocol."""

    topics: list[str] = array(string, about="Topics subscribed to.")
    user_data: bytes | None = bytes_(nullable="0+", default=None, about="Opaque data of the assignor.")
    owned_partitions: list[TopicPartition] = array(
        TopicPartition, "1+", ignorable=True, about="Partitions that the member consumes now (KIP-429)."
    )
    generation_id: int = int32(
        "2+",
        default=-1,
        ignorable=True,
        about="Generation in which the member got `owned_partitions` (KIP-792).",
    )
    rack_id: str | None = string(
        "3+", nullable="3+", default=None, ignorable=True, about="Rack of the member (KIP-881)."
    )


@data("0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    """Partitions that a member shall consume: the assignment of SyncGroup."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition, about="Partitions, by topic.")
    user_data: bytes | None = bytes_(nullable="0+", default=None, about="Opaque data of the assignor.")


@data("0-1", flexible="none")
class StickyAssignorUserData(Message):
    """State that members send to the sticky assignor in `user_data`, without a version in front."""

    previous_assignment: list[TopicPartition] = array(
        TopicPartition, about="Partitions that the member consumed last."
    )
    generation: int = int32(
        "1+", default=-1, ignorable=True, about="Generation in which the member got these partitions."
    )


@data("0", flexible="none")
class CooperativeStickyAssignorUserData(Message):
    """State that members send to the cooperative sticky assignor in `user_data`, for leaders that do not know
    `generation_id`."""

    generation: int = int32(default=-1, about="Generation in which the member got `owned_partitions`.")


def encode_payload(message: Message, version: int) -> bytes:
    """Encode a consumer's subscription or assignment, with its version as int16 in front. Errors as `codec.encode`."""
    return _VERSION.pack(version) + encode(message, version)


def decode_payload(cls: type[_M], payload: Buffer) -> _M:
    """Read a subscription or assignment of a consumer. A payload of a version newer than ours is read as our newest,
    with whose fields it begins.

    Raises MalformedMessage if the bytes are no such payload.
    """
    if len(payload) < _VERSION.size:
        raise MalformedMessage(f"{cls.__name__}: the version is missing")
    (version,) = _VERSION.unpack_from(payload)
    if version < 0:
        raise MalformedMessage(f"{cls.__name__}: version {version}")
    return decode(cls, payload, min(version, cls.schema.versions.last), _VERSION.size)


def decode_topics(payload: Buffer) -> list[str]:
    """Return the topics of a subscription of any version, even a newer one: all versions begin with the fields of
    version 0, and later fields are not read.

    Raises MalformedMessage if the bytes are no subscription.
    """
    return decode(ConsumerProtocolSubscription, payload, 0, _VERSION.size).topics
