"""What is told about a refusal: names and values come from users, and an answer must not grow with them."""

from __future__ import annotations

from ...protocol.errors import KafkaError

MESSAGE_LENGTH_MAX = 1000


def message_of(error: KafkaError) -> str:
    """The error's text, shortened to what every field of a result can carry."""
    text = error.message
    return text if len(text) <= MESSAGE_LENGTH_MAX else f"{text[: MESSAGE_LENGTH_MAX - 3]}..."
