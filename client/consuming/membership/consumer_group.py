"""Membership in a consumer group of KIP-848: the broker assigns, the member only sends heartbeats.

One task, `_run`, sends heartbeats. Another one, `_follow`, adapts the consumer's partitions to the assignment while the
heartbeats go on. The pure module `heartbeats` decides their contents and the steps of the handover.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.consumer_groups import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ....protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ....protocol.messages.offsets import NO_GENERATION
from ...backoff import Backoff
from ...connections.cluster import Cluster
from ...connections.coordinator import OF_GROUP, Coordinator
from ...failures import cluster_error, restated
from ...records import TopicPartition
from ..group_metadata import ConsumerGroupMetadata
from ..offsets import coordinator_moved
from .attendance import Attendance
from .handover import Handover
from .heartbeats import Beat, Membership, TopicIdPartitions, Wanted

LANE: Final = "group"
LEAVE_TIMEOUT_MS: Final = 2_000
FIRST_INTERVAL_S: Final = 1.0
"""The heartbeat interval until the coordinator has sent one."""
_FIRST_WITH_PATTERN: Final = 1

FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
EXPLAINED: Final = {
    ErrorCode.UNSUPPORTED_VERSION: "the cluster lacks the consumer protocol, or a part of it: group_protocol='classic' "
    "needs none of it, and a pattern that is a re.Pattern is matched by the client",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member has this group_instance_id, and has neither left nor expired: it "
    "is free when its session has ended",
    ErrorCode.FENCED_INSTANCE_ID: "another member has this group_instance_id now",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "group_remote_assignor names one that the broker has not",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group takes no more members",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group is a classic one that cannot be upgraded now",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "a pattern given as text is matched by the broker, in the syntax of RE2; "
    "a re.Pattern is matched by the client",
}
"""Errors that end a membership for good, explained in terms of this client's options."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupOptions:
    """Options of a member; `Consumer` documents the meaning of each."""

    group_id: str
    group_instance_id: str | None
    remote_assignor: str | None
    rebalance_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    rack: str | None = None


