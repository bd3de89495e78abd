"""What the members of a classic group consume, read from what they tell each other."""

from __future__ import annotations

from ....protocol.messages.consumer_protocol import ConsumerProtocolSubscription, decode_payload
from ....protocol.primitives import MalformedMessage
from .group import Group


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Topics that the members consume; None if they are no consumers or do not say."""
    if group.protocol_type != "consumer":
        return None
    try:
        return frozenset(
            topic
            for member in group.members.values()
            for topic in decode_payload(
                ConsumerProtocolSubscription, member.metadata_for(group.protocol or member.protocols[0][0])
            ).topics
        )
    except MalformedMessage:
        return None
