"""Public types of partitions, records and offsets. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ..protocol.records.record import Headers

CREATE_TIME: Final = 0
"""The timestamp type of a record whose timestamp its producer chose."""
LOG_APPEND_TIME: Final = 1
"""The timestamp type of a record whose timestamp is the time at which the broker appended it."""


class TopicPartition(NamedTuple):
    """A partition, named by topic and number.

        ends = await consumer.end_offsets([TopicPartition("orders", 0), TopicPartition("orders", 1)])

    As a tuple it equals `("orders", 0)`.
    """

    topic: str
    partition: int


class ConsumerRecord(NamedTuple):
    """One record, as a consumer sees it; the timestamp is in ms since 1970.

    Key and value are bytes, or the results of the consumer's deserializers; None if the record has none.
    `timestamp_type` is CREATE_TIME (0) or LOG_APPEND_TIME (1).
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers = ()
    leader_epoch: int = -1
    timestamp_type: int = CREATE_TIME


class OffsetAndMetadata(NamedTuple):
    """A group's committed position in a partition: the next offset to read, and a text of the program."""

    offset: int
    metadata: str = ""


Committable = int | OffsetAndMetadata
"""A value that can be committed for a partition: the offset of the next record to read, with or without a text."""
