"""The reading of a topic up to the ends that it has at the beginning."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Final

from ..consumer import Consumer
from ..records import ConsumerRecord, TopicPartition

RECORDS_AT_A_TIME: Final = 500
_POLL_MS: Final = 200


async def up_to(
    consumer: Consumer, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> AsyncGenerator[list[ConsumerRecord], None]:
    """Assign the partitions, and yield their records from `begins` to before `ends`: lists of one partition each.

    Waits for partitions without a leader. Raises KafkaError, and UnreadableRecords for a damaged batch.
    """
    unread = {partition for partition, end in ends.items() if begins[partition] < end}
    if not unread:
        return
    consumer.assign(unread)
    for partition in unread:
        consumer.seek(partition, begins[partition])
    while unread:
        found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=RECORDS_AT_A_TIME)
        for partition, records in found.items():
            wanted = [record for record in records if record.offset < ends[partition]]
            if wanted:
                yield wanted
        # A position is beyond the last record, also if markers of transactions stand there.
        for partition in list(unread):
            if await consumer.position(partition) >= ends[partition]:
                unread.discard(partition)
                consumer.pause(partition)
