"""Share groups in a shard over a log in memory: answers and their times, the states of partitions, and groups that
survive a move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla.dataplane.groups.classic.membership import JoinReply, JoinRequest, SyncReply
from ottla.dataplane.groups.consumer.member import HeartbeatReply, MemberHeartbeat
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.groups.share.group import ShareGroup
from ottla.dataplane.groups.share.member import ShareHeartbeat
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.groups import test_consumer_group
from tests.dataplane.groups.persister import MemoryPersister
from tests.dataplane.groups.test_consumer_group import Topics
from tests.dataplane.groups.test_shard import Clock, MemoryLog, commit
from tests.dataplane.groups.test_share_group import beat, join, leave

NOBODY = ("User:ann", "127.0.0.1")


class Coordinator:
    """A shard with topics and a persister, which moves between brokers."""

    def __init__(self, **counts: int) -> None:
        self.topics, self.persister, self.log, self.clock = (
            Topics(**counts),
            MemoryPersister(),
            MemoryLog(),
            Clock(),
        )

    async def move(self) -> Shard:
        """Replay the log on another broker."""
        if hasattr(self, "shard"):
            self.shard.close()
        dependencies = GroupDependencies(self.topics.catalog, persister=self.persister)
        self.shard = Shard(self.log, GroupLimits(initial_rebalance_delay_ms=0), self.clock, dependencies)
        await self.shard.load()
        return self.shard

    def ask(self, said: ShareHeartbeat, group_id: str = "g") -> list[HeartbeatReply | KafkaError]:
        replies: list[HeartbeatReply | KafkaError] = []
        self.shard.share.heartbeat(group_id, said, replies.append)
        return replies

    def told(self, said: ShareHeartbeat) -> HeartbeatReply:
        (reply,) = self.ask(said)
        assert isinstance(reply, HeartbeatReply), reply
        self.shard.check()
        return reply

    def refused(self, said: ShareHeartbeat) -> ErrorCode:
        (reply,) = self.ask(said)
        assert isinstance(reply, KafkaError), reply
        return reply.code

    @property
    def group(self) -> ShareGroup:
        group = self.shard.groups["g"]
        assert isinstance(group, ShareGroup)
        return group

    def id_of(self, topic: str) -> bytes:
        return self.topics.image.topics[topic].id

    async def ready(self, member_id: str = "m", *topics: str) -> HeartbeatReply:
        """Let a member join, and return its heartbeat with all partitions of its topics."""
        reply = self.told(join(member_id, *(topics or ("a",))))
        await until(lambda: self.group.has_new_states)
        return self.told(beat(reply))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture
async def coordinator() -> Coordinator:
    made = Coordinator(a=2, b=1)
    await made.move()
    return made


async def test_a_member_gets_partitions_once_the_persister_has_their_states(coordinator: Coordinator) -> None:
    coordinator.persister.gate.clear()
    first = coordinator.told(join("m", "a"))
    assert coordinator.told(beat(first)).assigned is None
    coordinator.persister.gate.set()
    await until(lambda: coordinator.group.has_new_states)
    ready = coordinator.told(beat(first))
    assert ready.assigned == coordinator.topics.all_of("a")
    assert {(s.state_epoch, s.start_offset) for s in coordinator.persister.states.values()} == {(2, -1)}


async def test_an_answer_waits_until_the_change_is_committed(coordinator: Coordinator) -> None:
    coordinator.log.automatic = False
    replies = coordinator.ask(join("m", "a"))
    again = coordinator.ask(ShareHeartbeat("m", 2))
    await asyncio.sleep(0)
    assert (replies, again, coordinator.persister.states) == ([], [], {})
    coordinator.log.settle()
    assert isinstance(replies[0], HeartbeatReply)
    assert isinstance(again[0], HeartbeatReply)
    await until(lambda: coordinator.persister.states)


async def test_states_are_asked_for_again_after_the_log_or_the_persister_refused(
    coordinator: Coordinator,
) -> None:
    coordinator.log.refusing = True
    assert coordinator.refused(join("m", "a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.log.refusing = False
    coordinator.persister.refusals[1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    first = coordinator.told(join("m", "a"))
    await until(lambda: coordinator.group.has_new_states)
    assert coordinator.group.states.is_empty
    coordinator.persister.refusals.clear()
    coordinator.told(beat(first))
    await until(lambda: coordinator.group.states.initialized)
    assert coordinator.told(beat(first)).assigned == coordinator.topics.all_of("a")


async def test_a_new_coordinator_finds_members_targets_and_states(coordinator: Coordinator) -> None:
    ready = await coordinator.ready()
    before = coordinator.group
    await coordinator.move()
    assert coordinator.group is not before
    again = coordinator.told(beat(ready))
    assert (again.epoch, again.assigned) == (ready.epoch, None)
    assert coordinator.told(join("m", "a")).assigned == coordinator.topics.all_of("a")
    assert coordinator.group.states.initialized == before.states.initialized


async def test_a_new_coordinator_initializes_states_that_the_last_one_had_begun(
    coordinator: Coordinator,
) -> None:
    coordinator.persister.gate.clear()
    first = coordinator.told(join("m", "a"))
    await coordinator.move()
    assert coordinator.group.states.initializing
    coordinator.persister.gate.set()
    coordinator.told(beat(first))
    await until(lambda: coordinator.group.states.initialized)
    assert coordinator.told(beat(first)).assigned == coordinator.topics.all_of("a")
    assert {s.start_offset for s in coordinator.persister.states.values()} == {-1}


async def test_topics_deleted_in_the_meantime_are_forgotten(coordinator: Coordinator) -> None:
    await coordinator.ready("m", "a", "b")
    coordinator.topics.delete("a")
    await coordinator.move()
    coordinator.shard.share.forget_missing_topics()
    assert coordinator.group.states.topic_ids == {coordinator.id_of("b")}
    coordinator.topics.delete("b")
    coordinator.shard.share.topics_removed(frozenset(coordinator.group.states.topic_ids))
    await coordinator.move()
    assert coordinator.group.states.is_empty


async def test_groups_of_other_kinds_stay_of_their_kind(coordinator: Coordinator) -> None:
    await coordinator.ready()
    shard = coordinator.shard
    joins: list[JoinReply] = []
    shard.join(
        "g", JoinRequest("", None, "c", "/h", 10_000, 30_000, "consumer", (("range", b""),)), joins.append
    )
    assert (joins[0].error, joins[0].member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    syncs: list[SyncReply] = []
    shard.sync("g", "m", None, 1, {}, None, None, syncs.append)
    assert syncs[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("g", "m", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.leave("g", "m", None) is ErrorCode.UNKNOWN_MEMBER_ID
    beats: list[HeartbeatReply | KafkaError] = []
    shard.consumer.heartbeat("g", test_consumer_group.join("m", "a"), beats.append)
    assert isinstance(beats[0], KafkaError)
    assert beats[0].code is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(shard, 1) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert shard.check_fetch("g", "m", 1) is ErrorCode.NONE
    with pytest.raises(KafkaError) as refusal:
        shard.delete_offsets("g", [("a", 0)], lambda _code, _kept: None)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_share_member_joins_no_group_of_another_kind(coordinator: Coordinator) -> None:
    assert coordinator.refused(ShareHeartbeat("m", 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.refused(leave("m")) is ErrorCode.GROUP_ID_NOT_FOUND
    coordinator.shard.commit("g", "", None, -1, {("a", 0): CommittedOffset(1, -1, "", 0)}, lambda _code: None)
    assert coordinator.refused(join("m", "a")) is ErrorCode.GROUP_ID_NOT_FOUND
    beats: list[HeartbeatReply | KafkaError] = []
    said = MemberHeartbeat("m", 0, rebalance_timeout_ms=1_000, topics=("a",), owned=frozenset())
    coordinator.shard.consumer.heartbeat("g", said, beats.append)
    assert isinstance(beats[0], HeartbeatReply)
    assert coordinator.refused(join("m", "a")) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_share_groups_do_not_expire(coordinator: Coordinator) -> None:
    await coordinator.ready()
    coordinator.told(leave("m"))
    coordinator.clock.now_ms += 10**12
    coordinator.shard.expire()
    assert coordinator.group.states.initialized


async def test_a_silent_member_is_fenced(coordinator: Coordinator) -> None:
    await coordinator.ready()
    coordinator.clock.now_ms += 45_000
    coordinator.shard.share.tick(coordinator.group)
    await coordinator.move()
    assert not coordinator.group.members


async def deleted(coordinator: Coordinator) -> ErrorCode:
    outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    coordinator.shard.delete_group("g", outcome.set_result)
    return await outcome


async def test_a_group_is_deleted_with_its_states(coordinator: Coordinator) -> None:
    await coordinator.ready()
    assert await deleted(coordinator) is ErrorCode.NON_EMPTY_GROUP
    coordinator.told(leave("m"))
    coordinator.persister.refusals[0] = ErrorCode.NOT_COORDINATOR
    assert await deleted(coordinator) is ErrorCode.NOT_COORDINATOR
    await coordinator.move()
    assert list(coordinator.group.states.deleting) == [coordinator.id_of("a")]
    coordinator.persister.refusals.clear()
    assert await deleted(coordinator) is ErrorCode.NONE
    assert coordinator.persister.states == {}
    await coordinator.move()
    assert not coordinator.shard.groups
    assert await deleted(coordinator) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_deletion_is_answered_when_the_coordinator_moves(coordinator: Coordinator) -> None:
    await coordinator.ready()
    coordinator.told(leave("m"))
    coordinator.persister.gate.clear()
    deletion = asyncio.create_task(deleted(coordinator))
    await until(lambda: coordinator.group.states.deleting)
    await coordinator.move()
    assert await deletion is ErrorCode.NOT_COORDINATOR
    coordinator.persister.gate.set()
    assert await deleted(coordinator) is ErrorCode.NONE


async def test_a_member_that_joins_during_the_deletion_keeps_the_group(coordinator: Coordinator) -> None:
    await coordinator.ready()
    coordinator.told(leave("m"))
    coordinator.persister.gate.clear()
    deletion = asyncio.create_task(deleted(coordinator))
    await until(lambda: coordinator.group.states.deleting)
    reply = coordinator.told(join("m2", "a"))
    coordinator.persister.gate.set()
    assert await deletion is ErrorCode.NON_EMPTY_GROUP
    await until(lambda: coordinator.group.states.initialized)
    assert coordinator.told(beat(reply)).assigned == coordinator.topics.all_of("a")
    assert len(coordinator.persister.states) == 2


async def test_offsets_of_an_empty_group_are_altered(coordinator: Coordinator) -> None:
    a, share = coordinator.id_of("a"), coordinator.shard.share
    await coordinator.ready()
    with pytest.raises(KafkaError) as refusal:
        await share.alter("g", {(a, 0): 5}, NOBODY)
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
    coordinator.told(leave("m"))
    coordinator.persister.refusals[1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    outcome = await share.alter("g", {(a, 0): 5, (a, 1): 6}, NOBODY)
    assert outcome == {(a, 0): ErrorCode.NONE, (a, 1): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    state = coordinator.persister.states["g", a, 0]
    assert (state.start_offset, state.state_epoch) == (5, coordinator.group.epoch)
    assert coordinator.persister.states["g", a, 1].start_offset == -1


async def test_offsets_of_a_group_that_does_not_exist_are_altered(coordinator: Coordinator) -> None:
    a = coordinator.id_of("a")
    await coordinator.shard.share.alter("g", {(a, 0): 5}, NOBODY)
    await coordinator.move()
    reply = coordinator.told(join("m", "a"))
    assert reply.assigned == {(a, 0)}
    await until(lambda: len(coordinator.persister.states) == 2)
    assert coordinator.persister.states["g", a, 0].start_offset == 5


async def test_offsets_of_a_topic_that_is_deleted_meanwhile_are_not_altered(coordinator: Coordinator) -> None:
    a, b, share = coordinator.id_of("a"), coordinator.id_of("b"), coordinator.shard.share
    coordinator.persister.gate.clear()
    first = asyncio.create_task(share.alter("g", {(b, 0): 1}, NOBODY))
    await until(lambda: coordinator.shard.groups)
    second = asyncio.create_task(share.alter("g", {(a, 0): 5, (b, 0): 6}, NOBODY))
    coordinator.topics.delete("a")
    coordinator.persister.gate.set()
    assert await first == await second == {(b, 0): ErrorCode.NONE}
    assert coordinator.persister.states["g", b, 0].start_offset == 6


async def test_offsets_are_deleted_by_topic(coordinator: Coordinator) -> None:
    a, b = coordinator.id_of("a"), coordinator.id_of("b")
    await coordinator.ready("m", "a")
    coordinator.told(leave("m"))
    assert await coordinator.shard.share.delete_offsets("g", [a, b]) == {a: ErrorCode.NONE}
    assert coordinator.persister.states == {}
    await coordinator.move()
    assert coordinator.group.states.is_empty
    with pytest.raises(KafkaError) as refusal:
        await coordinator.shard.share.delete_offsets("x", [a])
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_coordinator_that_moved_changes_no_states(coordinator: Coordinator) -> None:
    coordinator.persister.gate.clear()
    coordinator.told(join("m", "a"))
    old = coordinator.shard
    await coordinator.move()
    batches = len(coordinator.log.batches)
    coordinator.persister.gate.set()
    await asyncio.sleep(0.01)
    assert coordinator.persister.states == {}
    assert len(coordinator.log.batches) == batches
    replies: list[HeartbeatReply | KafkaError] = []
    old.share.heartbeat("g", join("m", "a"), replies.append)
    assert isinstance(replies[0], KafkaError)
    assert replies[0].code is ErrorCode.NOT_COORDINATOR
