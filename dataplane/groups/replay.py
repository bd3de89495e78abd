"""What the log of a shard says: its groups and offsets, put together record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .consumer.records import ConsumerRecord, StoredConsumerGroup
from .group_table import AnyGroup
from .limits import GroupLimits
from .offsets import OffsetStore
from .records import GroupRecord, OffsetRecord, read_records, restore_group
from .surroundings import Surroundings


class Replay:
    """Fed with batches in the order of the log. Of a classic and a consumer group of one name the later is."""

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets
        self._classic: dict[str, GroupRecord] = {}
        self._consumer: dict[str, StoredConsumerGroup] = {}

    def feed(self, data: memoryview) -> None:
        """Whole batches."""
        for record in read_records(data):
            match record:
                case OffsetRecord(group_id, partition, None):
                    self._offsets.remove(group_id, partition)
                case OffsetRecord(group_id, partition, committed) if committed is not None:
                    self._offsets.put(group_id, partition, committed)
                case GroupRecord(group_id, None):
                    self._classic.pop(group_id, None)
                case GroupRecord(group_id):
                    self._classic[group_id] = record
                    self._consumer.pop(group_id, None)
                case ConsumerRecord(group_id):
                    self._consumer.setdefault(group_id, StoredConsumerGroup()).replay(record)
                    if record.value is not None:
                        self._classic.pop(group_id, None)

    def groups(
        self,
        limits: GroupLimits,
        surroundings: Surroundings,
        new_member_id: Callable[[str], str],
        now_ms: int,
    ) -> Iterator[AnyGroup]:
        """The groups as they stand after the last record; sessions start anew."""
        for record in self._classic.values():
            yield restore_group(record, limits, new_member_id, now_ms)
        for group_id, stored in self._consumer.items():
            if stored.exists:
                yield stored.restore(
                    group_id, limits.consumer, surroundings.topics, surroundings.settings_of(group_id), now_ms
                )
