"""The memory of groups: a client that requests too much of it is refused, others are not, and all of it is freed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from ottla.dataplane.groups.classic.group import ClassicGroup
from ottla.dataplane.groups.classic.membership import JoinReply, JoinRequest, SyncReply
from ottla.dataplane.groups.consumer.member import HeartbeatReply, MemberHeartbeat
from ottla.dataplane.groups.dependencies import GroupDependencies
from ottla.dataplane.groups.limits import GroupLimits
from ottla.dataplane.groups.memory import SUBSCRIPTION_BYTES_MAX, GroupMemory
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.dataplane.groups.share.member import ShareHeartbeat
from ottla.dataplane.runtime.retained_bytes import RetainedBytes
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.groups.test_consumer_group import Topics
from tests.dataplane.groups.test_shard import Clock, MemoryLog

KIB = 1024
MALLORY = ("User:mallory", "192.0.2.1")
ANN = ("User:ann", "192.0.2.2")


class Groups:
    """A shard with little memory, and its clients."""

    def __init__(self, group_bytes: int, topics: Topics | None = None) -> None:
        self.clock, self.log = Clock(), MemoryLog()
        self.topics = topics or Topics(a=1)
        self.memory = GroupMemory(RetainedBytes(group_bytes), RetainedBytes(group_bytes))
        limits = GroupLimits(initial_rebalance_delay_ms=0)
        dependencies = GroupDependencies(self.topics.catalog, memory=self.memory)
        self.make: Callable[[], Shard] = lambda: Shard(self.log, limits, self.clock, dependencies)
        self.shard = self.make()

    def join(
        self,
        who: tuple[str, str],
        group_id: str = "g",
        subscription: bytes = b"",
        member_id: str = "",
        *,
        client_id: str = "c",
        requires_id: bool = False,
    ) -> list[JoinReply]:
        replies: list[JoinReply] = []
        request = JoinRequest(
            member_id,
            None,
            client_id,
            f"/{who[1]}",
            10_000,
            30_000,
            "consumer",
            (("range", subscription),),
            require_known_id=requires_id,
            principal=who[0],
        )
        self.shard.join(group_id, request, replies.append)
        return replies

    def beat(self, who: tuple[str, str], group_id: str, **said: object) -> HeartbeatReply | KafkaError:
        replies: list[HeartbeatReply | KafkaError] = []
        plain = MemberHeartbeat(
            "m", 0, None, None, "c", f"/{who[1]}", who[0], 10_000, ("a",), owned=frozenset()
        )
        self.shard.consumer.heartbeat(group_id, replace(plain, **said), replies.append)  # type: ignore[arg-type]
        (reply,) = replies
        return reply

    def share(self, who: tuple[str, str], group_id: str, **said: object) -> HeartbeatReply | KafkaError:
        replies: list[HeartbeatReply | KafkaError] = []
        plain = ShareHeartbeat("m", 0, None, "c", f"/{who[1]}", who[0], ("a",))
        self.shard.share.heartbeat(group_id, replace(plain, **said), replies.append)  # type: ignore[arg-type]
        (reply,) = replies
        return reply

    def commit(self, who: tuple[str, str], group_id: str, metadata: str, offset: int = 1) -> ErrorCode:
        outcomes: list[ErrorCode] = []
        offsets = {("a", 0): CommittedOffset(offset, -1, metadata, 0)}
        self.shard.commit(group_id, "", None, -1, offsets, outcomes.append, holders=who)
        (outcome,) = outcomes
        return outcome

    def check(self) -> None:
        self.memory.groups.check()
        self.memory.offsets.check()


def of(result: HeartbeatReply | KafkaError) -> ErrorCode:
    return result.code if isinstance(result, KafkaError) else ErrorCode.NONE


async def test_members_with_large_subscriptions_are_refused_and_others_are_not() -> None:
    """Twelve requests with 81 MB of metadata kept a gigabyte for as long as their sessions."""
    groups = Groups(1000 * KIB)
    await groups.shard.load()
    joined = [groups.join(MALLORY, f"g{number}", bytes(100 * KIB)) for number in range(12)]
    refused = [reply.error for replies in joined for reply in replies if reply.error]
    assert refused == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 8
    assert groups.memory.groups.total <= groups.memory.groups.share_max
    ((theirs,),) = (groups.join(ANN, "theirs", bytes(100 * KIB)),)
    assert theirs.error is ErrorCode.NONE
    groups.shard.leave("theirs", theirs.member_id, None)
    groups.shard.close()
    groups.shard = groups.make()
    groups.check()
    assert groups.memory.groups.total == 0, "all of it came back"


async def test_no_member_subscribes_with_more_than_the_log_could_take() -> None:
    groups = Groups(1000 * KIB * KIB)
    await groups.shard.load()
    (reply,) = groups.join(MALLORY, subscription=bytes(SUBSCRIPTION_BYTES_MAX))
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not groups.shard.groups


async def test_a_member_that_joins_again_claims_only_what_it_says_more() -> None:
    groups = Groups(300 * KIB)
    await groups.shard.load()
    (first,) = groups.join(MALLORY, subscription=bytes(100 * KIB))
    for size, error in (
        (100, ErrorCode.NONE),
        (120, ErrorCode.NONE),
        (200, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ):
        (again,) = groups.join(MALLORY, subscription=bytes(size * KIB), member_id=first.member_id)
        assert again.error is error
    groups.check()
    assert 120 * KIB < groups.memory.groups.total < 130 * KIB


async def test_member_ids_that_were_only_given_out_are_bounded() -> None:
    groups = Groups(200 * KIB)
    await groups.shard.load()
    replies = [groups.join(MALLORY, client_id="c" * 30_000, requires_id=True)[0].error for _ in range(20)]
    assert replies[0] is ErrorCode.MEMBER_ID_REQUIRED
    assert replies[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    group = groups.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert len(group.pending_ids) < 5
    groups.clock.now_ms += 60_000
    group.tick(groups.clock.now_ms)
    groups.check()
    assert groups.memory.groups.total < 5 * KIB


async def test_groups_that_were_left_are_bounded() -> None:
    groups = Groups(200 * KIB)
    await groups.shard.load()
    errors = []
    for number in range(200):
        (reply,) = groups.join(MALLORY, f"g{number}")
        errors.append(reply.error)
        if not reply.error:
            groups.shard.leave(f"g{number}", reply.member_id, None)
    assert errors[0] is ErrorCode.NONE
    assert errors[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    groups.shard.expire()
    groups.check()
    assert groups.memory.groups.total == 0


async def test_the_assignments_of_a_leader_are_bounded() -> None:
    groups = Groups(200 * KIB)
    await groups.shard.load()
    (joined,) = groups.join(MALLORY)
    replies: list[SyncReply] = []

    def sync(plan: Mapping[str, bytes]) -> ErrorCode:
        groups.shard.sync(
            "g", joined.member_id, None, joined.generation, plan, None, None, replies.append, MALLORY
        )
        return replies.pop().error

    assert sync({joined.member_id: bytes(150 * KIB)}) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert sync({"nobody": bytes(150 * KIB), joined.member_id: bytes(50 * KIB)}) is ErrorCode.NONE
    assert 50 * KIB < groups.memory.groups.total < 60 * KIB


@pytest.mark.parametrize(
    "said",
    [
        {"topics": tuple(f"{number:05}".ljust(200, "x") for number in range(500))},
        {"rack_id": "r" * 30_000, "instance_id": "i" * 30_000, "client_id": "c" * 30_000},
        {"regex": f"[{16_000 * 'r'}]", "rack_id": "r" * 30_000, "instance_id": "i" * 30_000},
    ],
)
async def test_members_of_consumer_groups_are_bounded_by_all_that_they_say(said: dict[str, object]) -> None:
    groups = Groups(1000 * KIB)
    await groups.shard.load()
    codes = [of(groups.beat(MALLORY, f"g{number}", **said)) for number in range(20)]
    assert codes[0] is ErrorCode.NONE
    assert codes[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(groups.shard.groups) == codes.count(ErrorCode.NONE)
    assert of(groups.beat(ANN, "theirs")) is ErrorCode.NONE
    groups.check()


async def test_the_partitions_that_consumer_groups_assign_are_bounded() -> None:
    groups = Groups(1000 * KIB, Topics(a=300))
    await groups.shard.load()
    codes = [of(groups.beat(MALLORY, f"g{number}")) for number in range(20)]
    assert codes[0] is ErrorCode.NONE
    assert codes[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("said", [{"topics": ("a" * 30_000, "b" * 30_000)}, {"rack_id": "r" * 30_000}])
async def test_members_of_share_groups_are_bounded_by_all_that_they_say(said: dict[str, object]) -> None:
    groups = Groups(1000 * KIB)
    await groups.shard.load()
    codes = [of(groups.share(MALLORY, f"g{number}", **said)) for number in range(20)]
    assert codes[0] is ErrorCode.NONE
    assert codes[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(groups.shard.groups) == codes.count(ErrorCode.NONE)
    assert of(groups.share(ANN, "theirs")) is ErrorCode.NONE
    taken = groups.memory.groups.total
    assert of(groups.share(ANN, "theirs", epoch=-1)) is ErrorCode.NONE
    assert groups.memory.groups.total < taken
    groups.check()
    groups.shard.close()
    assert groups.memory.groups.total == 0


async def test_the_partitions_of_share_groups_are_bounded() -> None:
    groups = Groups(1000 * KIB, Topics(a=300))
    await groups.shard.load()
    codes = [of(groups.share(MALLORY, f"g{number}")) for number in range(20)]
    assert codes[0] is ErrorCode.NONE
    assert codes[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_the_offsets_of_groups_are_bounded_and_those_there_are_go_on() -> None:
    groups = Groups(200 * KIB)
    await groups.shard.load()
    codes = [groups.commit(MALLORY, f"g{number}", "m" * 4000) for number in range(100)]
    assert codes[0] is ErrorCode.NONE
    assert codes[-1] is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert groups.commit(ANN, "theirs", "m" * 4000) is ErrorCode.NONE
    assert groups.commit(MALLORY, "g0", "n" * 4000, 2) is ErrorCode.NONE
    taken = groups.memory.offsets.total
    # Another coordinator reads them from the log, and counts them.
    groups.shard.close()
    groups.shard = groups.make()
    await groups.shard.load()
    groups.check()
    assert groups.memory.offsets.total == taken
    assert groups.commit(MALLORY, "g0", "n" * 4000, 3) is ErrorCode.NONE
