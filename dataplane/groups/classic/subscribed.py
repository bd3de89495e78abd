"""What the members of a classic group consume, read from what they tell each other."""

from __future__ import annotations

from ....protocol.messages.consumer_protocol import decode_topics
from ....protocol.wire.primitives import MalformedMessage
from .group import ClassicGroup

CONSUMER = "consumer"
"""The protocol type whose members say what they subscribe to."""


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Topics that the members consume; None if they are no consumers or do not say."""
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
