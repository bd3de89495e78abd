"""Random histories of a group with members of both protocols, over a log that refuses, delays and loses its end.

No partition ever has two owners, and at the end each has one. A failure names its seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from ottla.dataplane.groups.classic.membership import JoinReply, JoinRequest, SyncReply
from ottla.dataplane.groups.consumer.member import HeartbeatReply, MemberHeartbeat, Partitions
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.groups.shard import Shard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_payload,
    encode_payload,
)

from .test_consumer_group import REBALANCE_MS, Topics
from .test_migration_edges import compacted
from .test_shard import Clock, MemoryLog

PARTITIONS = 6
LIMITS = GroupLimits(initial_rebalance_delay_ms=0)
_REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


def listed(indexes: set[int]) -> list[TopicPartition]:
    return [TopicPartition(topic="a", partitions=sorted(indexes))]


@dataclass(eq=False)
class NewClient:
    """A member with KIP-848's protocol; it ignores answers to abandoned requests."""

    member_id: str
    topic_id: bytes
    epoch: int = 0
    owned: Partitions = frozenset()
    full: bool = True
    request: int = 0
    waiting: bool = False

    def step(self, shard: Shard) -> None:
        if self.waiting:
            return
        self.request, self.waiting = self.request + 1, True
        number = self.request
        full = self.full or not self.epoch
        said = MemberHeartbeat(
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            topics=("a",) if full else None,
            owned=self.owned,
        )

        def answered(reply: HeartbeatReply | KafkaError) -> None:
            if number == self.request:
                self._hear(reply)

        shard.consumer.heartbeat("g", said, answered)

    def _hear(self, reply: HeartbeatReply | KafkaError) -> None:
        self.waiting = False
        if isinstance(reply, KafkaError):
            self.full = True
            if reply.code in _REJOIN:
                self.epoch, self.owned = 0, frozenset()
            return
        self.epoch, self.full = reply.epoch, False
        if reply.assigned is not None:
            self.owned = reply.assigned

    def give_up_request(self) -> None:
        self.request, self.waiting, self.full = self.request + 1, False, True

    def leave(self, shard: Shard) -> None:
        self.give_up_request()
        shard.consumer.heartbeat("g", MemberHeartbeat(self.member_id, -1), lambda _reply: None)
        self.epoch, self.owned = 0, frozenset()


