"""What consumers tell each other through the group: subscriptions and assignments, opaque to the coordinator.

Each payload begins with its version as int16; `encode_payload` and `decode_payload` add and read it.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from ..codec import decode, encode
from ..primitives import Buffer, MalformedMessage
from ..schema import Message, array, bytes_, data, int32, string

_M = TypeVar("_M", bound=Message)
_VERSION: Final = struct.Struct(">h")


@data()
class TopicPartition(Message):
    """Partitions of one topic."""

    topic: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partitions.")


@data("0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    """What a member wants to consume; the metadata of a JoinGroup protocol."""

    topics: list[str] = array(string, about="Topics subscribed to.")
    user_data: bytes | None = bytes_(nullable="0+", default=None, about="Whatever the assignor adds.")
    owned_partitions: list[TopicPartition] = array(
        TopicPartition, "1+", ignorable=True, about="What the member consumes now (KIP-429)."
    )
    generation_id: int = int32(
        "2+", default=-1, ignorable=True, about="Generation that `owned_partitions` come from (KIP-792)."
    )
    rack_id: str | None = string(
        "3+", nullable="3+", default=None, ignorable=True, about="Rack of the member (KIP-881)."
    )


@data("0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    """What a member shall consume; the assignment of SyncGroup."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition, about="Partitions, by topic.")
    user_data: bytes | None = bytes_(nullable="0+", default=None, about="Whatever the assignor adds.")


@data("0-1", flexible="none")
class StickyAssignorUserData(Message):
    """What members tell the sticky assignor in `user_data`. It stands there without its version."""

    previous_assignment: list[TopicPartition] = array(TopicPartition, about="What the member consumed last.")
    generation: int = int32("1+", default=-1, ignorable=True, about="Generation that it comes from.")


@data("0", flexible="none")
class CooperativeStickyAssignorUserData(Message):
    """What members tell the cooperative sticky assignor in `user_data`, for leaders that know no `generation_id`."""

    generation: int = int32(default=-1, about="Generation that `owned_partitions` come from.")


def encode_payload(message: Message, version: int) -> bytes:
    """The payload with its version in front. Errors as `codec.encode`."""
    return _VERSION.pack(version) + encode(message, version)


def decode_payload(cls: type[_M], payload: Buffer) -> _M:
    """Read a payload; a version newer than ours is read as our newest, whose fields it begins with.

    Raises MalformedMessage if it is no such payload.
    """
    if len(payload) < _VERSION.size:
        raise MalformedMessage(f"{cls.__name__}: the version is missing")
    (version,) = _VERSION.unpack_from(payload)
    if version < 0:
        raise MalformedMessage(f"{cls.__name__}: version {version}")
    return decode(cls, payload, min(version, cls.schema.versions.last), _VERSION.size)


def decode_topics(payload: Buffer) -> list[str]:
    """The topics of a subscription of any version, newer ones included: all begin with the fields of version 0, and
    what follows these is not read.

    Raises MalformedMessage if it is no subscription.
    """
    return decode(ConsumerProtocolSubscription, payload, 0, _VERSION.size).topics
