"""Membership in a share group (KIP-932): heartbeats, by which the coordinator assigns partitions to the member.

The member makes its id, a UUID. Its first heartbeat has epoch 0 and the topics, later heartbeats have the
coordinator's epoch, and the last heartbeat has epoch -1. Several members may have the same partitions, so nothing is
handed over.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Assignment,
    ShareGroupHeartbeatRequest,
)
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..connections.coordinator import OF_GROUP, Coordinator
from ..consuming.offsets import coordinator_moved
from ..failures import VersionUnsupported, cluster_error, restated
from .places import Place

LANE: Final = "group"
LEAVE_TIMEOUT_MS: Final = 2_000
FIRST_INTERVAL_S: Final = 1.0
"""The heartbeat interval until the coordinator has sent one."""
FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
EXPLAINED: Final = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group takes no more members",
    ErrorCode.GROUP_ID_NOT_FOUND: "the name may be that of a group of another type, such as a consumer group",
    ErrorCode.INVALID_GROUP_ID: "the name is no valid name of a group",
}
"""Errors that end a membership for good, explained in terms of this client's options."""
WITHOUT_SHARE_GROUPS: Final = (
    "the cluster has no share groups (ShareGroupHeartbeat 1): Apache Kafka has them from 4.1 on, if the feature "
    "share.version is 1 or higher"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupOptions:
    """Options of a member; `ShareConsumer` documents the meaning of each."""

    group_id: str
    topics: Sequence[str]
    rack: str | None
    request_timeout_ms: int
    retry_backoff_max_ms: int


class ShareGroupMember:
    """A member of a share group, which sends heartbeats. `assigned` gets each assignment, `failed` each error that
    reads have to raise."""

    def __init__(
        self,
        cluster: Cluster,
        options: ShareGroupOptions,
        *,
        assigned: Callable[[frozenset[Place]], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self.member_id = str(uuid.uuid4())
        self.failure: BaseException | None = None
        """The error that ended the membership for good."""
        self._options = options
        self._assigned = assigned
        self._failed = failed
        self._epoch = JOIN_EPOCH
        self._reported = False
        """True if the coordinator knows the topics and the rack, as far as this member knows."""
        self._interval_s = FIRST_INTERVAL_S
        self._coordinator = Coordinator(cluster, options.group_id, OF_GROUP, LANE)
        self._backoff = Backoff(options.retry_backoff_max_ms)
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Join the group, and send heartbeats from now on. Raises KafkaError, VersionUnsupported for a cluster without
        share groups; the last failure once the request timeout has passed."""
        deadline_s = asyncio.get_running_loop().time() + self._options.request_timeout_ms / 1000
        while True:
            try:
                await self._beat()
                break
            except KafkaError as error:
                self._cure(error)
                if asyncio.get_running_loop().time() > deadline_s:
                    raise
            await asyncio.sleep(self._backoff.next_s())
        self._task = asyncio.ensure_future(self._run())

    async def leave(self) -> None:
        """Send the last heartbeat, so that the group need not wait for the end of the session."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._coordinator.broker_id is None:
            return
        with suppress(KafkaError):  # Without it, the session expires.
            await self._coordinator.ask(self._request(LEAVE_EPOCH), timeout_ms=LEAVE_TIMEOUT_MS)

    async def _run(self) -> None:
        pause_s = self._interval_s
        try:
            while True:
                await asyncio.sleep(pause_s)
                try:
                    await self._beat()
                    pause_s = self._interval_s
                except KafkaError as error:
                    self._cure(error)
                    pause_s = self._backoff.next_s()
        except KafkaError as error:
            self.failure = error
            self._assigned(frozenset())
            self._failed(error)

    def _cure(self, error: KafkaError) -> None:
        """Restore a state in which the next heartbeat can succeed. Raises the error if there is none."""
        group = self._options.group_id
        self._reported = False
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise VersionUnsupported(WITHOUT_SHARE_GROUPS) from error
        if coordinator_moved(error):
            self._coordinator.forget()
        elif error.code in FENCED:
            self._epoch = JOIN_EPOCH
        elif error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # It may be allowed later.
            self._failed(error)
        elif not error.code.retriable:
            hint = EXPLAINED.get(error.code)
            where = f"share group {group!r}, heartbeat: {error.message}"
            raise restated(error, f"{where} ({hint})" if hint else where) from error

    async def _beat(self) -> None:
        request = self._request(self._epoch)
        if self._epoch == JOIN_EPOCH or not self._reported:
            request.rack_id = self._options.rack
            request.subscribed_topic_names = sorted(self._options.topics)
        response = await self._coordinator.ask(request, timeout_ms=self._options.request_timeout_ms)
        if response.error_code:
            raise self._refusal(ErrorCode.of(response.error_code), response.error_message)
        self._epoch = response.member_epoch
        self._reported = True
        self._interval_s = max(response.heartbeat_interval_ms, 1) / 1000
        self._backoff.reset()
        if response.assignment is not None:
            self._assigned(_places(response.assignment, name=self._options.group_id))

    def _refusal(self, code: ErrorCode, message: str | None) -> KafkaError:
        user, name = self._coordinator.user, self._options.group_id
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topics = self._options.topics
            where = f"share group {name!r}, one of the topics {', '.join(map(repr, topics))}"
            sole = topics[0] if len(topics) == 1 else ""
            return cluster_error(code, "" if sole else where, operation="DESCRIBE", name=sole, user=user)
        operation = "READ" if code is ErrorCode.GROUP_AUTHORIZATION_FAILED else ""
        return cluster_error(code, "", message, operation=operation, name=name, user=user)

    def _request(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._options.group_id, member_id=self.member_id, member_epoch=epoch
        )


def _places(assignment: Assignment, name: str) -> frozenset[Place]:
    """Return the partitions of an assignment. No leader would be found of a negative partition."""
    places = {
        Place(bytes(topic.topic_id), index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    }
    wrong = {place for place in places if place.partition < 0}
    for place in wrong:
        logger.warning(
            "share group %r: the coordinator assigns partition %d of topic %s, which is left out",
            name,
            place.partition,
            place.topic_id.hex(),
        )
    return frozenset(places - wrong)
