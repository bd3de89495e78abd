"""Fetch requests to brokers of the source. The target acts as a consumer that reads uncommitted records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from ...protocol.messages.fetch import CONSUMER_REPLICA_ID, FetchPartition, FetchRequest, FetchTopic
from .copies import Copy

PARTITION_MAX_BYTES: Final = 4 << 20
ANSWER_MAX_BYTES: Final = 32 << 20
READ_UNCOMMITTED: Final = 0


def fetch_request(wanted: Sequence[tuple[Copy, int]], allowance: int, wait_ms: int) -> FetchRequest:
    """Return a request for these copies and offsets, for at most `allowance` bytes. A source always sends one whole
    batch, however large it is."""
    by_topic: dict[tuple[str, bytes], list[FetchPartition]] = defaultdict(list)
    for copy, offset in wanted:
        by_topic[copy.source_key[0], copy.source_topic_id].append(
            FetchPartition(
                partition=copy.partition.index,
                current_leader_epoch=copy.source_epoch,
                fetch_offset=offset,
                partition_max_bytes=min(PARTITION_MAX_BYTES, allowance),
            )
        )
    return FetchRequest(
        replica_id=CONSUMER_REPLICA_ID,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=min(ANSWER_MAX_BYTES, allowance),
        isolation_level=READ_UNCOMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchTopic(topic=topic, topic_id=topic_id, partitions=parts)
            for (topic, topic_id), parts in by_topic.items()
        ],
    )
