"""Membership in a classic consumer group: find the coordinator, join, sync, heartbeat, leave.

One task, `_run`, is a loop: coordinator -> join -> sync -> heartbeats until a rebalance begins -> join. A refusal by
the coordinator sends it back to the step that cures it: after a moved coordinator to the lookup, for an unknown member
to joining without a member id, for a rebalance to joining with the same one.

If all assignors are cooperative (KIP-429), a member keeps its partitions while it joins. It then gives up the
partitions missing from the new assignment, and joins once more, so that these find new owners. Otherwise it gives up
all partitions before it joins.

No rebalance waits for the program, which may be busy, or be waiting for a commit. But a program that does not ask for
records at all loses its membership: the partitions are lost and the group is left, until the next read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ....protocol.messages.offsets import NO_GENERATION
from ....protocol.wire.schema import Message, Request
from ...backoff import Backoff
from ...connections.cluster import Cluster
from ...connections.coordinator import OF_GROUP, Coordinator
from ...failures import cluster_error
from ...records import TopicPartition
from ..group_metadata import ConsumerGroupMetadata
from ..offsets import coordinator_moved
from .assignors import ASSIGNORS
from .attendance import Attendance
from .handover import Handover
from .subscription import (
    NOTHING,
    Claim,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

LANE = "group"
MEMBERSHIP_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Options of a member; `Consumer` documents the meaning of each."""

    group_id: str
    group_instance_id: str | None
    assignors: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    rack: str | None = None


