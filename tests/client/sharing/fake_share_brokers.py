"""Brokers in the test's event loop that serve one share group, and that lose leaders, connections and rights when a
test asks for it.

They keep the share sessions as brokers do: a partition that a request names is in the session, even if the request
acknowledges records alone, until a request forgets the partition.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.messages.share_fetch import (
    AcknowledgedPartition,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeType,
    AcquiredRecords,
    FetchPartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.messages.share_groups import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.records.record import encode_batch
from ottla.protocol.wire.schema import Message, Request
from tests.client.fake_cluster import FakeCluster, Fault

TOPIC, TOPIC_ID = "t", b"t" * 16
LOCK_MS = 30_000
POLL_S = 0.01
"""Time for which a fetch without records waits."""
FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP)


@dataclass(slots=True)
class Window:
    """A partition: the records that the member holds, and its finished records."""

    acquired: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Fetched:
    """A ShareFetch that a broker got."""

    broker: int
    at_s: float
    acknowledged: set[int]
    """Partitions with acknowledgements."""
    forgotten: set[int]


class ShareBrokers(FakeCluster):
    """Brokers of one topic, and of a group with one member."""

    def __init__(self, partitions: int) -> None:
        super().__init__(TOPIC, partitions, lambda: Fault.NONE)
        self.served += [
            FindCoordinatorRequest,
            ShareGroupHeartbeatRequest,
            ShareFetchRequest,
            ShareAcknowledgeRequest,
        ]
        self.fetches: list[Fetched] = []
        self.heartbeats = 0
        self.dead: set[int] = set()
        """Brokers that break the connection of each ShareFetch."""
        self.refusal = ErrorCode.NONE
        """Error of all ShareFetches as a whole."""
        self.assignment = [*range(partitions)]
        self.told: MetadataResponse | None = None
        """Answer to all requests for metadata, as of a broker that has not heard of a new leader."""
        self.sessions: defaultdict[int, set[int]] = defaultdict(set)
        """Partitions of the member's session at each broker."""
        self.windows = [Window() for _ in range(partitions)]
        self._assigned: list[int] = []

    def write(self, *values: bytes, partition: int = 0) -> None:
        self.logs[partition].values += values

    def keep_metadata(self) -> None:
        """Answer requests for metadata as of now, whatever changes."""
        self.told = super()._metadata([TOPIC])

    def _metadata(self, asked: Iterable[str | None]) -> MetadataResponse:
        return self.told or super()._metadata([*asked])

    async def before_answer(self, api_key: int) -> None:
        if api_key == ShareFetchRequest.api_key:
            await asyncio.sleep(POLL_S)

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        match request:
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=self.ports[0])
            case ShareGroupHeartbeatRequest():
                return self._beat(request)
            case ShareAcknowledgeRequest():
                return self._acknowledged(broker, request)
            case ShareFetchRequest():
                return self._fetched(broker, request)
        raise AssertionError(request)

    # ------------------------------------------------------------ the group

    def _beat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        self.heartbeats += 1
        answer = ShareGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=max(request.member_epoch, 1),
            heartbeat_interval_ms=50,
        )
        if request.member_epoch == 0 or self._assigned != self.assignment:
            self._assigned = [*self.assignment]
            topic = TopicPartitions(topic_id=TOPIC_ID, partitions=self._assigned)
            answer.assignment = Assignment(topic_partitions=[topic])
        return answer

    # ------------------------------------------------------------ records

    def _fetched(self, broker: int, request: ShareFetchRequest) -> ShareFetchResponse | None:
        named = {part.partition_index: part for topic in request.topics for part in topic.partitions}
        forgotten = {index for topic in request.forgotten_topics_data for index in topic.partitions}
        acknowledged = {index for index, part in named.items() if part.acknowledgement_batches}
        at_s = asyncio.get_running_loop().time()
        self.fetches.append(Fetched(broker, at_s, acknowledged, forgotten))
        if broker in self.dead:
            return None
        if self.refusal:
            return ShareFetchResponse(error_code=self.refusal)
        if request.share_session_epoch == 0:
            self._release(self.sessions.pop(broker, ()))
        session = self.sessions[broker]
        session.update(named)
        session.difference_update(forgotten)
        rows = {index: PartitionData(partition_index=index) for index in sorted(session | acknowledged)}
        for index in acknowledged:
            self._acknowledge(broker, index, named[index], rows[index])
        left = request.max_records
        for index in sorted(session):
            if self.logs[index].leader != broker:
                rows[index].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                rows[index].current_leader = self._hint(index)
            else:
                left -= self._take(index, left, rows[index])
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[*rows.values()])],
            node_endpoints=self._endpoints(),
        )

    def _take(self, index: int, count: int, row: PartitionData) -> int:
        """Give free records to the member, up to its maximum. Return their number."""
        window, values = self.windows[index], self.logs[index].values
        taken = [o for o in range(len(values)) if o not in window.acquired | window.finished][:count]
        window.acquired.update(taken)
        row.records = b"".join(_batch(offset, values[offset]) for offset in taken)
        row.acquired_records = [
            AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=1) for offset in taken
        ]
        return len(taken)

    # ------------------------------------------------------------ acknowledgements

    def _acknowledged(self, broker: int, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse | None:
        rows = []
        for topic in request.topics:
            for part in topic.partitions:
                data = PartitionData(partition_index=part.partition_index)
                self._acknowledge(broker, part.partition_index, part, data)
                rows.append(
                    AcknowledgedPartition(
                        partition_index=part.partition_index,
                        error_code=data.acknowledge_error_code,
                        current_leader=self._hint(part.partition_index),
                    )
                )
        if request.share_session_epoch == -1:
            self._release(self.sessions.pop(broker, ()))
        return ShareAcknowledgeResponse(
            responses=[ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=rows)],
            node_endpoints=self._endpoints(),
        )

    def _acknowledge(
        self, broker: int, index: int, part: FetchPartition | AcknowledgePartition, row: PartitionData
    ) -> None:
        if self.logs[index].leader != broker:
            row.acknowledge_error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        window = self.windows[index]
        for offset, kind in _by_offset(part.acknowledgement_batches):
            if offset not in window.acquired:
                row.acknowledge_error_code = ErrorCode.INVALID_RECORD_STATE
            elif kind != AcknowledgeType.RENEW:
                window.acquired.remove(offset)
                if kind in FINAL:
                    window.finished.add(offset)

    def _release(self, partitions: Iterable[int]) -> None:
        for index in partitions:
            self.windows[index].acquired.clear()

    # ------------------------------------------------------------ leaders

    def move_leaders(self) -> None:
        """Move all partitions to the next broker, which knows of no locks."""
        super().move_leaders()
        self._release(range(len(self.windows)))

    def _hint(self, index: int) -> LeaderIdAndEpoch:
        log = self.logs[index]
        if not self.names_leaders:
            return LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        return LeaderIdAndEpoch(leader_id=log.leader, leader_epoch=log.leader_epoch)

    def _endpoints(self) -> list[NodeEndpoint]:
        if not self.names_leaders:
            return []
        return [
            NodeEndpoint(node_id=number, host="127.0.0.1", port=port)
            for number, port in enumerate(self.ports)
        ]


def _batch(offset: int, value: bytes) -> bytes:
    """Return a record as a batch of its own. The checksum does not cover the offset."""
    return offset.to_bytes(8, "big") + encode_batch([(None, value, 1)])[8:]


def _by_offset(batches: Iterable[AcknowledgementBatch]) -> Iterable[tuple[int, int]]:
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            kinds = batch.acknowledge_types
            yield offset, kinds[offset - batch.first_offset] if len(kinds) > 1 else kinds[0]


@asynccontextmanager
async def share_brokers(*, brokers: int = 1, partitions: int = 1) -> AsyncIterator[ShareBrokers]:
    """Run brokers of topic `t` until the block ends."""
    cluster = ShareBrokers(partitions)
    await cluster.start(brokers)
    try:
        yield cluster
    finally:
        await cluster.stop()
