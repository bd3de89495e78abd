"""Checks of callers' arguments at the boundary of the library: errors name the value given and the values allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from .records import Committable, OffsetAndMetadata, TopicPartition

ValueT = TypeVar("ValueT")


def topic_name(given: object) -> str:
    """Return the name of a topic. Raises TypeError and ValueError, like all functions of this module."""
    if not isinstance(given, str):
        raise TypeError(f"a topic is named by a str, not {given!r}")
    if not given:
        raise ValueError("the name of a topic is not empty")
    return given


def whole_number(what: str, given: object) -> int:
    """Return an offset, a partition or a time, which is an int from 0 on and no bool; `what` begins the error."""
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{what} is a whole number, not {given!r}")
    if given < 0:
        raise ValueError(f"{what} is 0 or more, not {given}")
    return given


def topic_partition(given: object) -> TopicPartition:
    """Return a TopicPartition, made from a TopicPartition or a plain tuple of topic and number."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"a partition is named by TopicPartition(topic, number), not {given!r}")
    topic, number = given
    return TopicPartition(topic_name(topic), whole_number(f"the number of a partition of {topic!r}", number))


def topic_partitions(call: str, given: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return a list of partitions; `call` names the called method in the text of the error."""
    if isinstance(given, str | TopicPartition) or not isinstance(given, Iterable):
        raise TypeError(
            f"{call} takes several partitions, as in {call}([TopicPartition('orders', 0)]), not {given!r}"
        )
    return [topic_partition(partition) for partition in given]


def by_partition(
    what: str, example: str, given: Mapping[TopicPartition, ValueT]
) -> dict[TopicPartition, ValueT]:
    """Return the mapping with each key checked, as a TopicPartition; `what` and `example` are for the text of the
    TypeError."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{what} are given by partition, as in {{TopicPartition('orders', 0): {example}}}, not {given!r}"
        )
    return {topic_partition(key): value for key, value in given.items()}


def offsets_by_partition(given: Mapping[TopicPartition, Committable]) -> dict[TopicPartition, Committable]:
    """Return the offsets to commit by partition, each checked."""
    checked: dict[TopicPartition, Committable] = {}
    for partition, place in by_partition("offsets", "5", given).items():
        what = f"the offset to commit for {partition.topic}-{partition.partition}"
        if isinstance(place, OffsetAndMetadata):
            checked[partition] = place._replace(offset=whole_number(what, place.offset))
        else:
            checked[partition] = whole_number(what, place)
    return checked


def timeout(given: object, name: str = "timeout_ms") -> None:
    """Check a timeout in milliseconds; None means no limit."""
    if given is None:
        return
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise TypeError(f"{name} is a number of milliseconds or None, not {given!r}")
    if not given >= 0:
        raise ValueError(f"{name} is 0 or more, not {given}")
