"""Consumer groups in a shard over a log in memory: answers and their times, migration, and state
that survives a move.
"""

from __future__ import annotations

from ottla.dataplane.groups.classic.group import ClassicGroup
from ottla.dataplane.groups.classic.membership import JoinReply, JoinRequest, SyncReply
from ottla.dataplane.groups.classic.states import GroupState
from ottla.dataplane.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from ottla.dataplane.groups.consumer.member import HeartbeatReply, MemberHeartbeat, Partitions
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.limits import ConsumerLimits, GroupLimits, MigrationPolicy
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_payload,
    encode_payload,
)
from tests.counted_calls import counted_calls
from tests.dataplane.groups.test_consumer_group import Topics, beat, join
from tests.dataplane.groups.test_shard import Clock, MemoryLog

LIMITS = GroupLimits(initial_rebalance_delay_ms=0)


async def new_shard(
    topics: Topics, log: MemoryLog | None = None, limits: GroupLimits = LIMITS
) -> tuple[Shard, MemoryLog]:
    log = log or MemoryLog()
    shard = Shard(log, limits, Clock(), dependencies=GroupDependencies(topics.catalog))
    await shard.load()
    return shard, log


def say(shard: Shard, said: MemberHeartbeat) -> list[HeartbeatReply | KafkaError]:
    replies: list[HeartbeatReply | KafkaError] = []
    shard.consumer.heartbeat("g", said, replies.append)
    return replies


def told(shard: Shard, said: MemberHeartbeat) -> HeartbeatReply:
    (reply,) = say(shard, said)
    assert isinstance(reply, HeartbeatReply), reply
    return reply


def classic_join(
    shard: Shard, member_id: str = "", owned: list[TopicPartition] | None = None
) -> list[JoinReply]:
    replies: list[JoinReply] = []
    subscription = ConsumerProtocolSubscription(topics=["a"], owned_partitions=owned or [])
    offered = (("range", encode_payload(subscription, 1)),)
    request = JoinRequest(member_id, None, "c", "/h", 10_000, 30_000, "consumer", offered)
    shard.join("g", request, replies.append)
    return replies


def classic_sync(
    shard: Shard, joined: JoinReply, plan: dict[str, bytes] | None = None
) -> tuple[ErrorCode, set[int]]:
    replies: list[SyncReply] = []
    shard.sync(
        "g", joined.member_id, None, joined.generation, plan or {}, "consumer", "range", replies.append
    )
    (reply,) = replies
    if not reply.assignment:
        return reply.error, set()
    listed = decode_payload(ConsumerProtocolAssignment, reply.assignment).assigned_partitions
    return reply.error, {p for each in listed for p in each.partitions}


def plan_of(*partitions: int) -> bytes:
    listed = [TopicPartition(topic="a", partitions=list(partitions))]
    return encode_payload(ConsumerProtocolAssignment(assigned_partitions=listed), 1)


def indexes(partitions: Partitions | None) -> set[int]:
    assert partitions is not None
    return {index for _, index in partitions}


async def test_answers_wait_for_the_log_and_do_not_overtake_each_other() -> None:
    shard, log = await new_shard(Topics(a=2))
    log.automatic = False
    joined = say(shard, join("m", "a"))
    again = say(shard, join("m", "a"))
    assert joined == again == []
    log.settle()
    assert len(joined) == len(again) == 1


async def test_what_could_not_be_written_is_written_with_the_next_heartbeat() -> None:
    topics = Topics(a=2)
    shard, log = await new_shard(topics)
    log.automatic = False
    joined = say(shard, join("m", "a"))
    log.batches.clear()
    log.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    (refusal,) = joined
    assert isinstance(refusal, KafkaError)
    assert refusal.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.automatic = True
    reply = told(shard, join("m", "a"))
    successor, _ = await new_shard(topics, log)
    group = successor.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert (group.epoch, group.members["m"].assigned) == (reply.epoch, reply.assigned)
    shard.close()
    successor.close()