class Group:
    """A member of a classic consumer group, which joins, syncs and sends heartbeats. `handover` takes over and gives up
    its partitions."""

    def __init__(
        self,
        cluster: Cluster,
        options: GroupOptions,
        topics: Iterable[str],
        handover: Handover,
        attendance: Attendance,
    ) -> None:
        self.member_id = ""
        self.generation = NO_GENERATION
        """The generation in which the member got its partitions; NO_GENERATION while it has none to commit for."""
        self._known_as = ConsumerGroupMetadata(options.group_id)
        self.failure: BaseException | None = None
        """The error that ended the membership for good."""
        self._cluster = cluster
        self._options = options
        self._topics = tuple(topics)
        self._handover = handover
        self._attendance = attendance
        self._cooperative = all(ASSIGNORS[name].cooperative for name in options.assignors)
        self._last: Claim = NOTHING
        self._counts: dict[str, int] | None = None
        """The partition counts that the last assignment was based on; None for a member that is not the leader."""
        self._join_again = asyncio.Event()
        self._coordinator = Coordinator(cluster, options.group_id, OF_GROUP, LANE)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Join the group."""
        self._attendance.begin()
        self._task = asyncio.ensure_future(self._run())

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the member's subscription to these topics from now on."""
        if self._topics != tuple(topics):
            self._topics = tuple(topics)
            self._join_again.set()

    def metadata_refreshed(self) -> None:
        """Make the group rebalance if this member leads it and the number of partitions has changed."""
        if self._counts is not None and self._counts != self._counted(self._counts):
            self._join_again.set()

    async def leave(self) -> None:
        """Give up the partitions and the membership at once, so that other members need not wait for the session
        timeout.

        A static member keeps its place until its session ends.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._handover.settled()
        lost = self.generation == NO_GENERATION
        await self._meanwhile_beating(self._handover.give_up(self._handover.owned, lost=lost))
        await self._say_goodbye()
        self._lead_none()

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the current membership, or the last one after it ended.

        The coordinator fences commits of an ended membership, while it would accept commits without any.
        """
        return self._known_as

    # membership

    async def _say_goodbye(self) -> None:
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

    async def _run(self) -> None:
        backoff = Backoff(self._options.retry_backoff_max_ms)
        try:
            while True:
                try:
                    await self._attendance.present()
                    await self._prepare()
                    assignment = await self._join_and_sync()
                    backoff.reset()
                    await self._adopt(assignment)
                    await self._heartbeats()
                except KafkaError as error:
                    if not await self._cure(error):
                        raise
                    if error.code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED):
                        await asyncio.sleep(backoff.next_s())
        except Exception as error:
            self.failure = error
            await self._lose()

    async def _cure(self, error: KafkaError) -> bool:
        """Restore a state in which the loop can succeed; return False if there is none."""
        code = error.code
        if coordinator_moved(error):
            self._coordinator.forget()
            return True
        if code in MEMBERSHIP_LOST:
            await self._lose()
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return True
        return code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS) or code.retriable

    async def _lose(self) -> None:
        self.generation = NO_GENERATION
        self._lead_none()
        await self._handover.give_up(self._handover.owned, lost=True)

    async def _stay_away(self) -> None:
        """Leave the group, since the program is away, so that other members get the partitions."""
        self._attendance.warn(self._options.group_id)
        self._handover.hold()
        await self._say_goodbye()
        await self._lose()

    async def _prepare(self) -> None:
        """Give up the partitions that the member may not keep while it joins."""
        owned = self._handover.owned
        if self._cooperative:
            wanted = set(self._topics)
            owned = {partition for partition in owned if partition.topic not in wanted}
        if owned:
            await self._meanwhile_beating(self._handover.give_up(owned))

    async def _adopt(self, assignment: list[TopicPartition]) -> None:
        """Give up and take over partitions until the owned partitions are the new assignment."""
        self._last = Claim(self.generation, tuple(assignment))
        owned = self._handover.owned
        revoked = owned.difference(assignment)
        if revoked:
            await self._meanwhile_beating(self._handover.give_up(revoked))
            self._join_again.set()  # Only now may another member get them.
        await self._meanwhile_beating(
            self._handover.take_over([partition for partition in assignment if partition not in owned])
        )

    async def _join_and_sync(self) -> list[TopicPartition]:
        options = self._options
        self._join_again.clear()
        self._lead_none()
        # The coordinator answers when all members have joined, at the latest after the rebalance timeout.
        joined = await self._ask(
            JoinGroupRequest(
                group_id=options.group_id,
                session_timeout_ms=options.session_timeout_ms,
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=options.group_instance_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=self._subscription(name))
                    for name in options.assignors
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
        # Not earlier: until now the member has the partitions of the previous generation.
        self.generation = joined.generation_id
        self._known_as = ConsumerGroupMetadata(
            options.group_id, self.generation, self.member_id, options.group_instance_id
        )
        return [TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes]

    def _lead_none(self) -> None:
        """Stop following the topics of other members, which the leader of a generation follows."""
        self._counts = None
        self._cluster.follow(self, ())

    def _subscription(self, assignor: str) -> bytes:
        owned = Claim(self.generation, tuple(self._handover.owned))
        user_data = ASSIGNORS[assignor].user_data(self._last)
        return encode_subscription(Subscription(self._topics, owned, user_data, self._options.rack))

    async def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Return every member's partitions, assigned by the agreed assignor; the leader's task."""
        subscriptions = {member.member_id: decode_subscription(member.metadata) for member in joined.members}
        topics = {topic for wanted in subscriptions.values() for topic in wanted.topics}
        self._cluster.follow(self, topics)
        await self._cluster.refresh(topics)
        counts = self._counts = self._counted(dict.fromkeys(topics, 0))
        assignor = ASSIGNORS[joined.protocol_name or self._options.assignors[0]]
        assignment = assignor.assign(
            subscriptions, {topic: count for topic, count in counts.items() if count}
        )
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
            for member, partitions in assignment.items()
        ]

    def _counted(self, before: dict[str, int]) -> dict[str, int]:
        """Return the current partition counts of these topics; unknown counts stay as before."""
        counts = dict(before)
        for topic in before:
            known = self._cluster.metadata.topics.get(topic)
            if known is not None and (known.partitions or not known.error.retriable):
                counts[topic] = len(known.partitions)
            elif known is not None and known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                counts[topic] = 0
        return counts

    # heartbeats

    async def _heartbeats(self) -> None:
        """Send heartbeats until there is a reason to join again, or the program has been away for too long.

        A reason named by the coordinator is raised.
        """
        interval_s = wait_s = self._options.heartbeat_interval_ms / 1000
        backoff = Backoff(self._options.retry_backoff_max_ms)
        while not await self._must_join_again(wait_s):
            if self._attendance.missing():
                await self._stay_away()
                return
            try:
                await self._beat()
                wait_s = interval_s
                backoff.reset()
            except KafkaError as error:
                if not coordinator_moved(error):
                    raise
                self._coordinator.forget()
                wait_s = backoff.next_s()

    async def _must_join_again(self, within_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._join_again.wait()
        return self._join_again.is_set()

    async def _beat(self) -> None:
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

    async def _meanwhile_beating(self, work: Awaitable[None]) -> None:
        """Await `work`, which may take a listener long, with heartbeats that keep the membership."""
        beats = asyncio.ensure_future(self._beats())
        try:
            await work
        finally:
            beats.cancel()

    async def _beats(self) -> None:
        while self.generation != NO_GENERATION:
            await asyncio.sleep(self._options.heartbeat_interval_ms / 1000)
            with suppress(KafkaError):  # The next request of the membership gets the same error.
                await self._beat()

    # the coordinator

    async def _ask(
        self, message: Request[ResponseT], *, at_most: int | None = None, timeout_ms: float | None = None
    ) -> ResponseT:
        timeout_ms = timeout_ms or self._options.request_timeout_ms
        return await self._coordinator.ask(message, at_most=at_most, timeout_ms=timeout_ms)

    def _check(self, code: int, what: str) -> None:
        if code:
            error = ErrorCode.of(code)
            name = self._options.group_id
            where = f"group {name!r}, {what}"
            raise cluster_error(error, where, operation="READ", name=name, user=self._coordinator.user)
