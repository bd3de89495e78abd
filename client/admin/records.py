"""Offsets of partitions and the deletion of records, asked of the leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..cluster import Backoff
from ..failures import ConnectionLost, RequestTimedOut
from ..fetched import TopicPartition
from .session import AdminSession, error_of

EARLIEST, LATEST = -2, -1
"""Timestamps that stand for the log start offset and for the high watermark."""
PATIENCE_S = 3.0
"""How long a partition may be without a leader before that is the answer."""
TO_THE_END = -1
Found = dict[TopicPartition, int | KafkaError]


class RecordAdmin(AdminSession):
    """Looks offsets up and deletes records."""

    async def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Found:
        """The offset of the first record at or after each timestamp (ms, EARLIEST or LATEST), -1 where there
        is none; or why the partition could not be asked.
        """

        async def ask(leader: int, some: list[TopicPartition]) -> Found:
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for one in some:
                asked = ListOffsetsPartition(partition_index=one.partition, timestamp=timestamps[one])
                topics.setdefault(one.topic, []).append(asked)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=n, partitions=p) for n, p in topics.items()]
            )
            response = await self._cluster.ask(leader, request)
            return {
                TopicPartition(topic.name, one.partition_index): error_of(one.error_code, None) or one.offset
                for topic in response.topics
                for one in topic.partitions
            }

        return await self._of_leaders(timestamps, ask)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> Found:
        """Delete what lies below each offset, TO_THE_END for everything; the new log start offsets, or why
        not.
        """

        async def ask(leader: int, some: list[TopicPartition]) -> Found:
            topics: dict[str, list[DeleteRecordsPartition]] = {}
            for one in some:
                asked = DeleteRecordsPartition(partition_index=one.partition, offset=before[one])
                topics.setdefault(one.topic, []).append(asked)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=n, partitions=p) for n, p in topics.items()],
                timeout_ms=self._timeout_ms,
            )
            response = await self._cluster.ask(leader, request)
            return {
                TopicPartition(topic.name, one.partition_index): error_of(one.error_code, None)
                or one.low_watermark
                for topic in response.topics
                for one in topic.partitions
            }

        return await self._of_leaders(before, ask)

    async def _of_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Found]],
    ) -> Found:
        """Ask each leader for its partitions; again, for a while, where leaders are moving."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        backoff = Backoff(200)
        found: Found = {}
        left = list(partitions)
        while left:
            by_leader = await self._by_leader(left, found)
            answers = await asyncio.gather(
                *(self._asked(leader, some, ask) for leader, some in by_leader.items())
            )
            for answer in answers:
                found.update(answer)
            left = [one for one in left if _may_change(found.get(one))]
            if loop.time() > deadline:
                break
            if left:
                await asyncio.sleep(backoff.next_s())
        return found

    async def _asked(
        self,
        leader: int,
        some: list[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Found]],
    ) -> Found:
        try:
            return await ask(leader, some)
        except (ConnectionLost, RequestTimedOut) as error:
            return dict.fromkeys(some, error)

    async def _by_leader(
        self, partitions: list[TopicPartition], found: Found
    ) -> dict[int, list[TopicPartition]]:
        metadata = await self._metadata()
        self._cluster.metadata.brokers.update(metadata.brokers)
        by_leader: dict[int, list[TopicPartition]] = {}
        for one in partitions:
            info = metadata.partition(*one)
            if info is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found[one] = KafkaError(code, f"there is no {one.topic}-{one.partition}")
            elif info.leader < 0:
                code = ErrorCode.LEADER_NOT_AVAILABLE
                found[one] = KafkaError(code, f"{one.topic}-{one.partition} has no leader now")
            else:
                by_leader.setdefault(info.leader, []).append(one)
        return by_leader


def _may_change(answer: int | KafkaError | None) -> bool:
    if not isinstance(answer, KafkaError):
        return answer is None
    return answer.code.retriable and answer.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
