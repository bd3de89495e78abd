"""What members of a classic group tell each other inside JoinGroup and SyncGroup: topics wanted, partitions
owned, partitions given.

Subscriptions are written in the newest version, assignments in version 0: older members pass over what follows the
fields that they know. Read in any version.
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
from ....protocol.wire.codec import MalformedMessage, decode, encode
from ...records import TopicPartition
from ..group_metadata import NO_GENERATION

_VERSION = 3
_WITHOUT_GENERATION, _WITH_GENERATION = 0, 1


class Claim(NamedTuple):
    """What a member has, by its own word, since a generation of the group."""

    generation: int = NO_GENERATION
    partitions: Collection[TopicPartition] = ()


NOTHING = Claim()


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member wants, and what it has while it joins: nothing, when all is revoked before."""

    topics: tuple[str, ...]
    owned: Claim = NOTHING
    user_data: bytes | None = None
    """What its assignor adds."""
    rack: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """The bytes that say what a member wants and has."""
    message = ConsumerProtocolSubscription(
        topics=sorted(set(subscription.topics)),
        user_data=subscription.user_data,
        owned_partitions=_listed(subscription.owned.partitions),
        generation_id=subscription.owned.generation,
        rack_id=subscription.rack,
    )
    return encode_payload(message, _VERSION)


def decode_subscription(data: bytes | memoryview) -> Subscription:
    """What a member wants and has. Raises KafkaError INCONSISTENT_GROUP_PROTOCOL for bytes that are
    none.
    """
    try:
        message = decode_payload(ConsumerProtocolSubscription, data)
    except MalformedMessage as error:
        raise _unreadable("subscription", error) from None
    owned = Claim(message.generation_id, _unlisted(message.owned_partitions))
    return Subscription(tuple(message.topics), owned, message.user_data, message.rack_id)


def sticky_user_data(last: Claim) -> bytes | None:
    """What a member tells the sticky assignor, which revokes everything before it assigns: what it had."""
    if last.generation == NO_GENERATION:
        return None
    message = StickyAssignorUserData(previous_assignment=_listed(last.partitions), generation=last.generation)
    return encode(message, _WITH_GENERATION)


def sticky_claim(subscription: Subscription) -> Claim:
    """What a member told the sticky assignor. Nothing if it cannot be read: it costs moves only."""
    data = subscription.user_data
    if not data:
        return NOTHING
    for version in (_WITH_GENERATION, _WITHOUT_GENERATION):
        try:
            told = decode(StickyAssignorUserData, data, version)
        except MalformedMessage:
            continue
        return Claim(told.generation, _unlisted(told.previous_assignment))
    return NOTHING


def cooperative_user_data(last: Claim) -> bytes | None:
    """What a member tells the cooperative sticky assignor of leaders that read no newer subscriptions."""
    return encode(CooperativeStickyAssignorUserData(generation=last.generation), 0)


def cooperative_claim(subscription: Subscription) -> Claim:
    """What a member owns. Where its subscription has no generation, that is looked for in the user data, of the
    cooperative (Java) or of the sticky form (librdkafka)."""
    owned, data = subscription.owned, subscription.user_data
    if owned.generation != NO_GENERATION or not data:
        return owned
    if len(data) == 4:
        return Claim(decode(CooperativeStickyAssignorUserData, data, 0).generation, owned.partitions)
    return Claim(sticky_claim(subscription).generation, owned.partitions)


def encode_assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    """The bytes that tell a member its partitions."""
    assigned = [Listed(topic=topic, partitions=list(indexes)) for topic, indexes in partitions.items()]
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


def _listed(partitions: Iterable[TopicPartition]) -> list[Listed]:
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        indexes[topic].append(index)
    return [Listed(topic=topic, partitions=some) for topic, some in indexes.items()]


def _unlisted(listed: Iterable[Listed]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.topic, index) for one in listed for index in one.partitions)


def _unreadable(what: str, error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"cannot read a member's {what}: {error}")
