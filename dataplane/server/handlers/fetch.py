"""Fetch (4-17), for consumers and for followers.

Consumers get records below the high watermark from the leader only, as slices that are sent from the files.
Sessions of consumers are declined (session id 0), which the protocol allows; followers have real ones. A
consumer's fetch that finds less than `min_bytes` is parked until a high watermark moves far enough or
`max_wait_ms` is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....protocol.codec import encode_parts
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ....protocol.record_batch import HEADER_SIZE, parse_header
from ...log import LogSlice
from ...quotas import ANONYMOUS, ClientQuotas
from ...replication.fetch_codec import fetch_of, response_of, to_send
from ...replication.fetch_values import SessionAnswer
from ...replication.follower import UNDEFINED_EPOCH, diverges
from ...replication.partition import Partition
from ...replication.replicas import Replicas
from ...replication.traffic import Traffic
from ..connection import Connection
from ..handler import Request, handles
from ..purgatory import Parked, Purgatory
from ..request_times import FOLLOWER_FETCH
from .leaders import LEADERSHIP_ERRORS, endpoints, leader_of

_CONSUMER = -1
_READ_COMMITTED = 1
_FIRST_WITH_ZSTD = 10
_FIRST_WITH_LEADERS = 12
_FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_REPLICA_STATE = 15
_FIRST_WITH_ENDPOINTS = 16
_ZSTD = 4
_NO_SESSION_EPOCHS = (-1, 0)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """fetch.max.bytes: the most one answer holds, whatever the consumer asks for."""

    max_bytes: int = 57_671_680


class _Round:
    """One pass over the partitions of a request: what was read, and whether it must be answered now."""

    __slots__ = ("budget", "failed", "leaders", "partitions", "response", "size", "sizes")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = 0
        self.failed = False
        self.leaders: set[int] = set()
        self.partitions: list[Partition] = []
        self.sizes: list[tuple[Traffic, int]] = []
        self.response = FetchResponse()

    def release(self) -> None:
        for topic in self.response.responses:
            for data in topic.partitions:
                if isinstance(data.records, LogSlice):
                    data.records.release()


class FetchHandlers:
    """Reads from the partitions this broker leads."""

    def __init__(
        self,
        replicas: Replicas,
        purgatory: Purgatory,
        settings: FetchSettings | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._replicas = replicas
        self._purgatory = purgatory
        self._settings = settings or FetchSettings()
        self._quotas = quotas or ClientQuotas()
        self._parked: dict[Connection, set[_ParkedFetch]] = {}

    @handles(FetchRequest, 4, 17)
    def fetch(self, request: Request, message: FetchRequest) -> FetchResponse | None:
        """Answer with what there is, or park the request."""
        version = request.api_version
        state = message.replica_state
        replica_id = state.replica_id if version >= _FIRST_WITH_REPLICA_STATE else message.replica_id
        if replica_id > _CONSUMER:
            self._follower(request, message, replica_id, state.replica_epoch)
            return None
        if message.session_id or message.session_epoch not in _NO_SESSION_EPOCHS:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "fetch sessions are kept for followers only"
            )
        if self._quotas.consumer is not None:
            self._keep_to_window(request, message)
        found = self.read(request, message)
        if (
            found.failed
            or found.size >= message.min_bytes
            or message.max_wait_ms <= 0
            or not found.partitions
        ):
            self.answer(request, found)
            return None
        found.release()
        self._parked_of(request.connection).add(_ParkedFetch(self, request, message, found.partitions))
        return None

    def _parked_of(self, connection: Connection) -> set[_ParkedFetch]:
        """The parked fetches of a connection, which go when it does."""
        parked = self._parked.get(connection)
        if parked is None:
            parked = self._parked[connection] = set()
            connection.call_on_close(lambda: self._closed(connection))
        return parked

    def _closed(self, connection: Connection) -> None:
        for parked in self._parked.pop(connection, set()):
            parked.cancel()

    def forget(self, parked: _ParkedFetch) -> None:
        """It is answered."""
        self._parked.get(parked.request.connection, set()).discard(parked)

    # Followers

    def _follower(self, request: Request, message: FetchRequest, replica_id: int, broker_epoch: int) -> None:
        if request.api_version < _FIRST_WITH_REPLICA_STATE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"followers need Fetch version {_FIRST_WITH_REPLICA_STATE} or above, which has broker epochs",
            )

        request.timed_as = FOLLOWER_FETCH

        request.meter = None  # quotas are for clients

        def reply(answer: SessionAnswer) -> None:
            request.reply_parts(encode_parts(response_of(answer), request.api_version))

        fetch = fetch_of(message, replica_id, broker_epoch)
        self._replicas.sessions.fetch(fetch, message.max_wait_ms / 1000, reply)

    # Consumers

    def read(self, request: Request, message: FetchRequest) -> _Round:
        """Look into every partition once. Slices in the result belong to the caller."""
        found = _Round(min(message.max_bytes, self._settings.max_bytes))
        for topic in message.topics:
            found.response.responses.append(
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        self._read(request, message, topic, part, found) for part in topic.partitions
                    ],
                )
            )
        return found

    def _read(
        self, request: Request, message: FetchRequest, topic: FetchTopic, part: FetchPartition, found: _Round
    ) -> PartitionData:
        try:
            by_id = request.api_version >= _FIRST_WITH_TOPIC_IDS
            partition = (
                self._replicas.get_by_id(topic.topic_id, part.partition)
                if by_id
                else self._replicas.get(topic.topic, part.partition)
            )
            data = self._read_from(partition, part, found, request.api_version)
        except KafkaError as error:
            found.failed = True
            return self._failure(request, topic, part.partition, error, found)
        if message.isolation_level == _READ_COMMITTED:
            data.aborted_transactions = []
        found.partitions.append(partition)
        return data

    def _read_from(
        self, partition: Partition, part: FetchPartition, found: _Round, version: int
    ) -> PartitionData:
        partition.leading(part.current_leader_epoch)
        log = partition.log
        watermark = partition.high_watermark
        data = PartitionData(
            partition_index=part.partition,
            high_watermark=watermark,
            last_stable_offset=watermark,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        offset = part.fetch_offset
        if part.last_fetched_epoch != UNDEFINED_EPOCH:
            ours = partition.end_of_epoch(part.last_fetched_epoch)
            if ours.end_offset >= 0 and diverges(part.last_fetched_epoch, offset, ours):
                data.diverging_epoch = EpochEndOffset(epoch=ours.epoch, end_offset=ours.end_offset)
                found.failed = True
                return data
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} lies outside {partition!r}: {log.log_start_offset} to {log.log_end_offset}",
            )
        room = found.budget - found.size
        if offset >= watermark or (room <= 0 and found.size):
            return data
        records = log.read(
            offset, min(part.partition_max_bytes, max(0, room)), watermark, at_least_one=found.size == 0
        )
        if version < _FIRST_WITH_ZSTD and records.size and _holds_zstd(records):
            records.release()
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"records compressed with zstd need Fetch version {_FIRST_WITH_ZSTD} or above",
            )
        found.size += records.size
        found.sizes.append((partition.traffic, records.size))
        data.records = to_send(records)
        return data

    def _failure(
        self, request: Request, topic: FetchTopic, index: int, error: KafkaError, found: _Round
    ) -> PartitionData:
        data = PartitionData(
            partition_index=index,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        if error.code in LEADERSHIP_ERRORS and request.api_version >= _FIRST_WITH_LEADERS:
            image = self._replicas.image
            leader_id, leader_epoch = leader_of(
                image.topics_by_id.get(topic.topic_id) or image.topics.get(topic.topic), index
            )
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            found.leaders.add(leader_id)
        return data

    def answer(self, request: Request, found: _Round) -> None:
        """Send what was read."""
        response = found.response
        for traffic, size in found.sizes:
            traffic.bytes_out += size
        if found.leaders and request.api_version >= _FIRST_WITH_ENDPOINTS:
            response.node_endpoints = [
                NodeEndpoint(node_id=place.broker_id, host=place.host, port=place.port, rack=place.rack)
                for place in endpoints(self._replicas.image, found.leaders, request.listener)
            ]
        request.charge()
        parts: list[Any] = encode_parts(response, request.api_version)
        if self._is_throttled(request, found.size + sum(map(_in_memory_bytes, parts))):
            # Over quota: nothing now, and the same records later.
            found.release()
            parts = encode_parts(FetchResponse(throttle_time_ms=request.throttle_ms), request.api_version)
        request.reply_parts(parts)

    def _keep_to_window(self, request: Request, message: FetchRequest) -> None:
        """Ask for no more than the quota lets through in one window."""
        assert self._quotas.consumer is not None
        most = self._quotas.consumer.most_in_window(ANONYMOUS, request.client_id)
        if most is not None:
            message.max_bytes = min(message.max_bytes, int(most))
            message.min_bytes = min(message.min_bytes, message.max_bytes)

    def _is_throttled(self, request: Request, size: int) -> bool:
        quota = self._quotas.consumer
        if quota is not None and not request.throttle_ms:
            now_ms = asyncio.get_running_loop().time() * 1000
            request.throttle(quota.admit(ANONYMOUS, request.client_id, size, now_ms))
        return request.throttle_ms > 0

    def expire_at(self, request: Request, max_wait_ms: int, parked: _ParkedFetch) -> Parked:
        """Answer `parked` when the request's time is over."""
        return self._purgatory.park(request.received_at + max_wait_ms / 1000, parked.expired)