class ConsumerGroupMember:
    """A member of a KIP-848 consumer group, which sends heartbeats and follows the coordinator's assignment. `handover`
    takes over and gives up its partitions."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerGroupOptions,
        wanted: Wanted,
        handover: Handover,
        attendance: Attendance,
        look_again: Callable[[], None],
    ) -> None:
        """Create a member that has not joined yet.

        `look_again`: called when a topic is newly denied; `subscribe` may follow, without that topic.
        """
        self.member_id = str(uuid.uuid4())
        self.failure: BaseException | None = None
        """The error that ended the membership for good."""
        self._cluster = cluster
        self._options = options
        self._handover = handover
        self._attendance = attendance
        self._look_again = look_again
        self._known_as = ConsumerGroupMetadata(options.group_id)
        self._state = Membership(wanted)
        self._names: dict[bytes, str] = {}
        """The names, by id, of the topics that the member has, or is about to take over or to give up."""
        self._patterns = wanted.pattern is not None
        """True if the coordinator may know a pattern of this member."""
        self._notified_assignment = False
        """True once the listener was notified of an assignment since the member joined."""
        self._interval_s = FIRST_INTERVAL_S
        self._news = asyncio.Event()
        self._heard = asyncio.Event()
        self._coordinator = Coordinator(cluster, options.group_id, OF_GROUP, LANE)
        self._task: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Join the group."""
        self._attendance.begin()
        self._task = asyncio.ensure_future(self._run())

    def subscribe(self, wanted: Wanted) -> None:
        """Change the member's subscription to these topics from now on."""
        self._state.wanted = wanted
        self._patterns = self._patterns or wanted.pattern is not None
        if self._state.due:
            self._news.set()

    async def leave(self) -> None:
        """Give up the partitions and the membership at once.

        The group keeps a static member's place until its session ends.
        """
        for task in (self._task, self._following):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._task = self._following = None
        await self._handover.settled()
        beats = asyncio.ensure_future(self._beats())
        try:
            lost = self._state.epoch <= 0
            await self._handover.give_up(self._handover.owned, lost=lost)
        finally:
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)
        await self._say_goodbye()
        self._state.fenced()
        self._state.lost()

    @property
    def generation(self) -> int:
        """The member epoch, in the place of a classic generation; NO_GENERATION without membership."""
        return self._state.epoch if self._state.epoch > 0 else NO_GENERATION

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the current membership, or the last one after it ended.

        The coordinator fences commits of an ended membership, while it would accept commits without any.
        """
        return self._known_as

    async def outgrow(self, epoch: int) -> None:
        """Send heartbeats until the member has another epoch than this, which the coordinator called stale.

        Raises KafkaError STALE_MEMBER_EPOCH if that takes longer than the request timeout.
        """
        backoff = Backoff(self._options.retry_backoff_max_ms)
        try:
            async with asyncio.timeout(self._options.request_timeout_ms / 1000):
                while self._state.epoch == epoch and self.failure is None:
                    self._heard.clear()
                    self._news.set()
                    await self._heard.wait()
                    await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            code = ErrorCode.STALE_MEMBER_EPOCH
            raise KafkaError(code, f"group {self._options.group_id!r}: {code.message}") from None

    # heartbeats

    async def _run(self) -> None:
        backoff = Backoff(self._options.retry_backoff_max_ms)
        try:
            while True:
                try:
                    self._news.clear()
                    await self._beat()
                    backoff.reset()
                except KafkaError as error:
                    await self._cure(error)
                    await asyncio.sleep(backoff.next_s())
                    continue
                if self._following is None or self._following.done():
                    self._follow_up()
                    if self._following is None and self._state.due:
                        continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_s):
                        await self._news.wait()
                if self._attendance.missing():
                    await self._stay_away()
        except Exception as error:
            self.failure = error
            await self._lose()
            self._handover.wake()
            self._heard.set()

    async def _cure(self, error: KafkaError) -> None:
        """Restore a state in which the next heartbeat can succeed. Raises the error if there is none."""
        if coordinator_moved(error):
            self._coordinator.forget()
        elif error.code in FENCED:
            self._state.fenced()
            await self._lose()
        elif error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # as in Java: it may be allowed later
            self._handover.deny(error)
            self._look_again()
        elif not error.code.retriable:
            hint = EXPLAINED.get(error.code)
            where = f"group {self._options.group_id!r}, heartbeat: {error.message}"
            raise restated(error, f"{where} ({hint})" if hint else where) from error

    async def _stay_away(self) -> None:
        """Leave the group until the program returns, so that other members get the partitions."""
        self._attendance.warn(self._options.group_id)
        await self._stop_following()  # After the goodbye, other members may get the partitions to take over.
        self._handover.hold()
        await self._say_goodbye()
        await self._lose()
        await self._attendance.present()

    async def _say_goodbye(self) -> None:
        """Send a last heartbeat: a static member announces a temporary absence, others leave."""
        if self._coordinator.broker_id is None:
            return  # No coordinator knows this member. Otherwise one may, even if its answer is missing.
        static = self._options.group_instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._options.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH,
            instance_id=self._options.group_instance_id,
        )
        with suppress(KafkaError):  # Without it, the session expires.
            await self._coordinator.ask(request, timeout_ms=LEAVE_TIMEOUT_MS)

    async def _lose(self) -> None:
        """Give up all partitions as lost: other members may have them already."""
        self._state.fenced()
        await self._stop_following()
        await self._handover.settled()
        await self._handover.give_up(self._handover.owned, lost=True)
        self._state.lost()
        self._notified_assignment = False

    async def _stop_following(self) -> None:
        """Begin no further handover of partitions; the current handover completes."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _beats(self) -> None:
        """Send heartbeats at the group's interval, while other work takes long, until cancelled or the membership has
        ended."""
        while self._state.epoch > 0:
            await asyncio.sleep(self._interval_s)
            with suppress(KafkaError):
                await self._beat()

    async def _beat(self) -> None:
        beat = self._state.beat()
        try:
            connection = await self._coordinator.connection()
            needed = _FIRST_WITH_PATTERN if self._state.wanted.pattern is not None else 0
            if connection.version_for(ConsumerGroupHeartbeatRequest) < needed:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    "the broker finds no topics by pattern (ConsumerGroupHeartbeat 1)",
                )
            response = await self._coordinator.ask(
                self._request(beat), timeout_ms=self._options.request_timeout_ms
            )
            if response.error_code:
                raise self._refusal(ErrorCode.of(response.error_code), response.error_message)
        except BaseException:
            self._state.unanswered()
            raise
        self._interval_s = response.heartbeat_interval_ms / 1000
        self._state.answered(beat, response.member_epoch, _assigned(response))
        if self._state.epoch > 0:
            self._known_as = ConsumerGroupMetadata(
                self._options.group_id, self._state.epoch, self.member_id, self._options.group_instance_id
            )
        self._heard.set()

    def _refusal(self, code: ErrorCode, server_message: str | None) -> KafkaError:
        """Return the coordinator's error. For a denied topic, its answer does not name the topic."""
        user = self._coordinator.user
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topics = self._state.wanted.topics
            where = f"group {self._options.group_id!r}, one of the topics {', '.join(map(repr, topics))}"
            name = topics[0] if len(topics) == 1 else ""
            return cluster_error(code, "" if name else where, operation="DESCRIBE", name=name, user=user)
        operation = "READ" if code is ErrorCode.GROUP_AUTHORIZATION_FAILED else ""
        name = self._options.group_id
        return cluster_error(code, "", server_message, operation=operation, name=name, user=user)

    def _request(self, beat: Beat) -> ConsumerGroupHeartbeatRequest:
        options = self._options
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.group_id,
            member_id=self.member_id,
            member_epoch=beat.epoch,
            instance_id=options.group_instance_id,
        )
        if beat.full:
            request.rack_id = options.rack
            request.rebalance_timeout_ms = options.rebalance_timeout_ms
            request.server_assignor = options.remote_assignor
        if beat.wanted is not None:
            request.subscribed_topic_names = sorted(set(beat.wanted.topics))
            if self._patterns:
                request.subscribed_topic_regex = beat.wanted.pattern or ""
        if beat.owned is not None:
            indexes: defaultdict[bytes, list[int]] = defaultdict(list)
            for topic_id, index in sorted(beat.owned):
                indexes[topic_id].append(index)
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=some) for topic_id, some in indexes.items()
            ]
        return request

    # handover

    def _follow_up(self) -> None:
        self._following = None
        if self._state.step() is not None or not self._notified_assignment:
            self._following = asyncio.ensure_future(self._follow())
            self._following.add_done_callback(self._followed)

    def _followed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._handover.fail(error)
        self._news.set()

    async def _follow(self) -> None:
        backoff = Backoff(self._options.retry_backoff_max_ms)
        notified = False
        while (step := self._state.step()) is not None:
            if step.give_up:
                await self._handover.give_up(self._named(step.give_up))
                self._state.gave_up(step.give_up)
                self._news.set()
                notified = False
                continue
            await self._learn_names({topic_id for topic_id, _ in step.take_over})
            if step != self._state.step():
                continue
            known = frozenset(place for place in step.take_over if place[0] in self._names)
            if not known:  # Unknown to the broker that was asked, or deleted and soon unassigned.
                await asyncio.sleep(backoff.next_s())
                continue
            self._state.takes_over(known)
            await self._handover.take_over(self._named(known))
            self._news.set()
            notified = self._notified_assignment = True
        # The listener is notified of every assignment, as with the classic protocol.
        if not notified and self._state.is_there:
            await self._handover.take_over(())
            self._notified_assignment = True

    def _named(self, places: TopicIdPartitions) -> set[TopicPartition]:
        return {TopicPartition(self._names[topic_id], index) for topic_id, index in places}

    async def _learn_names(self, topic_ids: Iterable[bytes]) -> None:
        """Look up names of these topics, as far as the cluster knows them, and forget names no longer needed."""
        wanted = {topic_id for topic_id, _ in self._state.owned | self._state.target}.union(topic_ids)
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in wanted}
        for topic in self._cluster.metadata.topics.values():
            if topic.id in wanted:
                self._names.setdefault(topic.id, topic.name)
        missing = [topic_id for topic_id in topic_ids if topic_id not in self._names]
        if not missing:
            return
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in missing],
            allow_auto_topic_creation=False,
        )
        with suppress(KafkaError):
            response = await self._cluster.ask_any(request)
            self._names |= {
                topic.topic_id: topic.name for topic in response.topics if topic.name and not topic.error_code
            }


def _assigned(response: ConsumerGroupHeartbeatResponse) -> TopicIdPartitions | None:
    if response.assignment is None:
        return None
    return frozenset(
        (bytes(topic.topic_id), index)
        for topic in response.assignment.topic_partitions
        for index in topic.partitions
    )
