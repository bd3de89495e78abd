"""Offsets that a group has committed: commits and lookups by members, and by clients that only know the group's id."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..connections.coordinator import COORDINATOR_MOVED, OF_GROUP, Coordinator
from ..failures import ConnectionLost, NoBrokerReachable, RequestTimedOut, cluster_error
from ..records import OffsetAndMetadata, TopicPartition
from .group_metadata import ConsumerGroupMetadata

LANE = "offsets"
"""The lane of these requests. It differs from the membership's, where a JoinGroup may wait for minutes."""
_LAST_FOR_GENERATIONS, _LAST_WITH_NAMES = 8, 9
LAST_FOR_ONE_GROUP = 7
FIRST_WITH_STABLE = 7


class CommittedOffsets:
    """A client for the committed offsets of one group: it commits and looks up offsets at the group's coordinator."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        retry_backoff_max_ms: int,
        read_committed: bool,
        by_epochs: bool = False,
    ) -> None:
        """Create a client of the group's coordinator.

        `read_committed`: wait for offsets that an open transaction may still change (KIP-447). `by_epochs`: members
        have epochs, not generations (KIP-848).
        """
        self._group_id = group_id
        self._timeout_s = cluster.request_timeout_ms / 1000
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._read_committed = read_committed
        self._commit_version_max = _LAST_WITH_NAMES if by_epochs else _LAST_FOR_GENERATIONS
        self._coordinator = Coordinator(cluster, group_id, OF_GROUP, LANE)

    async def commit(
        self, member: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit these offsets (next to read) for the group. Raises KafkaError, REBALANCE_IN_PROGRESS among others."""
        if not offsets:
            return
        topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, (offset, metadata) in offsets.items():
            topics[partition.topic].append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

        async def once() -> None:
            response = await self._coordinator.ask(request, at_most=self._commit_version_max)
            for topic in response.topics:
                for partition in topic.partitions:
                    what = f"commit of {topic.name}-{partition.partition_index}"
                    self._check(partition.error_code, what, "READ", topic.name)

        await self._with_retries(once)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out.

        Raises KafkaError: UNSTABLE_OFFSET_COMMIT if, with `read_committed`, a transaction stays open for longer than
        the request timeout.
        """
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for partition in partitions:
            topics[partition.topic].append(partition.partition)
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=parts) for name, parts in topics.items()
            ],
        )
        found: dict[TopicPartition, OffsetAndMetadata] = {}

        async def once() -> None:
            connection = await self._coordinator.connection()
            version = connection.version_for(OffsetFetchRequest, LAST_FOR_ONE_GROUP)
            # Brokers without this field (Kafka before 2.5) return unstable offsets, to Kafka's consumer as well.
            request.require_stable = self._read_committed and version >= FIRST_WITH_STABLE
            response = await self._coordinator.ask(request, at_most=version)
            self._check(response.error_code, "offset fetch", "DESCRIBE")
            for topic in response.topics:
                for partition in topic.partitions:
                    what = f"offset of {topic.name}-{partition.partition_index}"
                    self._check(partition.error_code, what, "DESCRIBE", topic.name)
                    if partition.committed_offset >= 0:
                        found[TopicPartition(topic.name, partition.partition_index)] = OffsetAndMetadata(
                            partition.committed_offset, partition.metadata or ""
                        )

        if topics:
            await self._with_retries(once)
        return found

    async def _with_retries(self, attempt: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run `attempt` until it succeeds.

        It is repeated after failures that a new coordinator lookup, or the end of a transaction, can cure.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        backoff = Backoff(self._retry_backoff_max_ms)
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                moved = coordinator_moved(error)
                unstable = error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                if not (moved or unstable) or loop.time() > deadline:
                    raise
                if moved:
                    self._coordinator.forget()
                await asyncio.sleep(backoff.next_s())

    def _check(self, code: int, what: str, operation: str, topic: str = "") -> None:
        if code:
            error = ErrorCode.of(code)
            of_topic = error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            where = f"group {self._group_id!r}, {what}"
            raise cluster_error(
                error,
                where,
                operation=operation,
                name=topic if of_topic else self._group_id,
                user=self._coordinator.user,
            )


def coordinator_moved(error: KafkaError) -> bool:
    """Return whether the error shows that another broker may be the coordinator, so that it must be looked up again."""
    return error.code in COORDINATOR_MOVED or isinstance(
        error, (ConnectionLost, NoBrokerReachable, RequestTimedOut)
    )
