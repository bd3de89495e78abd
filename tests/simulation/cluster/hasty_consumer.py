"""A consumer that uses committed offsets as librdkafka does, while its assignment changes."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from ottla.client.connections.cluster import Cluster
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import Fetched
from tests.simulation.cluster.group_members import FETCH_VERSION, SESSION_MS, find_coordinator
from tests.simulation.cluster.workload import REQUEST_TIMEOUT_MS, Workload, started

STORED = -1000
"""Value of RD_KAFKA_OFFSET_STORED, with which librdkafka asks the coordinator for the start offset."""
RESET = -1
"""Value with which librdkafka begins at `auto.offset.reset`."""
CHANGES = 0.5
"""Probability of an assignment change between a request and its answer."""


def begins_at(answer: OffsetFetchResponseGroup, *, changed: bool) -> dict[int, int]:
    """Return the offset, by partition, at which librdkafka 2.15 begins; `RESET` is a possible value.

    It asks again for partitions that are not in the result. `changed`: its assignment has changed since the request,
    and so `rd_kafka_assignment_apply_offsets` takes the offset of a refused partition up. Otherwise
    `rd_kafka_handle_OffsetFetch` repeats the request.

    Raises KafkaError for an answer that makes librdkafka retry, and InvariantBroken for an answer that makes it stop
    reading.
    """
    rows = [row for topic in answer.topics for row in topic.partitions]
    unstable = [row for row in rows if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT]
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        if not unstable and (changed or code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            raise InvariantBroken("stock consumers ask again", f"librdkafka reads nothing after {code.name}")
        raise KafkaError(code)
    if unstable and not changed:
        raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return {row.partition_index: row.committed_offset for row in rows if row.committed_offset != STORED}


class HastyConsumer:
    """A consumer of a group's stable offsets that behaves like a member, but never joins.

    Each start of a partition goes into the history as a fetched committed offset. So a start at any other offset than
    the last committed one violates `CommittedOffsetWentBack`.
    """

    def __init__(self, workload: Workload, group: str, topic: str) -> None:
        self._workload, self._group, self._topic = workload, group, topic
        self._partitions = [
            partition.partition for partition in workload.partitions if partition.topic == topic
        ]
        self._chance: Random = workload.chance()

    async def run(self) -> None:
        """Start the partitions repeatedly, until the workload is over."""
        workload = self._workload
        cluster = await started(
            lambda: Cluster(workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        )
        while not workload.over:
            with suppress(KafkaError):
                await self._begin(cluster)
            await workload.idle(self._chance.uniform(0.02, 0.2))
        await cluster.close()

    async def _begin(self, cluster: Cluster) -> None:
        workload, group = self._workload, self._group
        topic = OffsetFetchRequestTopics(name=self._topic, partition_indexes=self._partitions)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])], require_stable=True
        )
        connection = await cluster.connection(await find_coordinator(cluster, group), "group")
        asked, sure = workload.now(), workload.is_coordinated_by_one(group)
        answer = await connection.request(request, version=FETCH_VERSION, timeout_ms=SESSION_MS)
        found = begins_at(answer.groups[0], changed=self._chance.random() < CHANGES)
        if sure and workload.is_coordinated_by_one(group):
            for index, offset in found.items():
                place = TopicPartition(self._topic, index)
                workload.history.add(Fetched(group, *place, offset, asked, workload.now()))
