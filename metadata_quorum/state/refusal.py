"""Texts of refusals: names and values come from users, and an answer must not grow with them."""

from __future__ import annotations

from typing import Protocol

from ...protocol.errors import ErrorCode, KafkaError

MESSAGE_LENGTH_MAX = 1000


class _OfSomebody(Protocol):
    is_denied: bool


def check_allowed(command: _OfSomebody, denial: ErrorCode = ErrorCode.CLUSTER_AUTHORIZATION_FAILED) -> None:
    """Raise KafkaError, with the code `denial`, for a command that the leader has marked as denied because its author
    lacks the right."""
    if command.is_denied:
        raise KafkaError(denial, "The metadata quorum denies this change.")


def message_of(error: KafkaError) -> str:
    """Return the error's text, shortened to a length that every result field can hold."""
    text = error.message
    return text if len(text) <= MESSAGE_LENGTH_MAX else f"{text[: MESSAGE_LENGTH_MAX - 3]}..."
