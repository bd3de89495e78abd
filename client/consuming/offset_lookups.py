"""Lookups of offsets by timestamp: ListOffsets requests to the leaders of partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..failures import ClientError, ConnectionLost, NoBrokerReachable, RequestTimedOut
from ..records import TopicPartition
from .assigned import FetchOptions


class OffsetLookups:
    """A client for ListOffsets requests of one reader, with the options of its fetcher."""

    def __init__(self, cluster: Cluster, options: FetchOptions) -> None:
        self._cluster = cluster
        self._options = options

    async def find(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Return (offset, timestamp) of the first record at or after each timestamp; offset -1 if there is no such
        record.

        Retries while leaders move, up to the request timeout. Raises KafkaError.
        """
        found: dict[TopicPartition, tuple[int, int]] = {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.request_timeout_ms / 1000
        backoff = Backoff(self._options.retry_backoff_max_ms)
        while missing := {
            partition: stamp for partition, stamp in timestamps.items() if partition not in found
        }:
            failure: KafkaError | None
            try:
                failure = await self.once(missing, found)
            except NoBrokerReachable as error:
                failure = error
            if failure is not None:
                if not failure.code.retriable or loop.time() > deadline:
                    raise failure
                await asyncio.sleep(backoff.next_s())
                with suppress(ConnectionLost, NoBrokerReachable, RequestTimedOut):
                    await self._cluster.refresh({partition.topic for partition in missing})
        return found

    async def once(
        self, timestamps: Mapping[TopicPartition, int], found: dict[TopicPartition, tuple[int, int]]
    ) -> KafkaError | None:
        """Send ListOffsets once to every leader; add the answers to `found`, and return one of the failures, if any."""
        failure: KafkaError | None = None
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        if any(partition.topic not in self._cluster.metadata.topics for partition in timestamps):
            try:
                await self._cluster.refresh({partition.topic for partition in timestamps})
            except (ConnectionLost, RequestTimedOut) as error:
                return error
        for partition in timestamps:
            leader = self._cluster.metadata.leader(*partition)
            if leader is None:
                failure = self._why_no_leader(partition)
            else:
                by_leader[leader].append(partition)
        for leader, partitions in by_leader.items():
            topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
            for partition in partitions:
                asked = ListOffsetsPartition(
                    partition_index=partition.partition, timestamp=timestamps[partition]
                )
                topics[partition.topic].append(asked)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(self._options.read_committed),
                topics=[ListOffsetsTopic(name=name, partitions=some) for name, some in topics.items()],
            )
            try:
                response = await self._cluster.ask(leader, request)
            except (ConnectionLost, RequestTimedOut) as error:
                failure = error
                continue
            left_out = dict.fromkeys(partitions)
            for topic in response.topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.name, answer.partition_index)
                    left_out.pop(partition, None)
                    code = ErrorCode.of(answer.error_code)
                    if code == ErrorCode.NONE:
                        found[partition] = (answer.offset, answer.timestamp)
                    else:
                        failure = self._refused(code, partition)
            for name, index in left_out:
                failure = ClientError(f"the broker left {name}-{index} out of its answer")
        return failure

    def _why_no_leader(self, partition: TopicPartition) -> KafkaError:
        info = self._cluster.metadata.topics.get(partition.topic)
        if info is not None and info.error == ErrorCode.NONE and partition.partition not in info.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = ErrorCode.LEADER_NOT_AVAILABLE if info is None or not info.error else info.error
        return self._refused(code, partition)

    def _refused(self, code: ErrorCode, partition: TopicPartition) -> KafkaError:
        topic, index = partition
        return self._cluster.failure(code, f"{topic}-{index}", operation="DESCRIBE", name=topic)
