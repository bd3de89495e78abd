"""Members of consumer groups, by Ottla's consumer (classic groups) and hand-written (KIP-848), and the answers they
get.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, TypeVar
from zlib import crc32

from ottla.client.connections.cluster import Cluster
from ottla.client.connections.coordinator import COORDINATOR_MOVED
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.consumer import Consumer
from ottla.client.consuming.membership.group import Group
from ottla.client.consuming.membership.listener import RebalanceListener
from ottla.client.failures import ConnectionLost, RequestTimedOut
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.wire.schema import Message, Request
from tests.histories.operations import (
    NO_GENERATION,
    NOTHING_COMMITTED,
    Commit,
    Fetched,
    Outcome,
    Owned,
    Poll,
    Position,
    Reason,
    Released,
    Send,
)
from tests.simulation.cluster.workload import POLL_MS, REQUEST_TIMEOUT_MS, Workload, started

ResponseT = TypeVar("ResponseT", bound=Message)
THROWN_OUT = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,  # The group is a classic one by now.
)
SESSION_MS = 600
HEARTBEAT_MS = 120
REBALANCE_MS = 1000
STRATEGIES = (("range", "cooperative-sticky"), ("cooperative-sticky",))
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
COMMIT_VERSION, FETCH_VERSION = 9, 9
"""First versions with member epochs; later versions use topic ids."""


class WatchedConsumer(Consumer, RebalanceListener):
    """Ottla's consumer in a group; its assignments and revocations go into the history."""

    def __init__(self, workload: Workload, actor: str, topic: str, group: str, **settings: Any) -> None:
        super().__init__(
            bootstrap_servers=workload.cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=REBALANCE_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            fetch_max_wait_ms=POLL_MS,
            # One of two members keeps its partitions during a rebalance, as in a group that changes its assignor.
            partition_assignment_strategy=STRATEGIES[crc32(actor.encode()) % 2],
            **settings,
        )
        self.owned: dict[TopicPartition, str] = {}
        """Assigned partitions, each with its reading session."""
        self._workload, self._actor, self._name = workload, actor, group
        self.generation = -1
        """Generation of the assignment."""
        self._sessions = 0
        self.subscribe([topic], listener=self)

    @property
    def membership(self) -> Group:
        assert self._subscriber.group is not None
        return self._subscriber.group

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        history, now = self._workload.history, self._workload.now()
        self.generation = self.membership.generation
        member = self.membership.member_id
        self._workload.memberships.append((self._name, member, self.generation))
        for partition in sorted(partitions | self.owned.keys()):
            _own(self._workload, Owned(self._name, self.generation, member, *partition, now))
            if partition not in self.owned:
                self._sessions += 1
                session = self.owned[partition] = f"{self._actor}/{self._sessions}"
                history.add(Position(self._actor, session, *partition, None, Reason.COMMITTED, now))

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self._release(sorted(partitions))

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self._release(sorted(partitions))

    def _release(self, partitions: Iterable[TopicPartition]) -> None:
        now = self._workload.now()
        for partition in partitions:
            del self.owned[partition]
            member = self.membership.member_id
            self._workload.history.add(Released(self._name, self.generation, member, *partition, now))


class ClassicMember:
    """A member that reads its partitions and commits its progress; it leaves and rejoins now and then."""

    def __init__(self, workload: Workload, name: str, group: str, topic: str) -> None:
        self.waiting: list[Commit | Send] = []
        self._workload, self._name, self._group, self._topic = workload, name, group, topic
        self._chance: Random = workload.chance()
        self._settled = False

    async def run(self) -> None:
        """Work until the workload is over, and then until one more commit succeeds."""
        workload, round_ = self._workload, 0
        while not self._over:
            round_ += 1
            actor = f"{self._name}/{round_}"
            consumer = await started(
                lambda actor=actor: WatchedConsumer(workload, actor, self._topic, self._group)  # type: ignore[misc]
            )
            until = workload.now() + self._chance.uniform(0.5, 6.0)
            await self._take_part(consumer, actor, until)
            await consumer.stop()

    @property
    def _over(self) -> bool:
        return self._workload.over and self._settled

    async def _take_part(self, consumer: WatchedConsumer, actor: str, until: float) -> None:
        workload, read = self._workload, dict[TopicPartition, int]()
        while not self._over and (workload.over or workload.now() < until):
            if consumer.membership.failure is not None:
                return
            try:
                taken = await consumer.getmany(timeout_ms=POLL_MS)
            except KafkaError:
                await asyncio.sleep(0.02)
                continue
            for partition, records in taken.items():
                session = consumer.owned[partition]
                for record in records:
                    assert record.value is not None
                    workload.history.add(
                        Poll(
                            actor,
                            session,
                            *partition,
                            record.offset,
                            record.leader_epoch,
                            record.value,
                            workload.now(),
                        )
                    )
                read[partition] = records[-1].offset + 1
            read = {partition: offset for partition, offset in read.items() if partition in consumer.owned}
            if self._chance.random() < 0.6 or workload.over:
                await self._commit(consumer, read)
            if self._chance.random() < 0.2:
                await ask_committed(workload, consumer, self._group, list(consumer.owned))

    async def _commit(self, consumer: WatchedConsumer, offsets: dict[TopicPartition, int]) -> None:
        after = self._workload.over
        done = await commit(self._workload, consumer, self._group, offsets, self.waiting)
        self._settled = after and done and consumer.membership.generation >= 0


