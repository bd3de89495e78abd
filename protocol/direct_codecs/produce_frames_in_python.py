"""Decoding of usual Produce requests, in Python. `_produce_frames.c` implements the same function, and
`produce_frames.py` chooses between the two."""

from __future__ import annotations

from typing import Final, TypeAlias

from ..messages.produce import FIRST_WITH_TOPIC_IDS, ProduceRequest
from ..wire.codec import decode_at_most
from ..wire.primitives import MalformedMessage

FIRST_WITH_TRANSACTIONAL_ID: Final = 3
BATCHES_MAX: Final = 64
"""Highest number of batches of a usual request."""


SentBatch: TypeAlias = tuple[str | bytes, int, memoryview | None]
"""A batch in a request: the topic, by name or, from version 13 on, by id; the partition; the records to append, or None
if an unusual request has null."""
SentProduce: TypeAlias = tuple[str | None, int, int, list[SentBatch]]
"""A request: the transactional id; acks; the timeout in ms; the batches, in their order."""


def read_produce(frame: memoryview, offset: int, version: int) -> SentProduce | None:
    """Read a Produce request of this version, whose body begins at `offset` of the frame. The records are views of the
    frame.

    Returns None for an unusual request: malformed bytes, a topic that occurs twice in a row, null in place of records,
    a topic without partitions, or too many batches. Tagged fields, which no version has, may count as unusual.
    """
    if not FIRST_WITH_TRANSACTIONAL_ID <= version <= ProduceRequest.max_version or not 0 <= offset <= len(
        frame
    ):
        return None
    try:
        message = decode_at_most(ProduceRequest, frame, version, 2 * BATCHES_MAX, offset)
    except MalformedMessage:
        return None
    if message is None or not message.topic_data:
        return None
    batches: list[SentBatch] = []
    before: str | bytes | None = None
    for data in message.topic_data:
        topic: str | bytes = data.topic_id if version >= FIRST_WITH_TOPIC_IDS else data.name
        if topic == before or not data.partition_data:
            return None
        before = topic
        for partition in data.partition_data:
            if not isinstance(partition.records, memoryview):
                return None
            batches.append((topic, partition.index, partition.records))
    if len(batches) > BATCHES_MAX:
        return None
    return message.transactional_id, message.acks, message.timeout_ms, batches