async def test_epochs_and_assignments_survive_the_coordinator() -> None:
    topics = Topics(a=4)
    shard, log = await new_shard(topics)
    first = told(shard, join("m1", "a"))
    second = told(shard, join("m2", "a"))
    first = told(shard, beat(first))
    shard.close()
    successor, _ = await new_shard(topics, log)
    moved = told(successor, beat(first, first.assigned))
    assert moved.epoch == 2
    given = told(successor, beat(second))
    assert given.assigned == topics.all_of("a") - (first.assigned or frozenset())
    successor.close()


async def test_a_classic_group_takes_in_a_consumer_member_and_is_classic_again_when_it_leaves() -> None:
    topics = Topics(a=4)
    shard, log = await new_shard(topics)
    (old,) = classic_join(shard)
    assert classic_sync(shard, old, {old.member_id: plan_of(0, 1, 2, 3)}) == (ErrorCode.NONE, {0, 1, 2, 3})
    new = told(shard, join("m", "a"))
    assert isinstance(shard.groups["g"], ConsumerGroup)
    assert (new.epoch, new.assigned) == (2, frozenset())
    assert shard.heartbeat("g", old.member_id, None, old.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    # Cooperative: the member still owns everything, learns its new assignment, gives up the rest and joins once more.
    (old,) = classic_join(shard, old.member_id, [TopicPartition(topic="a", partitions=[0, 1, 2, 3])])
    error, kept = classic_sync(shard, old)
    assert (error, len(kept)) == (ErrorCode.NONE, 2)
    assert shard.heartbeat("g", old.member_id, None, old.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    (old,) = classic_join(shard, old.member_id, [TopicPartition(topic="a", partitions=sorted(kept))])
    assert classic_sync(shard, old) == (ErrorCode.NONE, kept)
    assert shard.heartbeat("g", old.member_id, None, old.generation) is ErrorCode.NONE
    assert indexes(told(shard, beat(new)).assigned) == {0, 1, 2, 3} - kept
    successor, _ = await new_shard(topics, log)
    assert successor.groups["g"].state is ConsumerGroupState.STABLE
    shard.close()

    told(successor, MemberHeartbeat("m", -1))
    group = successor.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert successor.heartbeat("g", old.member_id, None, group.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    (old,) = classic_join(successor, old.member_id)
    assert old.leader == old.member_id
    assert classic_sync(successor, old, {old.member_id: plan_of(0, 1, 2, 3)})[1] == {0, 1, 2, 3}
    last, _ = await new_shard(topics, log)
    assert isinstance(last.groups["g"], ClassicGroup)
    successor.close()
    last.close()


async def test_the_policy_may_forbid_to_upgrade() -> None:
    limits = GroupLimits(
        initial_rebalance_delay_ms=0, consumer=ConsumerLimits(migration=MigrationPolicy.DOWNGRADE)
    )
    shard, _ = await new_shard(Topics(a=1), limits=limits)
    (old,) = classic_join(shard)
    (refusal,) = say(shard, join("m", "a"))
    assert isinstance(refusal, KafkaError)
    assert refusal.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.heartbeat("g", old.member_id, None, old.generation) is ErrorCode.NONE
    shard.close()


async def test_an_empty_group_gives_way_to_either_protocol() -> None:
    topics = Topics(a=1)
    shard, log = await new_shard(topics)
    (old,) = classic_join(shard)
    shard.leave("g", old.member_id, None)
    told(shard, join("m", "a"))
    told(shard, MemberHeartbeat("m", -1))
    assert shard.groups["g"].state is ConsumerGroupState.EMPTY
    (old,) = classic_join(shard)
    assert old.error is ErrorCode.NONE
    successor, _ = await new_shard(topics, log)
    assert not isinstance(successor.groups.get("g"), ConsumerGroup)
    shard.close()
    successor.close()


async def test_heartbeats_to_groups_that_are_not_there() -> None:
    shard, _ = await new_shard(Topics(a=1))
    (refusal,) = say(shard, MemberHeartbeat("m", 3))
    assert isinstance(refusal, KafkaError)
    assert refusal.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert not shard.groups
    shard.close()


async def test_offsets_of_a_consumer_group_are_its_members_and_kept_while_it_subscribes() -> None:
    shard, log = await new_shard(Topics(a=1, b=1))
    told(shard, join("m", "a"))
    outcomes: list[ErrorCode] = []

    def commit(epoch: int, *, knows_epochs: bool = True) -> ErrorCode:
        offsets = {(topic, 0): CommittedOffset(5, -1, "", 0) for topic in ("a", "b")}
        shard.commit("g", "m", None, epoch, offsets, outcomes.append, knows_epochs=knows_epochs)
        return outcomes[-1]

    assert commit(1) is ErrorCode.NONE
    assert commit(0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(1, knows_epochs=False) is ErrorCode.UNSUPPORTED_VERSION
    deleted: list[tuple[ErrorCode, frozenset[str]]] = []
    shard.delete_offsets("g", [("a", 0), ("b", 0)], lambda *answer: deleted.append(answer))
    assert deleted == [(ErrorCode.NONE, frozenset({"a"}))]
    assert list(shard.offsets.of_group("g")) == [("a", 0)]
    shard.expire()
    assert list(shard.offsets.of_group("g")) == [("a", 0)]
    told(shard, MemberHeartbeat("m", -1))
    shard.delete_group("g", outcomes.append)
    assert outcomes[-1] is ErrorCode.NONE
    successor, _ = await new_shard(Topics(a=1), log)
    assert not successor.groups
    shard.close()
    successor.close()


async def test_an_older_epoch_commits_what_its_member_has_held_ever_since() -> None:
    topics = Topics(a=2, b=2)
    shard, log = await new_shard(topics)
    first = told(shard, join("m", "a"))
    assert first.assigned is not None
    told(shard, beat(first, first.assigned, topics=("a", "b")))

    def commit(where: Shard, member_id: str, epoch: int, topic: str) -> ErrorCode:
        outcomes: list[ErrorCode] = []
        offset = CommittedOffset(5, -1, "", 0, topics.catalog.ids[topic])
        where.commit("g", member_id, None, epoch, {(topic, 0): offset}, outcomes.append)
        return outcomes[0]

    successor, _ = await new_shard(topics, log)
    for each in (shard, successor):
        assert commit(each, "m", 2, "a") is commit(each, "m", 2, "b") is ErrorCode.NONE
        assert commit(each, "m", 1, "a") is ErrorCode.NONE
        assert commit(each, "m", 1, "b") is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(each, "m", 0, "a") is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(each, "m", 3, "a") is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(each, "n", 1, "a") is ErrorCode.UNKNOWN_MEMBER_ID
        each.close()


async def test_the_retention_of_an_empty_group_goes_on_when_its_coordinator_moves() -> None:
    topics, clock = Topics(a=1), Clock()
    log = MemoryLog()
    limits = GroupLimits(offsets_retention_ms=60_000)
    shard = Shard(log, limits, clock, dependencies=GroupDependencies(topics.catalog))
    await shard.load()
    told(shard, join("m", "a"))
    offsets = {("a", 0): CommittedOffset(5, -1, "", clock.now_ms)}
    shard.commit("g", "m", None, 1, offsets, lambda _outcome: None)
    clock.now_ms += 100_000
    told(shard, MemberHeartbeat("m", -1))
    left_ms = clock.now_ms
    for moved_ms in (left_ms + 30_000, left_ms + 59_999, left_ms + 60_000):
        clock.now_ms = moved_ms
        shard.close()
        shard = Shard(log, limits, clock, dependencies=GroupDependencies(topics.catalog))
        await shard.load()
        shard.expire()
        assert ("g" in shard.groups) is (moved_ms < left_ms + 60_000)
    shard.close()


async def test_a_join_of_a_large_group_costs_little_for_each_other_member() -> None:
    size = 300
    shard, _ = await new_shard(Topics(a=size))
    for number in range(size - 1):
        told(shard, join(f"m{number}", "a"))
    with counted_calls() as calls:
        told(shard, join("last", "a"))
    assert calls.count < 15 * size
