"""Reading the usual requests to produce, in Python. `_produce_frames.c` has the same under the same name, and
`produce_frames.py` chooses between the two."""

from __future__ import annotations

from typing import Final, TypeAlias

from .codec import decode_at_most
from .messages.produce import ProduceRequest
from .primitives import MalformedMessage

FIRST_WITH_TRANSACTIONAL_ID: Final = 3
FIRST_WITH_TOPIC_IDS: Final = 13
BATCHES_MAX: Final = 64
"""A request with more batches is none of the usual ones."""


SentBatch: TypeAlias = tuple[str | bytes, int, memoryview]
"""The topic, by its name or, from version 13 on, its id; the partition; what is to be appended there."""
UsualProduce: TypeAlias = tuple[str | None, int, int, list[SentBatch]]
"""The transactional id; acks; the timeout in ms; the batches, those for one topic side by side."""


def read_produce(frame: memoryview, offset: int, version: int) -> UsualProduce | None:
    """Read a request of this version, whose body begins at `offset` of the frame. The records are views of the frame.

    None for what is not usual: malformed bytes, a topic that stands twice side by side, null in place of records, no
    partition of a topic, too many batches. Tagged fields, which no version has, may count as unusual.
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
