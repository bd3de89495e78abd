"""Partitions, records and offsets as programs see them. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..protocol.records.record import Headers


class TopicPartition(NamedTuple):
    """A partition by name.

        ends = await consumer.end_offsets([TopicPartition("orders", 0), TopicPartition("orders", 1)])

    As a tuple it equals `("orders", 0)`.
    """

    topic: str
    partition: int


class ConsumerRecord(NamedTuple):
    """One record as a consumer sees it; timestamp in ms since 1970. Key and value are bytes, or what the consumer's
    deserializers made of them; None where there was none.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers = ()
    leader_epoch: int = -1


class OffsetAndMetadata(NamedTuple):
    """What a group keeps for a partition: the offset of the next record to read, and a text of the program's own."""

    offset: int
    metadata: str = ""


Committable = int | OffsetAndMetadata
"""What can be committed for a partition: the offset of the next record to read, with or without a text."""
