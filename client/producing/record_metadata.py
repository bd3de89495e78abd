"""Where a record stands, as its producer is told. Pure."""

from __future__ import annotations

from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """Where an acknowledged record stands; offset -1 with acks=0. The timestamp is the broker's with
    LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
