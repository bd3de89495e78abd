"""Messages of a classic group's members inside JoinGroup and SyncGroup: topics wanted, partitions owned and assigned.

Subscriptions are written in the newest version, assignments in version 0: older members ignore bytes after the fields
that they know. Every version can be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeStickyAssignorUserData,
    StickyAssignorUserData,
    decode_payload,
    encode_payload,
)
from ....protocol.messages.consumer_protocol import TopicPartition as Listed
from ....protocol.messages.offsets import NO_GENERATION
from ....protocol.wire.codec import MalformedMessage, decode, encode
from ...records import TopicPartition

_VERSION = 3
_WITHOUT_GENERATION, _WITH_GENERATION = 0, 1


class Claim(NamedTuple):
    """A group member's report of the partitions that it owned, and of the group's generation at that time."""

    generation: int = NO_GENERATION
    partitions: Collection[TopicPartition] = ()


NOTHING = Claim()


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's wanted topics, and the partitions that it keeps while it joins; none if all were revoked."""

    topics: tuple[str, ...]
    owned: Claim = NOTHING
    user_data: bytes | None = None
    """The data of the member's assignor."""
    rack: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a member's subscription, as JoinGroup carries them."""
    message = ConsumerProtocolSubscription(
        topics=sorted(set(subscription.topics)),
        user_data=subscription.user_data,
        owned_partitions=_listed(subscription.owned.partitions),
        generation_id=subscription.owned.generation,
        rack_id=subscription.rack,
    )
    return encode_payload(message, _VERSION)


def decode_subscription(data: bytes | memoryview) -> Subscription:
    """Return the subscription in `data`. Raises KafkaError INCONSISTENT_GROUP_PROTOCOL for other bytes."""
    try:
        message = decode_payload(ConsumerProtocolSubscription, data)
    except MalformedMessage as error:
        raise _unreadable("subscription", error) from None
    owned = Claim(message.generation_id, _unlisted(message.owned_partitions))
    return Subscription(tuple(message.topics), owned, message.user_data, message.rack_id)


def sticky_user_data(last: Claim) -> bytes | None:
    """Return the user data for the sticky assignor: the previous partitions, as all are revoked before it assigns."""
    if last.generation == NO_GENERATION:
        return None
    message = StickyAssignorUserData(previous_assignment=_listed(last.partitions), generation=last.generation)
    return encode(message, _WITH_GENERATION)


def sticky_claim(subscription: Subscription) -> Claim:
    """Return the claim in the user data of the sticky assignor; none if it cannot be read, which only costs moves."""
    data = subscription.user_data
    if not data:
        return NOTHING
    for version in (_WITH_GENERATION, _WITHOUT_GENERATION):
        try:
            previous = decode(StickyAssignorUserData, data, version)
        except MalformedMessage:
            continue
        return Claim(previous.generation, _unlisted(previous.previous_assignment))
    return NOTHING


def cooperative_user_data(last: Claim) -> bytes | None:
    """Return the user data for the cooperative sticky assignor, for leaders that cannot read newer subscriptions."""
    return encode(CooperativeStickyAssignorUserData(generation=last.generation), 0)


def cooperative_claim(subscription: Subscription) -> Claim:
    """Return a member's claim.

    If its subscription has no generation, the user data may contain it, in the cooperative (Java) or the sticky form
    (librdkafka).
    """
    owned, data = subscription.owned, subscription.user_data
    if owned.generation != NO_GENERATION or not data:
        return owned
    if len(data) == 4:
        return Claim(decode(CooperativeStickyAssignorUserData, data, 0).generation, owned.partitions)
    return Claim(sticky_claim(subscription).generation, owned.partitions)


def encode_assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Return the bytes of a member's assignment (partitions by topic), as SyncGroup carries them."""
    assigned = [Listed(topic=topic, partitions=list(indexes)) for topic, indexes in partitions.items()]
    return encode_payload(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)


def decode_assignment(data: bytes | memoryview) -> dict[str, list[int]]:
    """Return a member's partitions by topic; empty bytes are none. Raises KafkaError INCONSISTENT_GROUP_PROTOCOL."""
    if not len(data):
        return {}
    try:
        assigned = decode_payload(ConsumerProtocolAssignment, data).assigned_partitions
    except MalformedMessage as error:
        raise _unreadable("assignment", error) from None
    return {entry.topic: entry.partitions for entry in assigned}


def _listed(partitions: Iterable[TopicPartition]) -> list[Listed]:
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        indexes[topic].append(index)
    return [Listed(topic=topic, partitions=some) for topic, some in indexes.items()]


def _unlisted(listed: Iterable[Listed]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(entry.topic, index) for entry in listed for index in entry.partitions)


def _unreadable(what: str, error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"cannot read a member's {what}: {error}")
