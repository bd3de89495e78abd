"""Lists that brokers tell of each by itself: a page shows those that came, and names the brokers of which none came.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ..client.admin.by_broker import split
from ..protocol.errors import KafkaError

T = TypeVar("T")


def joined(answers: Mapping[int, Sequence[T] | KafkaError]) -> tuple[list[T], dict[int, str]]:
    """Return all that was listed, and by broker why it listed nothing. Raises KafkaError if none of them answered."""
    listed, failures = split(answers)
    if failures and len(failures) == len(answers):
        raise next(iter(failures.values()))
    return listed, {broker: f"{error.message} ({error.code.name})" for broker, error in failures.items()}
