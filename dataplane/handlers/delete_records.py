"""DeleteRecords (0-2): leaders move the log start offset and wait until every live replica has followed.

Whole segments below the new log start are removed at once or at the next retention check. A batch that contains the
offset stays, but its records below the offset can no longer be read. Committed offsets of groups do not change. A
consumer that continues below the log start gets OFFSET_OUT_OF_RANGE, and resets as it is configured to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import NamedTuple

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ..cluster.internal_topics import is_internal
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..runtime.time_slices import in_time_slices, pieces
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, as_kafka_error, handles

_HIGH_WATERMARK = -1
_UNKNOWN = -1
_TRIMS_PER_TURN = 100


class _Trim(NamedTuple):
    """The deletion of records in one partition: the new log start offset, and the result for the client."""

    partition: Partition | None
    offset: int
    result: DeleteRecordsPartitionResult


class DeleteRecordsHandlers:
    """Deletes records of the partitions that this broker leads.

    `keep_log_starts` makes the log start offsets durable, so that deleted records do not come back after a crash of
    this broker.
    """

    def __init__(self, replicas: Replicas, keep_log_starts: Callable[[], Awaitable[None]]) -> None:
        self._replicas = replicas
        self._keep_log_starts = keep_log_starts

    @handles(
        DeleteRecordsRequest,
        0,
        2,
        errors=ErrorAnswers(values={"low_watermark": _UNKNOWN}),
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("DELETE Topic"),
    )
    async def delete_records(
        self, request: ClientRequest, message: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        """Trim each partition, then answer when all replicas have followed, or when the timeout is over."""
        deadline = request.received_at + max(0, message.timeout_ms) / 1000
        response = DeleteRecordsResponse()
        trims = []
        asked = ((topic, part) for topic in message.topics for part in topic.partitions)
        async for topic, part in in_time_slices(asked, _TRIMS_PER_TURN):
            trims.append(self._trim(request.access, topic.name, part.partition_index, part.offset))
        results = iter([trim.result for trim in trims])
        response.topics = [
            DeleteRecordsTopicResult(name=topic.name, partitions=list(islice(results, len(topic.partitions))))
            for topic in message.topics
        ]
        done = [trim for trim in trims if trim.partition is not None]
        if done:
            await self._keep_log_starts()
            for some in pieces(done, _TRIMS_PER_TURN):
                await asyncio.gather(*(_followed(trim, deadline) for trim in some))
        return response

    def _trim(self, access: Access, topic: str, index: int, offset: int) -> _Trim:
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=_UNKNOWN)
        try:
            access.check_topic(AclOperation.DELETE, topic)
            if is_internal(topic):
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of the internal topic {topic} stay"
                )
            partition = self._replicas.get(topic, index)
            partition.leading()
            partition.check_is_no_copy()
            policy = partition.log.config
            if policy.compacted and not policy.deletes:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"records of {topic} are compacted, not deleted: cleanup.policy={policy.cleanup_policy}",
                )
            offset = partition.record_deletion.trim(None if offset == _HIGH_WATERMARK else offset)
        except Exception as error:
            result.error_code = as_kafka_error(error, f"deleting records of {topic}-{index}").code
            return _Trim(None, offset, result)
        return _Trim(partition, offset, result)


async def _followed(trim: _Trim, deadline: float) -> None:
    """Wait until every live replica of the partition starts at the new log start offset, then set the partition's
    result."""
    partition, offset, result = trim
    assert partition is not None
    outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(code: ErrorCode) -> None:
        if not outcome.done():
            outcome.set_result(code)

    partition.record_deletion.on_low_watermark(offset, done)
    try:
        async with asyncio.timeout_at(deadline):
            code = await outcome
    except TimeoutError:
        partition.record_deletion.stop_waiting(done)
        code = ErrorCode.REQUEST_TIMED_OUT
    if partition.leader is None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.REQUEST_TIMED_OUT else code
    else:
        result.low_watermark = partition.record_deletion.low_watermark()
    result.error_code = code
