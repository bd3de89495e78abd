"""Reading of partitions for one answer to a consumer, within the bytes that the answer may contain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import (
    FIRST_WITH_ZSTD,
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    LeaderIdAndEpoch,
    PartitionData,
)
from ...protocol.records.compression import Compression
from ...protocol.records.record_batch import HEADER_SIZE, parse_header
from ..cluster.endpoints import LEADERSHIP_ERRORS, endpoint, leader_of
from ..log import LogSlice, is_damage
from ..log.leader_epochs import UNDEFINED_EPOCH
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..replication.roles.follower import diverges
from ..replication.roles.leader import LeaderState
from ..runtime.time_slices import pieces
from ..server.handler import ClientRequest, as_kafka_error
from .replica_selection import ReplicaView, Selector
from .sessions import FetchSession, SessionPartition

READ_COMMITTED = 1
"""The isolation level of consumers that must not see records of open and aborted transactions."""
FIRST_FROM_FOLLOWERS = 11
"""First Fetch version whose clients can read from followers."""
_FIRST_WITH_LEADERS = 12
_ZSTD = Compression.ZSTD.value
PARTITIONS_PER_TURN = 1000
"""Maximum number of partitions that are read in one iteration of the event loop."""


@dataclass(slots=True)
class ClientFetch:
    """A consumer's fetch, and its fetch session (KIP-227)."""

    request: ClientRequest
    message: FetchRequest
    session: FetchSession
    incremental: bool = False
    """True if the answer contains only news for the client."""
    wants_session: bool = False


class Outcome:
    """The result of reading one partition of a fetch. `data.records` is a file slice if there are records to send."""

    __slots__ = ("data", "partition", "replica", "size")

    def __init__(self, partition: SessionPartition, data: PartitionData, replica: Partition | None) -> None:
        self.partition = partition
        self.data = data
        self.replica = replica
        self.size = 0


class Round:
    """The results of reading the partitions of a fetch once: one `Outcome` each, and their size in bytes."""

    __slots__ = ("budget", "leaders", "outcomes", "size", "urgent")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = 0
        # True after an error, a divergence, or a referral to another replica: the client must be answered now.
        self.urgent = False
        self.leaders: set[int] = set()
        self.outcomes: list[Outcome] = []

    def release(self) -> None:
        """Close the file slices in these results, which will not be sent."""
        for outcome in self.outcomes:
            if isinstance(outcome.data.records, LogSlice):
                outcome.data.records.release()


