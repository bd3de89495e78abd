"""Fetches of share groups' members: they take records, and acknowledge records that they took before (KIP-932).

The records of an answer are slices of files, as in a Fetch, with the acquired offsets beside them. A fetch that
acquires nothing is parked until there are records, until locks are free, or until `max_wait_ms` is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from ....protocol.cluster.cluster_image import ClusterImage
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.share_fetch import (
    CLOSE_SESSION_EPOCH,
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ....protocol.wire.codec import encode_parts
from ...cluster.endpoints import LEADERSHIP_ERRORS
from ...fetching.cold_reads import ColdReads
from ...quotas import ClientQuotas
from ...server.connection import ClientConnection
from ...server.handler import ClientRequest, as_kafka_error
from ...server.purgatory import Parked, Purgatory
from ...share.leader.acknowledging import AcknowledgeRound, acknowledged_ranges, check_readable
from ...share.leader.dependencies import ShareKey
from ...share.leader.led_partition import LedPartition
from ...share.leader.share_partitions import SharePartitions
from ...share.leader.share_sessions import ShareSessions
from ...share.leader.taking import Appetite, Taken
from ...share.limits import AcquireMode
from ...share.sessions import SessionKey, SharedPartition, ShareSession
from .acknowledgements import (
    FIRST_WITH_RENEWALS,
    checked_member,
    current_leader,
    node_endpoints,
)


class ShareFetches:
    """The fetches of share groups' members. Records are acquired for them, or they wait for records."""

    def __init__(
        self,
        partitions: SharePartitions,
        sessions: ShareSessions,
        image: Callable[[], ClusterImage],
        share_version: Callable[[], int],
        purgatory: Purgatory,
        cold_reads: ColdReads,
        quotas: ClientQuotas,
        bytes_max: int,
    ) -> None:
        """`share_version` returns the level of the feature share.version that is in force. `bytes_max` is the maximum
        size of an answer, whatever the client asks for (fetch.max.bytes)."""
        self.partitions = partitions
        self.sessions = sessions
        self.image = image
        self._share_version = share_version
        self._purgatory = purgatory
        self._cold_reads = cold_reads
        self._quotas = quotas
        self._bytes_max = bytes_max
        self._waiting: dict[ClientConnection, dict[_ShareFetch, None]] = {}

    @property
    def waiting_count(self) -> int:
        """Number of fetches that wait for records."""
        return sum(map(len, self._waiting.values()))

    def fetch(self, request: ClientRequest, message: ShareFetchRequest) -> None:
        """Apply the acknowledgements of a fetch, then acquire records or park the fetch until there are some."""
        key = checked_member(request, message, self._share_version)
        self.partitions.counters.fetch_requests += 1
        mode = _checked_mode(request.api_version, message)
        named = acknowledged_ranges(message.topics)
        has_acknowledgements = any(named.values())
        is_closing = message.share_session_epoch == CLOSE_SESSION_EPOCH
        try:
            session = self.sessions.fetch(
                key,
                message.share_session_epoch,
                request.connection,
                request.holders,
                added=() if is_closing else named,
                forgotten=(
                    SharedPartition(topic.topic_id, index)
                    for topic in message.forgotten_topics_data
                    for index in topic.partitions
                ),
                has_acknowledgements=has_acknowledgements,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED or message.max_wait_ms <= 0:
                raise
            self._refuse_later(request, message, error)
            return
        self._limit_to_window(request, message)
        fetch = _ShareFetch(self, request, message, key, session, mode)
        if has_acknowledgements:
            self.partitions.counters.acknowledge_requests += 1
            fetch.round.apply(
                self.partitions,
                key,
                named,
                request.access,
                self.image(),
                has_renewals=request.api_version >= FIRST_WITH_RENEWALS and message.is_renew_ack,
            )
        if is_closing:
            self.sessions.close(key, fetch.round)
            fetch.take_nothing()
        else:
            fetch.begin()

    def _refuse_later(self, request: ClientRequest, message: ShareFetchRequest, error: KafkaError) -> None:
        """Refuse a session at the end of the waiting time, as Kafka does, since the client tries again at once."""
        answer = ShareFetchResponse(error_code=error.code, error_message=error.message)
        self._purgatory.park(request.received_at + message.max_wait_ms / 1000, lambda: request.reply(answer))

    def _limit_to_window(self, request: ClientRequest, message: ShareFetchRequest) -> None:
        """Lower the bytes of a fetch to the size of an answer, and to the bytes that the client's quota permits in one
        window."""
        message.max_bytes = min(message.max_bytes, self._bytes_max)
        if self._quotas.consumer is not None and request.session.is_metered:
            most = self._quotas.consumer.most_in_window(request.session.user, request.client_id)
            if most is not None:
                message.max_bytes = min(message.max_bytes, int(most))
        message.min_bytes = min(message.min_bytes, message.max_bytes)

    def charge(self, request: ClientRequest, size: int) -> None:
        """Charge a client for the bytes of its answer. A client beyond its quota gets them, since it holds their locks,
        and its next requests wait."""
        quota = self._quotas.consumer
        if quota is not None and request.session.is_metered and size:
            now_ms = asyncio.get_running_loop().time() * 1000
            request.throttle(quota.charge(request.session.user, request.client_id, size, now_ms))

    # ------------------------------------------------------------ waiting

    def park(self, fetch: _ShareFetch) -> Parked:
        """Hold a fetch until its waiting time is over, or its connection is closed."""
        connection = fetch.request.connection
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = self._waiting[connection] = {}
            connection.call_on_close(lambda: self._closed(connection))
            earlier = connection.on_expiry
            connection.on_expiry = lambda: self._session_expired(connection, earlier)
        waiting[fetch] = None
        self.sessions.parked[fetch.key] = fetch
        return self._purgatory.park(
            fetch.request.received_at + fetch.message.max_wait_ms / 1000, fetch.superseded
        )

    def forget(self, fetch: _ShareFetch) -> None:
        """Remove a fetch that no longer waits."""
        self._waiting.get(fetch.request.connection, {}).pop(fetch, None)
        if self.sessions.parked.get(fetch.key) is fetch:
            del self.sessions.parked[fetch.key]

    def _session_expired(self, connection: ClientConnection, earlier: Callable[[], None] | None) -> None:
        """Answer the waiting fetches of a connection whose client's login has expired."""
        if earlier is not None:
            earlier()
        for fetch in tuple(self._waiting.get(connection, ())):
            fetch.superseded()

    def _closed(self, connection: ClientConnection) -> None:
        for fetch in tuple(self._waiting.pop(connection, ())):
            fetch.unpark()

    # ------------------------------------------------------------ answers

    def answer(self, fetch: _ShareFetch) -> None:
        """Send the acquired records, and the outcomes of acknowledgements."""
        request = fetch.request
        self.charge(request, fetch.size)
        request.charge()
        message = _Answer(fetch, self.image()).message()
        message.acquisition_lock_timeout_ms = self.partitions.settings.get(
            fetch.key.group_id
        ).limits.lock_duration_ms
        message.throttle_time_ms = request.throttle_ms
        self._cold_reads.reply(request, encode_parts(message, request.api_version))


class _ShareFetch:
    """A ShareFetch until it is answered: the records that it has acquired, and its place where it waits."""

    __slots__ = (
        "_handlers", "_parked", "_records_left", "_taking_ended", "failures", "key", "message", "mode", "request",
        "round", "session", "size", "taken",
    )  # fmt: skip

    def __init__(
        self,
        handlers: ShareFetches,
        request: ClientRequest,
        message: ShareFetchRequest,
        key: SessionKey,
        session: ShareSession,
        mode: AcquireMode,
    ) -> None:
        self.request = request
        self.message = message
        self.key = key
        self.session = session
        self.mode = mode
        self.taken: dict[SharedPartition, Taken] = {}
        self.failures: dict[SharedPartition, KafkaError] = {}
        self.size = 0
        self.round = AcknowledgeRound(lambda: handlers.answer(self))
        self._handlers = handlers
        self._records_left = message.max_records
        self._parked: Parked | None = None
        # Ends the acquisition, which is a step of the request.
        self._taking_ended = self.round.step()

    def begin(self) -> None:
        """Acquire records, or wait for them. The fetch is answered once its acknowledgements are durable, too."""
        message = self.message
        if message.max_records <= 0 or message.max_bytes <= 0 or not len(self.session):
            self.take_nothing()
            return
        self.round.sealed()
        if self._is_worth_taking():
            self._take_all()
        if self.taken or self.failures or message.max_wait_ms <= 0:
            self._taking_ended()
        else:
            self._park()

    def take_nothing(self) -> None:
        """End the fetch once its acknowledgements are durable."""
        self.round.sealed()
        self._taking_ended()

    def _take_all(self) -> None:
        for partition in self.session:
            self._take(partition)

    def _is_worth_taking(self) -> bool:
        """Return whether the partitions have `min_bytes` of records. Errors count as enough."""
        least = self.message.min_bytes
        if least <= 1 or self.message.max_wait_ms <= 0:
            return True
        for partition in self.session:
            try:
                led = self._led(partition)
                if led.share is not None:
                    least -= led.available_bytes(self.message.max_bytes)
            except KafkaError:
                return True
            if least <= 0:
                return True
        return False

    def _led(self, partition: SharedPartition) -> LedPartition:
        """Return a share partition. Raises KafkaError if the member may not read it here."""
        handlers, request = self._handlers, self.request
        if request.access.grants is not None:
            # At every read, since an ACL may have been removed while the fetch waited.
            check_readable(partition, request.access, handlers.image())
        return handlers.partitions.lead(ShareKey(self.key.group_id, *partition), request.holders)

    def _take(self, partition: SharedPartition) -> None:
        """Acquire records of one partition, within the bytes and records that are left."""
        if self.taken and (self._records_left <= 0 or self.size >= self.message.max_bytes):
            return
        try:
            led = self._led(partition)
            if led.share is None:
                return
            appetite = Appetite(
                self.message.max_bytes - self.size, self._records_left, self.mode, not self.taken
            )
            taken = led.take(self.key.member_id, appetite)
        except Exception as error:
            self.failures[partition] = as_kafka_error(error, f"a ShareFetch from {partition}")
            return
        if taken is not None:
            self.taken[partition] = taken
            self.size += taken.records.size
            self._records_left -= taken.record_count
            led.replica.traffic.bytes_out += taken.records.size

    # ------------------------------------------------------------ waiting

    def _park(self) -> None:
        self._parked = self._handlers.park(self)
        for partition in self.session:
            led = self._handlers.partitions.find(ShareKey(self.key.group_id, *partition))
            if led is not None:
                led.wait(self)

    def look(self, partition: LedPartition) -> None:
        """Acquire records of a share partition that has some, or note its failure; then end the wait."""
        if self._parked is None:
            return
        place = SharedPartition(partition.key.topic_id, partition.key.partition)
        if partition.failure is not None:
            self.failures[place] = partition.failure
        elif self.message.min_bytes <= 1:
            self._take(place)
        elif self._is_worth_taking():
            self._take_all()
        if self.taken or self.failures:
            self.superseded()

    def superseded(self) -> None:
        """End the wait, with the records that the fetch has acquired."""
        if self._parked is not None:
            if not self.taken and not self.failures and self.message.min_bytes > 1:
                self._take_all()
            self.unpark()
            self._taking_ended()

    def unpark(self) -> None:
        """Wait no longer. Without a connection nobody gets an answer."""
        if self._parked is None:
            return
        self._parked.cancel()
        self._parked = None
        self._handlers.forget(self)
        for partition in self.session:
            led = self._handlers.partitions.find(ShareKey(self.key.group_id, *partition))
            if led is not None:
                led.forget(self)


class _Answer:
    """The rows of an answer, by partition."""

    def __init__(self, fetch: _ShareFetch, image: ClusterImage) -> None:
        self._fetch = fetch
        self._image = image
        self._rows: dict[SharedPartition, PartitionData] = {}
        self._leaders: set[int] = set()

    def message(self) -> ShareFetchResponse:
        """Return the response, and note in the share session what the client knows from now on."""
        fetch, session = self._fetch, self._fetch.session
        for partition, taken in fetch.taken.items():
            row = self._row(partition)
            # The codec leaves file slices out of its buffers; they are sent as separate parts.
            row.records = cast(memoryview, taken.records)
            row.acquired_records = [
                AcquiredRecords(
                    first_offset=acquired.first,
                    last_offset=acquired.last,
                    delivery_count=acquired.delivery_count,
                )
                for acquired in taken.acquired
            ]
        for partition, error in fetch.failures.items():
            row = self._row(partition)
            row.error_code, row.error_message = error.code, error.message
            self._name_leader(row, partition, error)
        for partition, failure in fetch.round.results.items():
            row = self._row(partition)
            if failure is not None:
                row.acknowledge_error_code, row.acknowledge_error_message = failure.code, failure.message
                self._name_leader(row, partition, failure)
        for partition in session:
            if session.must_answer(partition):
                self._row(partition)
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for partition, row in self._rows.items():
            session.answered(partition, has_records=partition in fetch.taken, is_error=row.error_code != 0)
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = ShareFetchableTopicResponse(
                    topic_id=partition.topic_id, partitions=[]
                )
            topic.partitions.append(row)
        return ShareFetchResponse(
            responses=list(topics.values()),
            node_endpoints=node_endpoints(self._image, self._leaders, fetch.request.listener),
        )

    def _row(self, partition: SharedPartition) -> PartitionData:
        row = self._rows.get(partition)
        if row is None:
            row = self._rows[partition] = PartitionData(partition_index=partition.partition)
        return row

    def _name_leader(self, row: PartitionData, partition: SharedPartition, error: KafkaError) -> None:
        if error.code in LEADERSHIP_ERRORS:
            row.current_leader = current_leader(self._image, partition)
            self._leaders.add(row.current_leader.leader_id)


def _checked_mode(version: int, message: ShareFetchRequest) -> AcquireMode:
    """Return the acquire mode of a fetch. Raises KafkaError, INVALID_REQUEST, for an unknown mode, and for a request
    that renews locks and takes records at the same time (KIP-1222)."""
    if version < FIRST_WITH_RENEWALS:
        return AcquireMode.BATCH_OPTIMISED
    if message.is_renew_ack:
        asked = {
            "max_wait_ms": message.max_wait_ms,
            "min_bytes": message.min_bytes,
            "max_bytes": message.max_bytes,
            "max_records": message.max_records,
        }
        if wrong := [f"{name} is {value}" for name, value in asked.items() if value]:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A ShareFetch with IsRenewAck takes no records: {', '.join(wrong)}, it must be 0.",
            )
    try:
        return AcquireMode(message.share_acquire_mode)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"share_acquire_mode is {message.share_acquire_mode}; allowed are 0 and 1.",
        ) from None
