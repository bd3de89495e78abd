"""Members of consumer groups for `benchmarks.group_members` and `offset_commits`, in one process: each has a
connection and a task.

They speak the group's protocol as consumers do, and read no records. A member of the classic protocol joins with an id
that it has asked for, the leader computes the assignment, and members rejoin when a heartbeat says so. A member of the
consumer protocol (KIP-848) sends its partitions as soon as they have changed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Final, TypeVar

from ottla.client.connections.connection import Connection
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.connections.opening import connect
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_payload,
    encode_payload,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.protocol.wire.schema import Message, Request

SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 300_000
"""Default timeouts of Java's consumer, which takes max.poll.interval.ms for the rebalance."""
CLASSIC_HEARTBEAT_S: Final = 3.0
"""Default of Java's consumer. In the consumer protocol the broker says how long."""
PAYLOAD_VERSION: Final = 3
NO_GENERATION: Final = -1
OPENED_AT_ONCE: Final = 50
READY_S: Final = 60.0
ASK_AGAIN_S: Final = 0.05
RETRY_S: Final = 0.1
"""Default pause of clients after a refusal that is not final (retry.backoff.ms)."""
_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors after which members repeat a request."""
ResponseT = TypeVar("ResponseT", bound=Message)
_REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


class Fleet:
    """The places of all members: the epoch (or generation) and the partitions that each got from the broker.

    The group is settled if all members have one epoch, and the partitions are divided evenly among them.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._places: dict[int, tuple[int, frozenset[int]]] = {}
        self._epochs: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()
        self._owned = 0
        self._changed = asyncio.Event()
        self.last_join_s = 0.0
        """Time of the last JoinGroup request."""
        self.heartbeats_s: list[float] = []
        """Seconds that heartbeats have taken, since the list was last emptied."""
        self.refused = 0
        """Requests that the coordinator refused for the moment. Members repeat them."""

    def moved(self, number: int, epoch: int, owned: frozenset[int]) -> None:
        """Take over a member's epoch and partitions."""
        self.gone(number)
        self._places[number] = epoch, owned
        self._epochs[epoch] += 1
        self._sizes[len(owned)] += 1
        self._owned += len(owned)
        self._changed.set()

    def gone(self, number: int) -> None:
        """Forget a member."""
        place = self._places.pop(number, None)
        if place is None:
            return
        epoch, owned = place
        self._owned -= len(owned)
        for counts, key in ((self._epochs, epoch), (self._sizes, len(owned))):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    async def settled(self, members: int, timeout_s: float) -> float:
        """Return the time at which this number of members is settled. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not self._is_settled(members):
                self._changed.clear()
                await self._changed.wait()
        now = time.monotonic()
        owned = [partition for _, partitions in self._places.values() for partition in partitions]
        if sorted(owned) != list(range(self._partitions)):
            raise AssertionError("a partition has two members, or none")
        return now

    def _is_settled(self, members: int) -> bool:
        least, more = divmod(self._partitions, members)
        sizes = self._sizes.keys()
        return (
            len(self._places) == members
            and len(self._epochs) == 1
            and self._owned == self._partitions
            and min(sizes) >= least
            and max(sizes) <= least + bool(more)
        )


class ClassicMember:
    """A member of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

    def __init__(self, fleet: Fleet, number: int, link: Link, topic: str) -> None:
        self._fleet, self._number, self._link = fleet, number, link
        self._group_id, self._topic = link.group_id, topic
        self.member_id, self.generation = "", NO_GENERATION
        """The id and the generation that requests of the member have to name."""
        self._others: list[str] = []
        self._owned: frozenset[int] = frozenset()

    async def run(self, partitions: int) -> None:
        """Join, and remain in the group until cancelled."""
        while True:
            if await self._join() and await self._sync(partitions):
                self._fleet.moved(self._number, self.generation, self._owned)
                await self._remain()

    async def leave(self) -> None:
        """Leave the group; call it when `run` has been cancelled."""
        self._fleet.gone(self._number)
        identity = MemberIdentity(member_id=self.member_id)
        answer = await self._link.request(LeaveGroupRequest(group_id=self._group_id, members=[identity]))
        _check(answer.error_code)

    async def _join(self) -> bool:
        """Join the next generation. Return False if the attempt has to be repeated."""
        owned = [TopicPartition(topic=self._topic, partitions=sorted(self._owned))] if self._owned else []
        subscription = ConsumerProtocolSubscription(
            topics=[self._topic], owned_partitions=owned, generation_id=self.generation
        )
        metadata = encode_payload(subscription, PAYLOAD_VERSION)
        self._fleet.last_join_s = time.monotonic()
        answer = await self._link.request(
            JoinGroupRequest(
                group_id=self._group_id,
                member_id=self.member_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
            ),
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return False
        if not await self._is_done(answer.error_code):
            return False
        self.generation, self.member_id = answer.generation_id, answer.member_id
        self._others = [member.member_id for member in answer.members]
        return True

    async def _sync(self, partitions: int) -> bool:
        """Get the partitions of this generation; the leader sends those of all members."""
        answer = await self._link.request(
            SyncGroupRequest(
                group_id=self._group_id,
                member_id=self.member_id,
                generation_id=self.generation,
                protocol_type="consumer",
                protocol_name="range",
                assignments=self._assignments(partitions),
            ),
        )
        if not await self._is_done(answer.error_code):
            return False
        assignment = decode_payload(ConsumerProtocolAssignment, answer.assignment)
        self._owned = frozenset(p for topic in assignment.assigned_partitions for p in topic.partitions)
        return True

    def _assignments(self, partitions: int) -> list[SyncGroupRequestAssignment]:
        """Return equal ranges of partitions for the members, in the order of their ids."""
        members = sorted(self._others)
        least, more = divmod(partitions, max(1, len(members)))
        found, start = [], 0
        for place, member_id in enumerate(members):
            end = start + least + (place < more)
            listed = [TopicPartition(topic=self._topic, partitions=list(range(start, end)))]
            payload = encode_payload(ConsumerProtocolAssignment(assigned_partitions=listed), PAYLOAD_VERSION)
            found.append(SyncGroupRequestAssignment(member_id=member_id, assignment=payload))
            start = end
        return found

    async def _remain(self) -> None:
        """Send heartbeats until the member has to join again."""
        while True:
            await asyncio.sleep(CLASSIC_HEARTBEAT_S)
            began_s = time.monotonic()
            answer = await self._link.request(
                HeartbeatRequest(
                    group_id=self._group_id, member_id=self.member_id, generation_id=self.generation
                )
            )
            self._fleet.heartbeats_s.append(time.monotonic() - began_s)
            if answer.error_code in _NOT_READY:
                await self._refused(answer.error_code)
            elif not await self._is_done(answer.error_code):
                return

    async def _refused(self, code: int) -> None:
        self._fleet.refused += 1
        await self._link.refused(code)

    async def _is_done(self, code: int) -> bool:
        """Return False if the member has to join again. Raises KafkaError for an error that ends the measurement."""
        if code in _REJOIN:
            return False
        if code in _NOT_READY:
            await self._refused(code)
            return False
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation, self._owned = "", NO_GENERATION, frozenset()
            return False
        _check(code)
        return True


class ConsumerMember:
    """A member of the consumer protocol (KIP-848): ConsumerGroupHeartbeat alone."""

    def __init__(self, fleet: Fleet, number: int, link: Link, topic: str) -> None:
        self._fleet, self._number, self._link = fleet, number, link
        self._group_id, self._topic = link.group_id, topic
        self._member_id, self._epoch = str(uuid.uuid4()), JOIN_EPOCH
        self._owned: frozenset[int] = frozenset()

    async def run(self, _partitions: int) -> None:
        """Join, and remain in the group until cancelled."""
        changed = is_full = True
        listed: list[TopicPartitions] = []
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                member_epoch=self._epoch,
                rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
                subscribed_topic_names=[self._topic] if is_full else None,
                topic_partitions=listed if changed or is_full else None,
            )
            began_s = time.monotonic()
            answer = await self._link.request(request)
            self._fleet.heartbeats_s.append(time.monotonic() - began_s)
            if answer.error_code in _NOT_READY:
                await self._refused(answer.error_code)
                is_full = True  # the group may have changed, and the answer with the changes is lost
                continue
            if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self._epoch, self._owned, listed, is_full = JOIN_EPOCH, frozenset(), [], True
                continue
            _check(answer.error_code, answer.error_message)
            changed = is_full = False
            if answer.assignment is not None:
                listed = answer.assignment.topic_partitions
                owned = frozenset(p for topic in listed for p in topic.partitions)
                changed, self._owned = owned != self._owned, owned
            self._epoch = answer.member_epoch
            self._fleet.moved(self._number, self._epoch, self._owned)
            if not changed:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)

    async def leave(self) -> None:
        """Leave the group; call it when `run` has been cancelled."""
        self._fleet.gone(self._number)
        answer = await self._link.request(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group_id, member_id=self._member_id, member_epoch=LEAVE_EPOCH
            )
        )
        _check(answer.error_code, answer.error_message)

    async def _refused(self, code: int) -> None:
        self._fleet.refused += 1
        await self._link.refused(code)


