"""The position of a sent record, as the producer returns it. Pure."""

from __future__ import annotations

from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record.

    The offset is -1 with acks=0. The timestamp is in ms since 1970; with LogAppendTime it is the broker's.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
