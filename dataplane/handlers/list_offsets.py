"""ListOffsets (1-11): offsets by time, and the ends of logs, answered by leaders."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import NamedTuple

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import CONSUMER_REPLICA_ID
from ...protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ..fetching.reading import READ_COMMITTED
from ..log import is_damage
from ..log.header_walks import HeaderWalk
from ..log.timestamps import Known, TakesLookup, TakesWalk, max_timestamp_offset, offset_for_timestamp
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..replication.roles.leader import LeaderState
from ..runtime.threads import in_thread
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, as_kafka_error, handles

MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_WITH_EPOCHS = 4
_FIRST_WITH_NOT_AVAILABLE = 5
_FIRST_WITH_MAX_TIMESTAMP = 7
_FIRST_WITH_EARLIEST_LOCAL = 8
_FIRST_WITH_LATEST_TIERED = 9
_FIRST_WITH_PENDING_UPLOAD = 11
_FIRST_VERSION_WITH = {
    MAX_TIMESTAMP: _FIRST_WITH_MAX_TIMESTAMP,
    EARLIEST_LOCAL: _FIRST_WITH_EARLIEST_LOCAL,
    LATEST_TIERED: _FIRST_WITH_LATEST_TIERED,
    EARLIEST_PENDING_UPLOAD: _FIRST_WITH_PENDING_UPLOAD,
}

_LOOK_UPS_PER_TURN = 100


class _Seen(Enum):
    """The part of a log that the client may see: its upper bound."""

    ALL = "up to the log end: brokers, and tools that debug"
    REPLICATED = "up to the high watermark"
    STABLE = "up to the last stable offset"


class _Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


_NOTHING = _Found(-1, -1, -1)


class ListOffsetsHandlers:
    """Looks up offsets in the partitions that this broker leads."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    @handles(
        ListOffsetsRequest, 1, 11, elements_max=WHOLE_CLUSTER_ELEMENTS, needs=handler_asks("DESCRIBE Topic")
    )
    async def list_offsets(self, request: ClientRequest, message: ListOffsetsRequest) -> ListOffsetsResponse:
        """Return offsets by time, and the ends of logs.

        Consumers see nothing from the high watermark on. With read_committed they see nothing from the last stable
        offset on.
        """
        seen = _seen_by(request, message)
        asked = [(topic.name, part.partition_index) for topic in message.topics for part in topic.partitions]
        repeated = {name for name, times in Counter(asked).items() if times > 1}
        answers = [ListOffsetsTopicResponse(name=topic.name) for topic in message.topics]
        parts = (
            (topic, part)
            for topic in zip(message.topics, answers, strict=True)
            for part in topic[0].partitions
        )
        async for (topic, answer), part in in_time_slices(parts, _LOOK_UPS_PER_TURN):
            found = await self._list(
                topic.name,
                part,
                request.api_version,
                access=request.access,
                seen=seen,
                repeated=(topic.name, part.partition_index) in repeated,
            )
            answer.partitions.append(found)
        return ListOffsetsResponse(topics=answers)

    async def _list(
        self,
        topic: str,
        part: ListOffsetsPartition,
        version: int,
        *,
        access: Access,
        seen: _Seen,
        repeated: bool,
    ) -> ListOffsetsPartitionResponse:
        try:
            access.check_topic(AclOperation.DESCRIBE, topic)
            if repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
            if version < _FIRST_VERSION_WITH.get(part.timestamp, 0):
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, f"timestamp {part.timestamp} needs a later version"
                )
            found = await self._find(topic, part, seen)
        except Exception as error:
            code = as_kafka_error(error, f"a look-up in {topic}-{part.partition_index}").code
            if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _FIRST_WITH_NOT_AVAILABLE:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=code)
        answer = ListOffsetsPartitionResponse(
            partition_index=part.partition_index, timestamp=found.timestamp, offset=found.offset
        )
        if version >= _FIRST_WITH_EPOCHS:
            answer.leader_epoch = found.leader_epoch
        return answer

    async def _find(self, topic: str, part: ListOffsetsPartition, seen: _Seen) -> _Found:
        """Look up the offset that the request wants from one partition, by timestamp or at an end of the log.

        Slow batches, and long walks over many batches, are read in a thread.
        """
        known = Known()
        while True:
            partition = self._replicas.get(topic, part.partition_index)
            leader = partition.leading(part.current_leader_epoch)
            try:
                return self._look_up(partition, leader, part.timestamp, seen, known)
            except TakesLookup as taken:
                known.records[taken.lookup.key] = await in_thread(taken.lookup.find)
            except TakesWalk as taken:
                known.places[taken.key] = await self._walked(partition, taken.walk)

    async def _walked(self, partition: Partition, walk: HeaderWalk) -> int:
        try:
            return await in_thread(walk.find)
        except KafkaError as error:
            if is_damage(error):
                self._replicas.found_damaged(partition, error)
            raise
        finally:
            walk.close()

    def _look_up(
        self, partition: Partition, leader: LeaderState, timestamp: int, seen: _Seen, known: Known
    ) -> _Found:
        try:
            return _look_up(partition, leader, timestamp, seen, known)
        except KafkaError as error:
            if is_damage(error):
                self._replicas.found_damaged(partition, error)
            raise


def _seen_by(request: ClientRequest, message: ListOffsetsRequest) -> _Seen:
    """Return the part of a log that the client may see. An unproven replica id may be a consumer's: kafka-python 3
    sends 0."""
    if message.replica_id < CONSUMER_REPLICA_ID or request.session.is_broker(message.replica_id):
        return _Seen.ALL
    return _Seen.STABLE if message.isolation_level == READ_COMMITTED else _Seen.REPLICATED


def _look_up(partition: Partition, leader: LeaderState, timestamp: int, seen: _Seen, known: Known) -> _Found:
    log = partition.log
    end = _end(partition, leader, seen)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _Found(-1, log.log_start_offset, log.leader_epochs.epoch_at(log.log_start_offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING  # no segment is or will be on another tier
    if timestamp == MAX_TIMESTAMP:
        # While the transaction of the record with this timestamp is open, its outcome is unknown: as in Kafka the
        # answer is empty then.
        largest = max_timestamp_offset(log, leader.high_watermark if seen is _Seen.STABLE else end, known)
        return _NOTHING if largest is None or largest.offset >= end else _Found(*largest)
    if timestamp < 0 and timestamp != LATEST:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
    if timestamp != LATEST:
        found = offset_for_timestamp(log, timestamp, end, known)
        if found is not None:
            return _Found(*found)
    if seen is not _Seen.ALL and leader.high_watermark < leader.epoch_start_offset:
        # Clients may have seen later records, committed under the former leader: an answer would go back in time.
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"the high watermark of {partition!r} has not reached leader epoch {leader.leader_epoch}",
        )
    return _Found(-1, end, leader.leader_epoch) if timestamp == LATEST else _NOTHING


def _end(partition: Partition, leader: LeaderState, seen: _Seen) -> int:
    log = partition.log
    if seen is _Seen.ALL:
        return log.log_end_offset
    watermark = leader.high_watermark
    return watermark if seen is _Seen.REPLICATED else log.transactions.last_stable_offset(watermark)
