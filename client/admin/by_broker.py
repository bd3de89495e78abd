"""Answers of several brokers to one question, for callers that can use a part of the answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ...protocol.errors import KafkaError

T = TypeVar("T")


def split(answers: Mapping[int, Sequence[T] | KafkaError]) -> tuple[list[T], dict[int, KafkaError]]:
    """Return all items that brokers listed, and the errors of the other brokers by broker id."""
    listed = [item for answer in answers.values() if not isinstance(answer, KafkaError) for item in answer]
    return listed, {broker: answer for broker, answer in answers.items() if isinstance(answer, KafkaError)}
