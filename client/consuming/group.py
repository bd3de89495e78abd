"""Membership in a classic consumer group: find the coordinator, join, sync, heartbeat, commit, leave.

One task, `_run`, goes round: coordinator -> join -> sync -> heartbeats until a rebalance begins -> join.
Whatever the coordinator refuses sends it back to the place that cures it: a moved coordinator to the lookup,
an unknown member to joining afresh, a rebalance to joining again under the same member id.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ...protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ...protocol.schema import Message, Request
from ..connections.cluster import Backoff, Cluster
from ..connections.coordinator import COORDINATOR_MOVED, OF_GROUP, Coordinator
from ..failures import ConnectionLost, RequestTimedOut
from .assignors import ASSIGNORS
from .fetched import TopicPartition
from .subscription import (
    NO_GENERATION,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

LANE = "group"
MEMBERSHIP_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_LAST_FOR_ONE_GROUP = 7
_FIRST_WITH_STABLE = 7
ResponseT = TypeVar("ResponseT", bound=Message)


class ConsumerGroupMetadata(NamedTuple):
    """Who commits offsets for a group: a member in a generation, which the group's coordinator fences once it is not
    (KIP-447). Without membership, only the group.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """See Consumer for the meaning of each."""

    group_id: str
    group_instance_id: str | None
    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    read_committed: bool = False
    """Whether to wait for offsets that an open transaction may still change (KIP-447)."""


