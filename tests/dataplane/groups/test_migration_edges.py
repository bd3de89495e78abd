"""Migration at awkward moments: the remaining log records, the owners, and the generations of classic members."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.dataplane.groups.classic.group import ClassicGroup
from ottla.dataplane.groups.classic.membership import JoinReply, JoinRequest
from ottla.dataplane.groups.classic.states import GroupState
from ottla.dataplane.groups.consumer.group import ConsumerGroup
from ottla.dataplane.groups.consumer.member import MemberHeartbeat
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_payload,
)
from ottla.protocol.records.record import decode_records, encode_batch

from .test_consumer_group import Topics, beat, join
from .test_consumer_shard import classic_join, classic_sync, indexes, new_shard, plan_of, say, told
from .test_shard import Clock, MemoryLog


def compacted(log: MemoryLog) -> MemoryLog:
    """Return the log after compaction without tombstones: the last record of each key."""
    latest: dict[bytes, bytes | None] = {}
    for batch in log.batches:
        for record in decode_records(memoryview(batch)):
            key = bytes(record.key or b"")
            latest.pop(key, None)
            latest[key] = None if record.value is None else bytes(record.value)
    rest = MemoryLog()
    kept = [(key, value, 0) for key, value in latest.items() if value is not None]
    rest.batches = [bytes(encode_batch(kept))] if kept else []
    return rest


def owning(partitions: Iterable[int]) -> list[TopicPartition]:
    return [TopicPartition(topic="a", partitions=list(partitions))]


async def test_nothing_of_a_consumer_member_is_left_after_a_downgrade() -> None:
    topics = Topics(a=4)
    shard, log = await new_shard(topics)
    (old,) = classic_join(shard)
    classic_sync(shard, old, {old.member_id: plan_of(0, 1, 2, 3)})
    told(shard, join("m", "a"))
    told(shard, MemberHeartbeat("m", -1))
    assert isinstance(shard.groups["g"], ClassicGroup)
    told(shard, join("n", "a"))
    successor, _ = await new_shard(topics, compacted(log))
    group = successor.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert set(group.members) == {old.member_id, "n"}
    shard.close()
    successor.close()


async def test_classic_members_keep_their_generation_over_a_downgrade_until_they_join() -> None:
    shard, _ = await new_shard(Topics(a=4))
    (old,) = classic_join(shard)
    classic_sync(shard, old, {old.member_id: plan_of(0, 1, 2, 3)})
    told(shard, join("m", "a"))
    (old,) = classic_join(shard, old.member_id, owning(range(4)))
    _, kept = classic_sync(shard, old)
    (old,) = classic_join(shard, old.member_id, owning(kept))
    classic_sync(shard, old)
    told(shard, MemberHeartbeat("m", -1))
    assert isinstance(shard.groups["g"], ClassicGroup)
    assert shard.heartbeat("g", old.member_id, None, old.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    (again,) = classic_join(shard, old.member_id)
    assert again.generation > old.generation
    shard.close()


async def test_what_cooperative_members_own_while_they_rebalance_is_given_to_nobody_else() -> None:
    shard, _ = await new_shard(Topics(a=4))
    (old,) = classic_join(shard)
    classic_sync(shard, old, {old.member_id: plan_of(0, 1, 2, 3)})
    # The member has rejoined with its partitions, and waits for the plan of the next generation.
    offered = encode_payload(ConsumerProtocolSubscription(topics=["a"], owned_partitions=owning(range(4))), 1)
    request = JoinRequest(old.member_id, None, "c", "/h", 10_000, 30_000, "consumer", (("range", offered),))
    replies: list[JoinReply] = []
    shard.join("g", request, replies.append)
    classic = shard.groups["g"]
    assert isinstance(classic, ClassicGroup)
    assert classic.state is GroupState.COMPLETING_REBALANCE
    assert indexes(told(shard, join("m", "a")).assigned) == set()
    shard.close()


async def test_a_downgrade_that_could_not_be_written_is_written_with_what_comes_next() -> None:
    topics = Topics(a=4)
    shard, log = await new_shard(topics)
    (old,) = classic_join(shard)
    classic_sync(shard, old, {old.member_id: plan_of(0, 1, 2, 3)})
    told(shard, join("m", "a"))
    log.refusing = True
    say(shard, MemberHeartbeat("m", -1))
    log.refusing = False
    assert isinstance(shard.groups["g"], ClassicGroup)
    (old,) = classic_join(shard, old.member_id)
    classic_sync(shard, old, {old.member_id: plan_of(0, 1, 2, 3)})
    shard.leave("g", old.member_id, None)
    shard.expire()
    successor, _ = await new_shard(topics, compacted(log))
    assert not successor.groups
    shard.close()
    successor.close()


async def test_a_damaged_log_in_which_two_members_hold_a_partition_is_read() -> None:
    topics = Topics(a=2)
    shard, log = await new_shard(topics)
    first = told(shard, join("m1", "a"))
    second, other = await new_shard(topics)
    told(second, join("m2", "a"))
    log.batches += other.batches
    successor, _ = await new_shard(topics, log)
    assert successor.loaded
    group = successor.groups["g"]
    assert isinstance(group, ConsumerGroup)
    held = [group.members[m].assigned for m in ("m1", "m2")]
    assert not held[0] & held[1]
    assert say(successor, beat(first))
    for each in (shard, second, successor):
        each.close()


async def test_a_session_timeout_out_of_bounds_is_refused_in_a_consumer_group_too() -> None:
    shard, _ = await new_shard(Topics(a=2))
    told(shard, join("m", "a"))
    offered = (("range", encode_payload(ConsumerProtocolSubscription(topics=["a"]), 1)),)
    replies: list[JoinReply] = []
    shard.join("g", JoinRequest("", None, "c", "/h", 5, 30_000, "consumer", offered), replies.append)
    assert replies[0].error is ErrorCode.INVALID_SESSION_TIMEOUT
    shard.close()


async def test_a_member_that_takes_a_static_place_leaves_its_own() -> None:
    topics = Topics(a=4)
    shard, _ = await new_shard(topics)
    static = told(shard, join("s", "a", instance_id="i"))
    dynamic = told(shard, join("d", "a"))
    static = told(shard, beat(static, topics.all_of("a")))
    static = told(shard, beat(static, static.assigned))
    dynamic = told(shard, beat(dynamic))
    assert dynamic.assigned
    told(shard, MemberHeartbeat("s", -2, "i"))
    alone = told(shard, join("d", "a", instance_id="i"))
    group = shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert set(group.members) == {"d"}
    assert alone.assigned == topics.all_of("a")
    shard.close()


async def emptied_with_offsets(clock: Clock) -> tuple[Shard, MemoryLog]:
    """Return a consumer group whose only member has committed and left; its offsets are kept for a minute."""
    log, limits = MemoryLog(), GroupLimits(initial_rebalance_delay_ms=0, offsets_retention_ms=60_000)
    shard = Shard(log, limits, clock, dependencies=GroupDependencies(Topics(a=2).catalog))
    await shard.load()
    told(shard, join("m", "a"))
    outcomes: list[ErrorCode] = []
    shard.commit("g", "m", None, 1, {("a", 0): CommittedOffset(5, -1, "", clock.now_ms)}, outcomes.append)
    assert outcomes == [ErrorCode.NONE]
    told(shard, MemberHeartbeat("m", -1))
    return shard, log


async def test_a_forgotten_classic_member_does_not_end_the_empty_consumer_group_it_returns_to() -> None:
    clock = Clock()
    shard, log = await emptied_with_offsets(clock)
    written = list(log.batches)
    (refused,) = classic_join(shard, "thrown-out")
    assert refused.error is ErrorCode.UNKNOWN_MEMBER_ID
    shard.check()
    assert isinstance(shard.groups["g"], ConsumerGroup)
    assert log.batches == written
    clock.now_ms += 60_000
    shard.expire()
    assert not shard.groups
    assert not list(shard.offsets.groups()), "offsets that no group leads to never expire"
    shard.close()


async def test_an_empty_consumer_group_does_not_give_way_to_a_join_that_is_refused() -> None:
    shard, log = await emptied_with_offsets(Clock())
    written = list(log.batches)
    offered = (("range", encode_payload(ConsumerProtocolSubscription(topics=["a"]), 1)),)
    refused: list[JoinReply] = []
    shard.join("g", JoinRequest("", None, "c", "/h", 5, 30_000, "consumer", offered), refused.append)
    shard.join("g", JoinRequest("", None, "c", "/h", 10_000, 30_000, "consumer", ()), refused.append)
    assert [each.error for each in refused] == [
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ]
    shard.check()
    assert isinstance(shard.groups["g"], ConsumerGroup)
    assert log.batches == written
    (joined,) = classic_join(shard)
    assert joined.error is ErrorCode.NONE
    shard.check()
    assert isinstance(shard.groups["g"], ClassicGroup)
    assert shard.offsets.get("g", ("a", 0)) is not None
    shard.close()
