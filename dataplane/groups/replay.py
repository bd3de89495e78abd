"""Rebuilds the groups and offsets of a shard from its log, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...protocol.records.record_batch import NO_PRODUCER_ID
from ..coordinated_log.batches import TransactionEnd
from .consumer.records import ConsumerGroupRecord, StoredConsumerGroup
from .dependencies import GroupDependencies
from .group_table import AnyGroup
from .limits import GroupLimits
from .offsets import CommittedOffset, OffsetStore
from .records import GroupRecord, OffsetRecord, read_records, restore_group
from .share.records import ShareGroupRecord, StoredShareGroup


class Replay:
    """The groups and offsets that result from a log's batches, which are replayed in order. If groups of several kinds
    have one name, the latest group stays."""

    def __init__(
        self, offsets: OffsetStore, count: Callable[[CommittedOffset], None] = lambda _offset: None
    ) -> None:
        """Create a replay into `offsets`. `count` is called with each offset, whose memory it counts."""
        self._offsets = offsets
        self._count = count
        self._classic: dict[str, GroupRecord] = {}
        self._consumer: dict[str, StoredConsumerGroup] = {}
        self._share: dict[str, StoredShareGroup] = {}

    def feed(self, data: memoryview) -> None:
        """Apply whole batches."""
        for record in read_records(data):
            match record:
                case OffsetRecord():
                    self._feed_offset(record)
                case TransactionEnd(producer_id, committed, end_offset):
                    self._offsets.end_transaction(producer_id, end_offset, committed=committed)
                case GroupRecord(group_id, None):
                    self._classic.pop(group_id, None)
                case GroupRecord(group_id):
                    self._classic[group_id] = record
                    self._consumer.pop(group_id, None)
                    self._share.pop(group_id, None)
                case ConsumerGroupRecord(group_id):
                    self._consumer.setdefault(group_id, StoredConsumerGroup()).replay(record)
                    if record.value is not None:
                        self._classic.pop(group_id, None)
                        self._share.pop(group_id, None)
                case ShareGroupRecord(group_id):
                    self._share.setdefault(group_id, StoredShareGroup()).replay(record)
                    if record.value is not None:
                        self._classic.pop(group_id, None)
                        self._consumer.pop(group_id, None)

    def _feed_offset(self, record: OffsetRecord) -> None:
        group_id, partition, position = record.group_id, record.partition, record.position
        if record.committed is None:
            self._offsets.remove(group_id, partition, position)
            return
        self._count(record.committed)
        if record.producer_id == NO_PRODUCER_ID:
            self._offsets.put(group_id, partition, record.committed, position)
        else:
            self._offsets.pending.add(record.producer_id, group_id, partition, record.committed, position)

    def groups(
        self,
        limits: GroupLimits,
        dependencies: GroupDependencies,
        new_member_id: Callable[[str], str],
        now_ms: int,
    ) -> Iterator[AnyGroup]:
        """Yield the groups as of the last record. The sessions of their members start again."""
        for record in self._classic.values():
            yield restore_group(record, limits, new_member_id, now_ms)
        for group_id, stored in self._consumer.items():
            if stored.exists:
                yield stored.restore(
                    group_id, limits.consumer, dependencies.topics, dependencies.settings_of(group_id), now_ms
                )
        for group_id, share in self._share.items():
            if share.exists:
                yield share.restore(
                    group_id, limits.share, dependencies.topics, dependencies.settings_of(group_id), now_ms
                )