async def commit(
    workload: Workload,
    consumer: WatchedConsumer,
    group: str,
    offsets: Mapping[TopicPartition, int],
    waiting: list[Commit | Send],
) -> bool:
    """Commit by Ottla's consumer, note it, and return whether it succeeded; an empty commit succeeds."""
    made = [
        Commit(
            group,
            consumer.membership.member_id,
            NO_GENERATION if workload.mixed else consumer.membership.generation,
            *partition,
            offset,
            workload.now(),
        )
        for partition, offset in offsets.items()
    ]
    for each in made:
        workload.history.add(each)
    waiting[:] = made
    error = None
    try:
        await consumer.commit(offsets)
    except KafkaError as failed:
        error = failed.code.name
    for each in made:
        each.finish(workload.now(), error, tried_before=True)
    return error is None


def _own(workload: Workload, owned: Owned) -> None:
    if not workload.mixed:
        workload.history.add(owned)


async def ask_committed(
    workload: Workload, consumer: Consumer, group: str, partitions: Iterable[TopicPartition]
) -> None:
    """Note the committed offsets that the group's current coordinator reports.

    Answers of a replaced coordinator, which may be outdated, and missing answers are ignored.
    """
    for partition in partitions:
        asked, sure = workload.now(), workload.is_coordinated_by_one(group)
        with suppress(KafkaError):
            offset = await consumer.committed(partition)
            offset_or_none = NOTHING_COMMITTED if offset is None else offset
            if sure and workload.is_coordinated_by_one(group):
                workload.history.add(Fetched(group, *partition, offset_or_none, asked, workload.now()))