class FetchReader:
    """A reader of partitions for consumers' fetches: of leaders and, for clients of KIP-392, of followers."""

    def __init__(self, replicas: Replicas, selector: Selector | None, max_bytes: int) -> None:
        self._replicas = replicas
        self._selector = selector
        self._max_bytes = max_bytes
        # Held for one loop iteration, so that only one long fetch reads a slice in it, however many there are.
        self._slice = asyncio.Lock()

    def read(self, fetch: ClientFetch, partitions: Iterable[SessionPartition]) -> Round:
        """Read each partition of a fetch once, up to its `max_bytes`. The caller owns the file slices in the result."""
        found = Round(min(fetch.message.max_bytes, self._max_bytes))
        self._read_into(found, fetch, partitions)
        return found

    async def read_in_time_slices(self, fetch: ClientFetch, partitions: Sequence[SessionPartition]) -> Round:
        """Read each partition of a fetch once, in time slices that alternate with those of other long fetches."""
        found = Round(min(fetch.message.max_bytes, self._max_bytes))
        try:
            for some in pieces(partitions, PARTITIONS_PER_TURN):
                async with self._slice:
                    self._read_into(found, fetch, some)
                    await asyncio.sleep(0)
        except BaseException:
            found.release()
            raise
        return found

    def _read_into(self, found: Round, fetch: ClientFetch, partitions: Iterable[SessionPartition]) -> None:
        session, committed = fetch.session, fetch.message.isolation_level == READ_COMMITTED
        for wanted in partitions:
            outcome = self._read(fetch, wanted, found)
            data = outcome.data
            if (
                fetch.incremental
                and wanted.part.fetch_offset
                >= (data.last_stable_offset if committed else data.high_watermark)
                and not wanted.has_news(data, outcome.size)
            ):
                session.rest(wanted)
            else:
                found.outcomes.append(outcome)

    def _read(self, fetch: ClientFetch, wanted: SessionPartition, found: Round) -> Outcome:
        try:
            if fetch.request.access.grants is not None:
                self._check_access(fetch, wanted)
            replica = self._replica(fetch.session, wanted)
            outcome = self._read_from(fetch, wanted, replica, found)
        except Exception as error:
            found.urgent = True
            refusal = as_kafka_error(error, f"a fetch from {wanted.topic}-{wanted.part.partition}")
            return self._failure(fetch.request, wanted, refusal, found)
        wanted.watch(replica)
        return outcome

    def _check_access(self, fetch: ClientFetch, wanted: SessionPartition) -> None:
        """Check the READ permission. Raises TOPIC_AUTHORIZATION_FAILED.

        It is checked at every read, since an ACL may have been removed while the fetch waited.
        """
        name = wanted.topic
        if fetch.session.by_id:
            topic = self._replicas.image.topics_by_id.get(wanted.topic_id)
            if topic is None:
                return  # The absence of a topic with an id is no secret.
            name = topic.name
        fetch.request.access.check_topic(AclOperation.READ, name)

    def _replica(self, session: FetchSession, wanted: SessionPartition) -> Partition:
        index = wanted.part.partition
        if not session.by_id:
            return self._replicas.get(wanted.topic, index)
        try:
            replica = self._replicas.get_by_id(wanted.topic_id, index)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_ID and wanted.topic:
                # The topic existed when the session began.
                anew = wanted.topic in self._replicas.image.topics
                code = ErrorCode.INCONSISTENT_TOPIC_ID if anew else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise KafkaError(code, f"topic {wanted.topic} was deleted") from error
            raise
        wanted.topic = replica.topic
        return replica

    def _read_from(
        self, fetch: ClientFetch, wanted: SessionPartition, replica: Partition, found: Round
    ) -> Outcome:
        part, version = wanted.part, fetch.request.api_version
        _check_role(replica, part.current_leader_epoch, version)
        log = replica.log
        watermark = replica.high_watermark
        stable = log.transactions.last_stable_offset(watermark)
        committed = fetch.message.isolation_level == READ_COMMITTED
        upto = stable if committed else watermark
        data = PartitionData(
            partition_index=part.partition,
            high_watermark=watermark,
            last_stable_offset=stable,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        outcome = Outcome(wanted, data, replica)
        offset = part.fetch_offset
        if self._selector is not None and version >= FIRST_FROM_FOLLOWERS and replica.leader is not None:
            preferred = self._preferred(replica, replica.leader, offset, fetch)
            if preferred is not None:
                data.preferred_read_replica = preferred
                found.urgent = True
                return outcome
        if part.last_fetched_epoch != UNDEFINED_EPOCH:
            ours = replica.end_of_epoch(part.last_fetched_epoch)
            if ours.end_offset >= 0 and diverges(part.last_fetched_epoch, offset, ours):
                _check_judges(replica, offset)
                data.diverging_epoch = EpochEndOffset(epoch=ours.epoch, end_offset=ours.end_offset)
                found.urgent = True
                return outcome
        if not log.log_start_offset <= offset <= log.log_end_offset:
            if offset > log.log_end_offset:
                _check_judges(replica, offset)
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} lies outside {replica!r}: {log.log_start_offset} to {log.log_end_offset}",
            )
        if committed:
            data.aborted_transactions = []
        room = found.budget - found.size
        if offset >= upto or (room <= 0 and found.size):
            return outcome
        most = min(part.partition_max_bytes, max(0, room))
        try:
            records = log.read(offset, most, upto, at_least_one=found.size == 0)
        except KafkaError:
            self._replicas.doubted(replica, offset, most)
            raise
        if version < FIRST_WITH_ZSTD and _holds_zstd(records):
            records.release()
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"records compressed with zstd need Fetch version {FIRST_WITH_ZSTD} or above",
            )
        if records.size == 0:
            return outcome
        if committed:
            try:
                aborted = log.transactions.aborted_among(records, offset, upto)
            except KafkaError as error:
                records.release()
                if is_damage(error):
                    self._replicas.found_damaged(replica, error)
                raise
            data.aborted_transactions = [
                AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
                for transaction in aborted
            ]
        outcome.size = records.size
        found.size += records.size
        # The codec leaves file slices out of its buffers; they are sent as separate parts.
        data.records = cast(memoryview, records)
        return outcome

    def _preferred(
        self, replica: Partition, leader: LeaderState, offset: int, fetch: ClientFetch
    ) -> int | None:
        rack, selector = fetch.message.rack_id, self._selector
        if not rack or selector is None:
            return None
        brokers, now_ms = self._replicas.image.brokers, self._replicas.monotonic_ms()
        in_sync = leader.in_sync.committed
        candidates = []
        for follower in leader.followers.values():
            broker = brokers.get(follower.broker_id)
            if (
                broker is not None
                and follower.broker_id in in_sync
                and follower.log_start_offset <= offset <= follower.log_end_offset
                and endpoint(broker, fetch.request.listener) is not None
            ):
                behind_ms = now_ms - follower.caught_up_ms
                candidates.append(
                    ReplicaView(follower.broker_id, broker.rack, follower.log_end_offset, behind_ms)
                )
        own = brokers.get(leader.broker_id)
        own_rack = None if own is None else own.rack
        return selector(rack, ReplicaView(leader.broker_id, own_rack, leader.log_end_offset, 0), candidates)

    def _failure(
        self, request: ClientRequest, wanted: SessionPartition, error: KafkaError, found: Round
    ) -> Outcome:
        index = wanted.part.partition
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
                image.topics_by_id.get(wanted.topic_id) or image.topics.get(wanted.topic), index
            )
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            found.leaders.add(leader_id)
        return Outcome(wanted, data, None)


def _check_role(replica: Partition, current_leader_epoch: int, version: int) -> None:
    """Raise KafkaError unless this replica may answer a consumer in the given leader epoch. A follower may answer
    versions of Fetch that support it."""
    if replica.leader is None and replica.follower is not None and version >= FIRST_FROM_FOLLOWERS:
        if current_leader_epoch >= 0:
            replica.check_epoch(current_leader_epoch)
        return
    replica.leading(current_leader_epoch)


def _check_judges(replica: Partition, offset: int) -> None:
    """Raise NOT_LEADER_OR_FOLLOWER if the replica cannot know whether the log reaches `offset`.

    A follower may just lag. A client that takes it for the leader would reset its position upon OFFSET_OUT_OF_RANGE.
    Upon this error clients look for the leader, and continue there. OFFSET_NOT_AVAILABLE (KIP-392) has this effect in
    Java's consumer and librdkafka, but not in Sarama and kafkajs, which report it and ask the same broker again.
    """
    if replica.leader is None:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{replica!r} follows, and does not reach up to offset {offset}: it ends at {replica.log.log_end_offset}",
        )


def _holds_zstd(records: LogSlice) -> bool:
    """Return whether a batch in the slice is compressed with zstd. It is only checked for consumers that are too old to
    read zstd."""
    data = records.read()
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = parse_header(data, position)
        if header.compression == _ZSTD:
            return True
        position += header.size
    return False
