"""The offset at which a share group begins in a partition (share.auto.offset.reset)."""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.settings.config_share import EARLIEST, reset_duration_ms
from ...log.timestamps import Known, TakesLookup, TakesWalk, offset_for_timestamp
from ...replication.replica.partition import Partition
from ...runtime.threads import in_thread


async def first_offset(replica: Partition, reset: str, wall_ms: Callable[[], int]) -> int:
    """Return the offset that a value of share.auto.offset.reset names in a partition that this broker leads.

    A time behind all records names the high watermark. Raises KafkaError: NOT_LEADER_OR_FOLLOWER,
    KAFKA_STORAGE_ERROR.
    """
    if reset == EARLIEST:
        return replica.log.log_start_offset
    duration_ms = reset_duration_ms(reset)
    if duration_ms is None:
        return replica.leading().high_watermark
    since_ms, known = wall_ms() - duration_ms, Known()
    while True:
        watermark = replica.leading().high_watermark
        try:
            found = offset_for_timestamp(replica.log, since_ms, watermark, known)
        except TakesLookup as taken:
            known.records[taken.lookup.key] = await in_thread(taken.lookup.find)
        except TakesWalk as taken:
            try:
                known.places[taken.key] = await in_thread(taken.walk.find)
            finally:
                taken.walk.close()
        else:
            return watermark if found is None else found.offset