class ConsumerProtocolMember:
    """A KIP-848 member that reads nothing, and commits ever higher offsets for its partitions."""

    def __init__(self, workload: Workload, name: str, group: str, topic: str) -> None:
        self.waiting: list[Commit | Send] = []
        self._workload, self._name, self._group, self._topic = workload, name, group, topic
        self._chance: Random = workload.chance()
        self._epoch = JOIN_EPOCH
        self._tell_all = True
        self._coordinator: int | None = None
        # : owned partitions, with the next offset to commit; None until it has asked for the start offset
        self._owned: dict[int, int | None] = {}
        self._settled = False

    async def run(self) -> None:
        """Work until the workload is over, and then until one more commit succeeds."""
        workload = self._workload
        self._cluster = await started(
            lambda: Cluster(workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        )
        while not (workload.over and self._settled):
            try:
                await self._take_part()
            except KafkaError as error:
                self._cure(error)
            await asyncio.sleep(self._chance.uniform(0.05, 0.2))
        with suppress(KafkaError):
            await self._heartbeat(LEAVE_EPOCH)
        await self._cluster.close()

    def _cure(self, error: KafkaError) -> None:
        if error.code in THROWN_OUT:
            self._release(list(self._owned))
            self._epoch = JOIN_EPOCH
        elif error.code in COORDINATOR_MOVED or isinstance(error, ConnectionLost | RequestTimedOut):
            self._coordinator = None
        self._tell_all = True

    async def _take_part(self) -> None:
        after = self._workload.over
        answer = await self._heartbeat(self._epoch)
        self._tell_all = False
        self._epoch = answer.member_epoch
        self._workload.memberships.append((self._group, self._name, self._epoch))
        if answer.assignment is not None:
            assigned = {
                index for partition in answer.assignment.topic_partitions for index in partition.partitions
            }
            if gone := [index for index in self._owned if index not in assigned]:
                await self._commit(gone)
                self._release(gone)
                self._tell_all = True
            now = self._workload.now()
            for index in sorted(assigned - self._owned.keys()):
                self._owned[index] = None
                owned = Owned(self._group, self._epoch, self._name, self._topic, index, now)
                _own(self._workload, owned)
        unknown = [index for index, offset in self._owned.items() if offset is None]
        if unknown or self._chance.random() < 0.2:
            for index, offset in (await self._ask_committed(unknown or list(self._owned))).items():
                if self._owned[index] is None:
                    self._owned[index] = max(offset, 0)
        if self._chance.random() < 0.6 or after:
            self._settled = await self._commit(list(self._owned)) and after

    def _release(self, partitions: Iterable[int]) -> None:
        now = self._workload.now()
        for index in partitions:
            del self._owned[index]
            self._workload.history.add(
                Released(self._group, self._epoch, self._name, self._topic, index, now)
            )

    async def _heartbeat(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._name, member_epoch=epoch
        )
        if self._tell_all and epoch != LEAVE_EPOCH:
            topic_id = await self._topic_id()
            owned = [TopicPartitions(topic_id=topic_id, partitions=sorted(self._owned))]
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [self._topic]
            request.topic_partitions = owned if self._owned else []
        answer = await self._ask(request)
        _check(answer.error_code)
        return answer

    async def _topic_id(self) -> bytes:
        topics = self._cluster.metadata.topics
        if self._topic not in topics:
            await self._cluster.refresh([self._topic])
        if self._topic not in topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topics[self._topic].id

    async def _commit(self, partitions: Iterable[int]) -> bool:
        """Commit for partitions with a known offset, and return whether it succeeded."""
        history, now = self._workload.history, self._workload.now
        offsets: dict[int, Commit] = {}
        for index in partitions:
            if (offset := self._owned[index]) is not None:
                offset = self._owned[index] = offset + self._chance.randint(1, 9)
                epoch = NO_GENERATION if self._workload.mixed else self._epoch
                made = offsets[index] = Commit(
                    self._group, self._name, epoch, self._topic, index, offset, now(), own_epoch=True
                )
                history.add(made)
        if not offsets:
            return True
        self.waiting[:] = offsets.values()
        wanted = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=made.offset)
            for index, made in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._name,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=wanted)],
        )
        try:
            answer = await self._ask(request, COMMIT_VERSION)
        except KafkaError as error:
            for made in offsets.values():
                made.finish(now(), error.code.name)
            return False
        for partition in answer.topics[0].partitions:
            code = ErrorCode(partition.error_code)
            offsets[partition.partition_index].finish(now(), code.name)
            if code in COORDINATOR_MOVED:
                self._coordinator = None
        return all(made.outcome is Outcome.OK for made in offsets.values())

    async def _ask_committed(self, partitions: list[int]) -> dict[int, int]:
        if not partitions:
            return {}
        group = OffsetFetchRequestGroup(
            group_id=self._group,
            member_id=self._name,
            member_epoch=self._epoch,
            topics=[OffsetFetchRequestTopics(name=self._topic, partition_indexes=partitions)],
        )
        asked, sure = self._workload.now(), self._workload.is_coordinated_by_one(self._group)
        answer = (await self._ask(OffsetFetchRequest(groups=[group]), FETCH_VERSION)).groups[0]
        _check(answer.error_code)
        sure = sure and self._workload.is_coordinated_by_one(self._group)
        found = {}
        for partition in answer.topics[0].partitions:
            _check(partition.error_code)
            index, offset = partition.partition_index, partition.committed_offset
            found[index] = offset
            if sure:
                self._workload.history.add(
                    Fetched(self._group, self._topic, index, offset, asked, self._workload.now())
                )
        return found

    async def _ask(self, message: Request[ResponseT], version: int | None = None) -> ResponseT:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self._cluster, self._group)
        connection = await self._cluster.connection(self._coordinator, "group")
        return await connection.request(message, version=version, timeout_ms=SESSION_MS)


async def find_coordinator(cluster: Cluster, group: str) -> int:
    """Return the broker that coordinates the group. Raises KafkaError."""
    connection = await cluster.any_connection()
    request = FindCoordinatorRequest(key=group, key_type=0)
    response = await connection.request(request, version=3, timeout_ms=SESSION_MS)
    _check(response.error_code)
    cluster.metadata.learn_broker(BrokerAddress(response.node_id, response.host, response.port))
    return response.node_id


def _check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))