Member = ClassicMember | ConsumerMember


# ---------------------------------------------------------------- connections


class Link:
    """A connection to the coordinator of a group. It finds the coordinator again if the coordinator has moved."""

    def __init__(self, bootstrap: str, group_id: str, address: BrokerAddress, connection: Connection) -> None:
        self.group_id, self.address = group_id, address
        self._bootstrap, self._connection = bootstrap, connection

    async def request(self, message: Request[ResponseT], timeout_ms: float = REBALANCE_MS) -> ResponseT:
        """Send a request to the coordinator, and return its answer."""
        return await self._connection.request(message, timeout_ms=timeout_ms)

    async def refused(self, code: int) -> None:
        """Pause before a request is repeated, and connect to another coordinator if there is one."""
        await asyncio.sleep(RETRY_S)
        if code == ErrorCode.NOT_COORDINATOR:
            self.close()
            self.address = await coordinator_of(self._bootstrap, self.group_id)
            self._connection = await _opened(self.address)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@asynccontextmanager
async def linked(bootstrap: str, group_id: str, count: int) -> AsyncIterator[list[Link]]:
    """Open links to the coordinator of a group, some at a time."""
    address = await coordinator_of(bootstrap, group_id)
    turns = asyncio.Semaphore(OPENED_AT_ONCE)

    async def link() -> Link:
        async with turns:
            return Link(bootstrap, group_id, address, await _opened(address))

    links = await asyncio.gather(*(link() for _ in range(count)))
    try:
        yield links
    finally:
        for each in links:
            each.close()


