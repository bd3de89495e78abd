"""Lists that each broker reports for itself, with the errors of brokers that reported none.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ..client.admin.by_broker import split
from ..protocol.errors import KafkaError

T = TypeVar("T")


def joined(answers: Mapping[int, Sequence[T] | KafkaError]) -> tuple[list[T], dict[int, str]]:
    """Return all listed items, and by broker the error instead of a list. Raises KafkaError if no broker answered."""
    listed, failures = split(answers)
    if failures and len(failures) == len(answers):
        raise next(iter(failures.values()))
    return listed, {broker: f"{error.message} ({error.code.name})" for broker, error in failures.items()}