class _ParkedFetch:
    """A consumer's fetch that waits for records."""

    __slots__ = ("_due", "_handlers", "_loop", "_message", "_parked", "_partitions", "request")

    def __init__(
        self,
        handlers: FetchHandlers,
        request: Request,
        message: FetchRequest,
        partitions: Sequence[Partition],
    ) -> None:
        self._handlers = handlers
        self.request = request
        self._message = message
        self._partitions = partitions
        self._loop = asyncio.get_running_loop()
        self._due = False
        self._parked: Parked | None = handlers.expire_at(request, message.max_wait_ms, self)
        self._watch()

    def _watch(self) -> None:
        for partition in self._partitions:
            partition.watch_reads(self)

    def wake(self) -> None:
        """A high watermark moved or a role changed: look again when this turn's news are complete."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        if self._parked is None:
            return
        found = self._handlers.read(self.request, self._message)
        if found.failed or found.size >= self._message.min_bytes:
            self._finish()
            self._handlers.answer(self.request, found)
        else:
            found.release()
            self._watch()

    def expired(self) -> None:
        """The time is over: answer with what there is."""
        self._finish()
        self._handlers.answer(self.request, self._handlers.read(self.request, self._message))

    def _finish(self) -> None:
        self.cancel()
        self._handlers.forget(self)

    def cancel(self) -> None:
        """The client is gone, or has its answer."""
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
        for partition in self._partitions:
            partition.unwatch_reads(self)


def _in_memory_bytes(part: object) -> int:
    return len(part) if isinstance(part, bytes | bytearray | memoryview) else 0


def _holds_zstd(records: LogSlice) -> bool:
    """Whether a batch in the slice is compressed with zstd: only asked for consumers too old to read it."""
    data = records.read()
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = parse_header(data, position)
        if header.compression == _ZSTD:
            return True
        position += header.size
    return False