class Group:
    """One member of a group, or, without topics, a place to keep offsets.

    `on_assigned(partitions)` and `on_revoked(lost)` are called from the membership's task; `lost` says that
    somebody else may read the partitions already, so nothing may be committed for them.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: GroupOptions,
        *,
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[bool], Awaitable[None]],
    ) -> None:
        self.member_id = ""
        self.generation = NO_GENERATION
        """In which it was given the partitions that it has; NO_GENERATION while it has none to commit for."""
        self.failure: BaseException | None = None
        """What ended the membership for good."""
        self._cluster = cluster
        self._options = options
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._coordinator = Coordinator(cluster, options.group_id, OF_GROUP, LANE)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Become a member; assignments are told through the callbacks."""
        self._task = asyncio.ensure_future(self._run())

    async def leave(self) -> None:
        """Give up membership at once, so that the others need not wait for the session to end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if (
            self.member_id
            and self._options.group_instance_id is None
            and self._coordinator.broker_id is not None
        ):
            request = LeaveGroupRequest(
                group_id=self._options.group_id,
                member_id=self.member_id,
                members=[MemberIdentity(member_id=self.member_id)],
            )
            with suppress(KafkaError):
                connection = await self._coordinator.connection()
                version = connection.version_for(LeaveGroupRequest)
                if version < 3:
                    request = LeaveGroupRequest(group_id=self._options.group_id, member_id=self.member_id)
                else:
                    request.member_id = ""
                await connection.request(request, version=version, timeout_ms=2_000)
        self.member_id, self.generation = "", NO_GENERATION

    def metadata(self) -> ConsumerGroupMetadata:
        """Who it is now."""
        instance = self._options.group_instance_id if self.member_id else None
        return ConsumerGroupMetadata(self._options.group_id, self.generation, self.member_id, instance)

    # offsets

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep these as the next offsets to read. Raises KafkaError, REBALANCE_IN_PROGRESS among others.

        A member commits in the generation in which it was given its partitions, and none that has been thrown out:
        the partitions are others' by then.
        """
        if not offsets:
            return
        if self._options.topics and self.generation == NO_GENERATION:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self._options.group_id!r}, commit: this consumer is not a member of it now",
            )
        topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for one, offset in offsets.items():
            topics[one.topic].append(
                OffsetCommitRequestPartition(partition_index=one.partition, committed_offset=offset)
            )
        request = OffsetCommitRequest(
            group_id=self._options.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self._options.group_instance_id if self.member_id else None,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

        async def once() -> None:
            response = await self._ask(request, at_most=8)
            for topic in response.topics:
                for partition in topic.partitions:
                    self._check(partition.error_code, f"commit of {topic.name}-{partition.partition_index}")

        await self._with_retries(once)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets the group keeps, without those it has none for. Raises KafkaError: UNSTABLE_OFFSET_COMMIT if who
        reads what is committed has to wait for the end of a transaction for longer than the request timeout.
        """
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for one in partitions:
            topics[one.topic].append(one.partition)
        request = OffsetFetchRequest(
            group_id=self._options.group_id,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=parts) for name, parts in topics.items()
            ],
        )
        found: dict[TopicPartition, int] = {}

        async def once() -> None:
            connection = await self._coordinator.connection()
            version = connection.version_for(OffsetFetchRequest, _LAST_FOR_ONE_GROUP)
            # Brokers that know nothing of it (Kafka before 2.5) give what there is, as to Kafka's consumer.
            request.require_stable = self._options.read_committed and version >= _FIRST_WITH_STABLE
            response = await self._ask(request, at_most=version)
            self._check(response.error_code, "offset fetch")
            for topic in response.topics:
                for partition in topic.partitions:
                    self._check(partition.error_code, f"offset of {topic.name}-{partition.partition_index}")
                    if partition.committed_offset >= 0:
                        found[TopicPartition(topic.name, partition.partition_index)] = (
                            partition.committed_offset
                        )

        if topics:
            await self._with_retries(once)
        return found

    # membership

    async def _run(self) -> None:
        backoff = Backoff(self._options.retry_backoff_max_ms)
        try:
            while True:
                try:
                    assignment = await self._join_and_sync()
                    backoff.reset()
                    self._on_assigned(assignment)
                    await self._heartbeats()
                except KafkaError as error:
                    if not await self._cure(error):
                        raise
                    if error.code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED):
                        await asyncio.sleep(backoff.next_s())
        except Exception as error:
            self.failure = error
            await self._on_revoked(True)

    async def _cure(self, error: KafkaError) -> bool:
        """Put the membership where going round again can succeed; False when nothing can."""
        code = error.code
        if code in COORDINATOR_MOVED or isinstance(error, (ConnectionLost, RequestTimedOut)):
            self._coordinator.forget()
            return True
        if code in MEMBERSHIP_LOST:
            await self._on_revoked(True)
            self.generation = NO_GENERATION
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return True
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._on_revoked(False)
            return True
        return code == ErrorCode.MEMBER_ID_REQUIRED or code.retriable

    async def _join_and_sync(self) -> list[TopicPartition]:
        options = self._options
        metadata = encode_subscription(Subscription(options.topics))
        # The coordinator answers when all members are there, at the latest after the rebalance timeout.
        joined = await self._ask(
            JoinGroupRequest(
                group_id=options.group_id,
                session_timeout_ms=options.session_timeout_ms,
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=options.group_instance_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=metadata) for name in options.assignors
                ],
            ),
            at_most=7,
            timeout_ms=options.rebalance_timeout_ms + 5_000,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        self._check(joined.error_code, "join")
        self.member_id = joined.member_id
        assignments = await self._assignments(joined) if joined.leader == joined.member_id else []
        synced = await self._ask(
            SyncGroupRequest(
                group_id=options.group_id,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                group_instance_id=options.group_instance_id,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=assignments,
            ),
            timeout_ms=options.rebalance_timeout_ms + 5_000,
        )
        self._check(synced.error_code, "sync")
        partitions = decode_assignment(synced.assignment)
        # Not before: until now it has the partitions of the generation before.
        self.generation = joined.generation_id
        return [TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes]

    async def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The leader's work: everyone's partitions by the assignor that all members know."""
        subscriptions = {member.member_id: decode_subscription(member.metadata) for member in joined.members}
        topics = {topic for wanted in subscriptions.values() for topic in wanted.topics}
        await self._cluster.refresh(topics)
        known = self._cluster.metadata.topics
        counts = {
            topic: len(known[topic].partitions)
            for topic in topics
            if topic in known and known[topic].partitions
        }
        assignor = ASSIGNORS[joined.protocol_name or self._options.assignors[0]]
        assignment = assignor.assign(subscriptions, counts)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
            for member, partitions in assignment.items()
        ]

    async def _heartbeats(self) -> None:
        """Heartbeat until the coordinator answers with an error, which is raised."""
        while True:
            await asyncio.sleep(self._options.heartbeat_interval_ms / 1000)
            response = await self._ask(
                HeartbeatRequest(
                    group_id=self._options.group_id,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    group_instance_id=self._options.group_instance_id,
                ),
                timeout_ms=self._options.session_timeout_ms,
            )
            self._check(response.error_code, "heartbeat")

    # the coordinator

    async def _ask(
        self, message: Request[ResponseT], *, at_most: int | None = None, timeout_ms: float | None = None
    ) -> ResponseT:
        timeout_ms = timeout_ms or self._options.request_timeout_ms
        return await self._coordinator.ask(message, at_most=at_most, timeout_ms=timeout_ms)

    async def _with_retries(self, attempt: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run `attempt` until it succeeds, while what it fails with is cured by finding the coordinator
        again, or by waiting for the end of a transaction.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.request_timeout_ms / 1000
        backoff = Backoff(self._options.retry_backoff_max_ms)
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                moved = error.code in COORDINATOR_MOVED or isinstance(
                    error, (ConnectionLost, RequestTimedOut)
                )
                unstable = error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                if not (moved or unstable) or loop.time() > deadline:
                    raise
                if moved:
                    self._coordinator.forget()
                await asyncio.sleep(backoff.next_s())

    def _check(self, code: int, what: str) -> None:
        if code:
            error = ErrorCode.of(code)
            raise KafkaError(error, f"group {self._options.group_id!r}, {what}: {error.message}")
