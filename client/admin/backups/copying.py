"""Copying of one partition's records into segments: raw record batches, as the source stores them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from ....network.threads import in_thread
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.fetch import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from ....protocol.messages.list_offsets import EARLIEST
from ....protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ....protocol.records.record_batch import check_integrity, walk_batches
from ...backoff import Backoff
from ...backup.names import CutId, PartitionFolder, SegmentName
from ...failures import RequestTimedOut
from ...objects.store import ObjectStore
from ...records import TopicPartition
from .calls import BackupCalls

FETCH_BYTES: Final = 4 << 20
SEGMENT_BYTES: Final = 8 << 20
"""The size from which a segment ends. It is exceeded by one fetch at most, or by one batch that is larger."""
PATIENCE_S: Final = 60.0
"""The time for which a partition without a leader, or with a moving leader, is asked again."""
_READ_UNCOMMITTED: Final = 0
_WAIT_MS: Final = 200


@dataclass(slots=True)
class CopiedRange:
    """The progress of copying a partition up to a cut: all segments of the range are durable."""

    first: int
    """The offset from which records are copied."""
    end: int
    """The offset after the last copied batch; `first` if there was no batch."""
    moved_to: int | None = None
    """The offset at which the source's log began, if records from `first` on had been deleted there."""
    size: int = 0
    """The number of bytes in the segments."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """The leader epochs of the batches: pairs of an epoch and the offset of its first batch."""


@dataclass(slots=True)
class _Checked:
    """The batches of a fetch that are below the cut."""

    size: int
    end: int
    epochs: list[tuple[int, int]]
    is_last: bool
    """True if the next batch is at or after the cut."""


@dataclass(slots=True)
class _Segment:
    """A segment that grows."""

    first: int
    end: int
    batches: list[memoryview] = field(default_factory=list)
    size: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)


class PartitionCopy:
    """The copying of one partition from its leader into segments of a store."""

    def __init__(
        self,
        admin: BackupCalls,
        store: ObjectStore,
        partition: TopicPartition,
        place: PartitionFolder,
        lane: str,
        copied: Callable[[int], None],
    ) -> None:
        """`lane` is the name of the connection for fetches. `copied` is called with the number of bytes of each
        fetch."""
        self._admin = admin
        self._store = store
        self._partition = partition
        self._place = place
        self._lane = lane
        self._copied = copied
        self._followed: tuple[int, int] | None = None
        """The leader that is asked, and its epoch; None if it has to be found."""

    async def copy(self, done: CopiedRange, stop: int, cut: CutId) -> None:
        """Copy the records from `done.end` up to `stop` into segments with the name of a cut.

        `done` is changed with each durable segment, so it holds after a failure, too. Raises KafkaError and
        ObjectStoreFailed.
        """
        segment = _Segment(done.end, done.end)
        while segment.end < stop:
            data = await self._fetched(segment)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                start = await self._start()
                if start <= segment.end:
                    raise KafkaError(
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        f"{self._name} ends before offset {segment.end}, to which it was copied",
                    )
                await self._put(segment, done, cut)
                done.moved_to = done.end = start
                segment = _Segment(start, start)
                continue
            batches = memoryview(data.records or b"")
            checked = await in_thread(self._checked, batches, segment.end, stop)
            segment.batches.append(batches[: checked.size])
            segment.size += checked.size
            segment.end = checked.end
            segment.epochs += checked.epochs
            self._copied(checked.size)
            if segment.size >= SEGMENT_BYTES:
                await self._put(segment, done, cut)
                segment = _Segment(done.end, done.end)
            if checked.is_last:
                break
            if not checked.size:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"{self._name} sends no whole batch at {segment.end}"
                )
        await self._put(segment, done, cut)

    def _checked(self, batches: memoryview, position: int, stop: int) -> _Checked:
        """Return the whole batches below `stop`. Raises KafkaError for damaged batches."""
        checked = _Checked(0, position, [], is_last=False)
        for start, header in walk_batches(batches, partial_tail=True):
            if header.base_offset >= stop:
                checked.is_last = True
                break
            if header.next_offset > stop:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self._name}: the cut at offset {stop} is within the batch of {header.base_offset} to "
                    f"{header.last_offset}",
                )
            check_integrity(batches, start, header)
            if not checked.epochs or header.partition_leader_epoch != checked.epochs[-1][0]:
                checked.epochs.append((header.partition_leader_epoch, header.base_offset))
            checked.size, checked.end = start + header.size, header.next_offset
        return checked

    async def _put(self, segment: _Segment, done: CopiedRange, cut: CutId) -> None:
        """Create the object of a segment, unless it has no batch, and add it to the copied range."""
        if not segment.size:
            return
        data = b"".join(segment.batches)
        segment.batches.clear()
        digest = await in_thread(lambda: sha256(data).hexdigest())
        await self._store.put_new(SegmentName(self._place, segment.first, segment.end, cut, digest).key, data)
        done.end = segment.end
        done.size += segment.size
        done.epochs += segment.epochs

    @property
    def _name(self) -> str:
        return f"{self._partition.topic}-{self._partition.partition}"

    # the leader

    async def _leader(self) -> tuple[int, int]:
        """Return the leader and its epoch. Raises KafkaError if there is none, or another topic has the name."""
        session = self._admin.session
        metadata = await session.metadata([self._partition.topic])
        session.cluster.metadata.brokers.update(metadata.brokers)
        topic = metadata.topics.get(self._partition.topic)
        if topic is None or topic.id != self._place.topic_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"topic {self._partition.topic!r} was deleted meanwhile"
            )
        info = topic.partitions.get(self._partition.partition)
        if info is None or info.leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"nobody leads {self._name}")
        return info.leader, info.leader_epoch

    async def _fetched(self, segment: _Segment) -> PartitionData:
        """Return the records after a segment, or OFFSET_OUT_OF_RANGE. While the leader moves, it is asked again."""
        loop, backoff = asyncio.get_running_loop(), Backoff(1_000)
        deadline = loop.time() + PATIENCE_S
        while True:
            try:
                leader = self._followed or await self._leader_with(segment)
                data = await self._fetch(*leader, segment.end)
                code = ErrorCode.of(data.error_code)
                if data.records or code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    return data
                error = KafkaError(
                    code or ErrorCode.REQUEST_TIMED_OUT, f"{self._name} sends no records: {code.message}"
                )
            except KafkaError as failed:
                error = failed
            self._followed = None
            if error.code is ErrorCode.UNKNOWN_TOPIC_ID or not error.code.retriable:
                raise error
            if loop.time() > deadline:
                raise RequestTimedOut(f"{self._name} at offset {segment.end}: {error.message}") from error
            await asyncio.sleep(backoff.next_s())

    async def _leader_with(self, segment: _Segment) -> tuple[int, int]:
        """Return the leader and its epoch. A later leader must have the records that were copied from an earlier one.
        Raises KafkaError."""
        leader = await self._leader()
        if segment.epochs and await self.has_diverged(segment.epochs[-1][0], segment.end):
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the new leader of {self._name} lacks records before {segment.end}, which were copied",
            )
        self._followed = leader
        return leader

    async def _fetch(self, leader: int, leader_epoch: int, offset: int) -> PartitionData:
        wanted = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=_READ_UNCOMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(topic=self._partition.topic, topic_id=self._place.topic_id, partitions=[wanted])
            ],
        )
        answer = await self._admin.session.cluster.ask(leader, request, lane=self._lane)
        if answer.error_code:
            raise KafkaError(ErrorCode.of(answer.error_code), f"{self._name} is not sent")
        return answer.responses[0].partitions[0]

    async def _start(self) -> int:
        (offset,) = (await self._admin.list_offsets({self._partition: EARLIEST})).values()
        if isinstance(offset, KafkaError):
            raise offset
        return offset

    async def has_diverged(self, epoch: int, end: int) -> bool:
        """Return whether the source's log ends a leader epoch before `end`: it lost records that were copied."""
        leader, leader_epoch = await self._leader()
        asked = OffsetForLeaderPartition(
            partition=self._partition.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
        )
        topic = OffsetForLeaderTopic(topic=self._partition.topic, partitions=[asked])
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=[topic])
        answer = await self._admin.session.cluster.ask(leader, request)
        said = answer.topics[0].partitions[0]
        if said.error_code:
            raise KafkaError(ErrorCode.of(said.error_code), f"{self._name}: epoch {epoch}")
        return 0 <= said.end_offset < end
