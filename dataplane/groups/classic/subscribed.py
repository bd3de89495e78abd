"""The topics that the members of a classic group consume, read from their subscriptions."""

from __future__ import annotations

from ....protocol.messages.consumer_protocol import decode_topics
from ....protocol.wire.primitives import MalformedMessage
from .group import ClassicGroup

CONSUMER = "consumer"
"""The protocol type whose members send subscriptions."""


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics that the members consume; None if they are not consumers or a subscription is unreadable."""
    if group.protocol_type != CONSUMER:
        return None
    try:
        return frozenset(
            topic
            for member in group.members.values()
            for topic in decode_topics(member.metadata_for(group.protocol or member.protocols[0][0]))
        )
    except MalformedMessage:
        return None