@dataclass(eq=False)
class OldClient:
    """A member with the classic protocol that rebalances cooperatively, and leads if the group chooses it."""

    topic_id: bytes
    member_id: str = ""
    generation: int = -1
    owned: Partitions = frozenset()
    doing: str = "join"
    plan: dict[str, bytes] = field(default_factory=dict)
    request: int = 0
    waiting: bool = False

    def step(self, shard: Shard) -> None:
        if self.waiting:
            return
        if self.doing == "heartbeat":
            self._hear_of(shard.heartbeat("g", self.member_id, None, self.generation))
            return
        self.request, self.waiting = self.request + 1, True
        number = self.request

        def joined(reply: JoinReply) -> None:
            if number == self.request:
                self._hear_join(reply)

        def synced(reply: SyncReply) -> None:
            if number == self.request:
                self._hear_sync(reply)

        if self.doing == "join":
            subscription = ConsumerProtocolSubscription(
                topics=["a"], owned_partitions=listed({index for _, index in self.owned})
            )
            offered = (("cooperative", encode_payload(subscription, 1)),)
            request = JoinRequest(self.member_id, None, "c", "/h", 10_000, 30_000, "consumer", offered)
            shard.join("g", request, joined)
        else:
            generation, plan = self.generation, self.plan
            shard.sync("g", self.member_id, None, generation, plan, "consumer", "cooperative", synced)

    def _hear_of(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        self.doing = "join"
        if error is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.owned = frozenset()
            self.member_id = self.member_id if error is ErrorCode.ILLEGAL_GENERATION else ""

    def _hear_join(self, reply: JoinReply) -> None:
        self.waiting = False
        if reply.error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.owned = "", frozenset()
        if reply.error is not ErrorCode.NONE:
            return
        self.member_id, self.generation, self.doing = reply.member_id, reply.generation, "sync"
        self.plan = _plan(reply) if reply.leader == reply.member_id else {}

    def _hear_sync(self, reply: SyncReply) -> None:
        self.waiting = False
        if reply.error is not ErrorCode.NONE:
            self._hear_of(
                reply.error
                if reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
                else ErrorCode.REBALANCE_IN_PROGRESS
            )
            return
        given = decode_payload(ConsumerProtocolAssignment, reply.assignment).assigned_partitions
        now = frozenset((self.topic_id, index) for each in given for index in each.partitions)
        self.doing, self.owned = "join" if self.owned - now else "heartbeat", now

    def give_up_request(self) -> None:
        self.request, self.waiting, self.doing = self.request + 1, False, "join"

    def leave(self, shard: Shard) -> None:
        self.give_up_request()
        if self.member_id:
            shard.leave("g", self.member_id, None)
        self.member_id, self.owned = "", frozenset()


def _plan(reply: JoinReply) -> dict[str, bytes]:
    """Plan cooperatively: revoked partitions are free in this round, and assigned in the next."""
    shares = {
        member_id: {
            index
            for each in decode_payload(ConsumerProtocolSubscription, data).owned_partitions
            for index in each.partitions
        }
        for member_id, _, data in reply.members
    }
    free = set(range(PARTITIONS)).difference(*shares.values())
    for share in shares.values():
        while len(share) > PARTITIONS // len(shares) + 1:
            share.pop()
    for index in free:
        min(shares.values(), key=len).add(index)
    return {
        member_id: encode_payload(ConsumerProtocolAssignment(assigned_partitions=listed(share)), 1)
        for member_id, share in shares.items()
    }


class History:
    """Six clients, a shard that moves, and its log."""

    def __init__(self, seed: int) -> None:
        self.random, self.seed = random.Random(seed), seed
        self.topics, self.log, self.clock = Topics(a=PARTITIONS), MemoryLog(), Clock()
        topic_id = self.topics.catalog.ids["a"]
        self.clients: list[NewClient | OldClient] = [NewClient(f"n{n}", topic_id) for n in range(3)]
        self.clients += [OldClient(topic_id) for _ in range(3)]
        self.present: set[NewClient | OldClient] = set()

    async def start(self) -> None:
        self.log.refusing = False
        self.shard = Shard(self.log, LIMITS, self.clock, dependencies=GroupDependencies(self.topics.catalog))
        await self.shard.load()

    async def move(self) -> None:
        """Move to another coordinator; a part of the uncommitted end is lost."""
        waiting, self.log.waiting = self.log.waiting, []
        lost = self.random.randint(0, len(waiting))
        self.log.batches = self.log.batches[: len(self.log.batches) - lost]
        self.shard.close()
        for done in waiting:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.random.random() < 0.5:
            self.log.batches = compacted(self.log).batches
        await self.start()

    async def go_on(self) -> None:
        client, chance = self.random.choice(self.clients), self.random.random()
        self.log.automatic = self.random.random() < (0.8 if self.log.automatic else 0.5)
        if self.log.automatic:
            self.log.settle()
        self.log.refusing = self.random.random() < 0.1
        if chance < 0.84:
            self.present.add(client)
            client.step(self.shard)
        elif chance < 0.90:
            self.log.refusing = False
            self.present.discard(client)
            client.leave(self.shard)
        elif chance < 0.95:
            client.give_up_request()
        else:
            await self.move()
        self.check()

    def check(self) -> None:
        owned = [partition for client in self.clients for partition in client.owned]
        assert len(owned) == len(set(owned)), f"seed {self.seed}: owned twice"
        self.shard.check()

    def settle(self) -> None:
        self.log.refusing, self.log.automatic = False, True
        self.log.settle()
        present = [client for client in self.clients if client in self.present]
        for step_ms in [500] * 60 + [2_000] * 60:
            self.clock.now_ms += step_ms
            for client in present:
                client.step(self.shard)
                self.check()
            group = self.shard.groups.get("g")
            if group is not None:
                self.shard._due(group)
        owned = {partition for client in present for partition in client.owned}
        assert len(owned) == (PARTITIONS if present else 0), f"seed {self.seed}: some have no owner"


@pytest.mark.parametrize("seed", range(30))
async def test_partitions_have_one_owner_whatever_happens(seed: int) -> None:
    history = History(seed)
    await history.start()
    for _ in range(250):
        await history.go_on()
    history.settle()
    history.shard.close()
