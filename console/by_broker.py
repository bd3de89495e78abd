"""Lists that each broker reports separately, such as groups, and the errors of brokers that reported none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ..client.admin.by_broker import split
from ..protocol.errors import KafkaError

T = TypeVar("T")


def joined(answers: Mapping[int, Sequence[T] | KafkaError]) -> tuple[list[T], dict[int, str]]:
    """Merge the lists that brokers returned, and return them with the errors of the other brokers as text by broker id.

    Raises KafkaError if every broker failed.
    """
    listed, failures = split(answers)
    if failures and len(failures) == len(answers):
        raise next(iter(failures.values()))
    return listed, {broker: f"{error.message} ({error.code.name})" for broker, error in failures.items()}