async def coordinator_of(bootstrap: str, group_id: str) -> BrokerAddress:
    """Return the broker that coordinates a group, once it serves the group. The first request creates
    `__consumer_offsets`.
    """
    host, _, port = bootstrap.partition(",")[0].partition(":")
    async with asyncio.timeout(READY_S):
        while True:
            with closing(await _opened(BrokerAddress(0, host, int(port)))) as connection:
                asked = FindCoordinatorRequest(coordinator_keys=[group_id])
                found = (await connection.request(asked)).coordinators[0]
            if found.error_code not in _NOT_READY:
                _check(found.error_code, found.error_message)
                address = BrokerAddress(found.node_id, found.host, found.port)
                if await _serves(address, group_id):
                    return address
            await asyncio.sleep(ASK_AGAIN_S)


async def _serves(address: BrokerAddress, group_id: str) -> bool:
    """Return whether the broker has read the group's partition of `__consumer_offsets`."""
    with closing(await _opened(address)) as connection:
        nobody = HeartbeatRequest(group_id=group_id, member_id="nobody", generation_id=0)
        return (await connection.request(nobody)).error_code not in _NOT_READY


async def _opened(address: BrokerAddress) -> Connection:
    return await connect(address, client_id="member")


def _check(code: int, message: str | None = None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(code), message or "a member of the group was refused")
