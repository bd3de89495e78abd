"""Partitions that change their owner: guarantees for a listener, and reads meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.consumer import Consumer
from ottla.client.consuming.membership.listener import RebalanceListener
from ottla.client.consuming.membership.subscription import decode_subscription, sticky_claim
from ottla.client.failures import ConnectionLost
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest
from ottla.protocol.messages.offsets import OffsetCommitRequest
from ottla.protocol.wire.schema import Message
from tests.client.fake_coordinator import COMMITTED, PLACE, Coordinator

OTHER = TopicPartition("t", 1)


class NotedListener(RebalanceListener):
    """A listener that notes its notifications among the coordinator's requests; tests replace its methods."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.consumer: Consumer

    def note(self, what: str, partitions: set[TopicPartition]) -> None:
        self._coordinator.asked.append(f"{what} {sorted(partition.partition for partition in partitions)}")

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Any:
        self.note("assigned", partitions)

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Any:
        self.note("revoked", partitions)

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Any:
        self.note("lost", partitions)


def member(listener: NotedListener, *strategies: str, reset: Any = "earliest", **options: Any) -> Consumer:
    consumer = listener.consumer = Consumer(
        group_id="g",
        heartbeat_interval_ms=1,
        auto_offset_reset=reset,
        partition_assignment_strategy=strategies or ("range", "cooperative-sticky"),
        **options,
    )
    consumer.subscribe(["t"], listener=listener)
    return consumer


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(25):
        while not condition():
            await asyncio.sleep(0.001)


def story(coordinator: Coordinator) -> list[str]:
    """Return the events without repeated requests."""
    quiet = {"HeartbeatRequest", "FindCoordinatorRequest", "OffsetFetchRequest"}
    return [request.removesuffix("Request") for request in coordinator.asked if request not in quiet]


async def test_eager_members_give_up_everything_before_they_join(coordinator: Coordinator) -> None:
    listener = NotedListener(coordinator)
    async with member(listener) as consumer:
        await until(lambda: "assigned [0]" in coordinator.asked)
        coordinator.given = [0, 1]
        coordinator.generation += 1
        await until(lambda: consumer.assignment() == {PLACE, OTHER})
    assert story(coordinator) == [
        *("JoinGroup", "SyncGroup", "assigned [0]"),
        *("revoked [0]", "JoinGroup", "SyncGroup", "assigned [0, 1]"),
        *("revoked [0, 1]", "LeaveGroup"),
    ]


async def test_cooperative_members_keep_what_they_may_and_join_again_for_what_goes(
    coordinator: Coordinator,
) -> None:
    joins: list[JoinGroupRequest] = []

    async def join(message: JoinGroupRequest) -> Message:
        joins.append(message)
        return coordinator.usual(message)

    coordinator.answers[JoinGroupRequest] = join
    coordinator.given = [0, 1]
    async with member(NotedListener(coordinator), "cooperative-sticky") as consumer:
        await until(lambda: consumer.assignment() == {PLACE, OTHER})
        consumer.seek(PLACE, 40)
        coordinator.given = [0]
        coordinator.generation += 1
        await until(lambda: len(joins) == 3 and coordinator.asked[-1] == "HeartbeatRequest")
        assert await consumer.position(PLACE) == 40, "kept, not restarted"
    assert story(coordinator) == [
        *("JoinGroup", "SyncGroup", "assigned [0, 1]"),
        *("JoinGroup", "SyncGroup", "revoked [1]", "assigned []"),
        *("JoinGroup", "SyncGroup", "assigned []"),
        *("revoked [0]", "LeaveGroup"),
    ]
    claims = [decode_subscription(join.protocols[0].metadata).owned for join in joins]
    assert [(claim.generation, set(claim.partitions)) for claim in claims] == [
        (-1, set()),
        (1, {PLACE, OTHER}),
        (3, {PLACE}),
    ]


async def test_one_assignor_that_is_not_cooperative_makes_all_eager(coordinator: Coordinator) -> None:
    async with member(NotedListener(coordinator), "cooperative-sticky", "sticky"):
        await until(lambda: "assigned [0]" in coordinator.asked)
        coordinator.generation += 1
        await until(lambda: coordinator.asked.count("assigned [0]") == 2)
    assert "revoked [0]" in coordinator.asked[: coordinator.asked.index("JoinGroupRequest", 4)]


async def test_the_sticky_assignor_is_told_what_was_given_up(coordinator: Coordinator) -> None:
    joins: list[JoinGroupRequest] = []

    async def join(message: JoinGroupRequest) -> Message:
        joins.append(message)
        return coordinator.usual(message)

    coordinator.answers[JoinGroupRequest] = join
    async with member(NotedListener(coordinator), "sticky"):
        await until(lambda: "assigned [0]" in coordinator.asked)
        coordinator.generation += 1
        await until(lambda: len(joins) == 2)
    subscription = decode_subscription(joins[1].protocols[0].metadata)
    assert not subscription.owned.partitions
    assert sticky_claim(subscription) == (1, (PLACE,))


async def test_a_listener_commits_for_what_it_gives_up(coordinator: Coordinator) -> None:
    """The listener commits in the generation in which the member owned its partitions, also when the member leaves."""

    class Committing(NotedListener):
        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            await self.consumer.commit(dict.fromkeys(partitions, 12))
            self.note("committed", partitions)

    async with member(Committing(coordinator)):
        await until(lambda: "assigned [0]" in coordinator.asked)
        coordinator.generation += 1
        await until(lambda: coordinator.asked.count("assigned [0]") == 2)
    assert [commit.generation_id_or_member_epoch for commit in coordinator.commits] == [1, 3]
    assert story(coordinator)[3:6] == ["OffsetCommit", "committed [0]", "JoinGroup"]
    assert story(coordinator)[-3:] == ["OffsetCommit", "committed [0]", "LeaveGroup"]


async def test_a_commit_that_is_repeated_does_not_undo_a_later_one(coordinator: Coordinator) -> None:
    """The automatic commit and the program's commit use one connection, and each is repeated when that breaks.

    The partition's next owner started with records that the program had committed.
    """
    asked, lost = asyncio.Event(), asyncio.Event()

    async def losing(request: OffsetCommitRequest) -> Message:
        if not asked.is_set():
            asked.set()
            await lost.wait()
            raise ConnectionLost("the coordinator was stopped")
        return coordinator.usual(request)

    coordinator.answers[OffsetCommitRequest] = losing
    async with member(NotedListener(coordinator), enable_auto_commit=False) as consumer:
        await until(lambda: "assigned [0]" in coordinator.asked)
        first = asyncio.ensure_future(consumer.commit({PLACE: 8}))
        await asked.wait()
        second = asyncio.ensure_future(consumer.commit({PLACE: 9}))
        for _ in range(20):
            await asyncio.sleep(0)
        lost.set()
        await asyncio.gather(first, second)
    committed = [commit.topics[0].partitions[0].committed_offset for commit in coordinator.commits]
    assert committed == [8, 9]


async def test_a_listener_seeks_before_anything_is_read(coordinator: Coordinator) -> None:
    class Seeking(NotedListener):
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            assert await self.consumer.position(PLACE) == COMMITTED
            self.consumer.seek(PLACE, 30)
            self.note("assigned", partitions)

    async with member(Seeking(coordinator), reset="none") as consumer:
        await until(lambda: "assigned [0]" in coordinator.asked)
        assert await consumer.position(PLACE) == 30


async def test_what_a_listener_raises_is_told_to_who_polls_and_nothing_else_goes_wrong(
    coordinator: Coordinator,
) -> None:
    class Failing(NotedListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            raise LookupError("assigned")

        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            raise LookupError("revoked")

    consumer = member(Failing(coordinator))
    await consumer.start()
    with pytest.raises(LookupError, match="assigned"):
        await consumer.getmany(timeout_ms=10_000)
    assert consumer.assignment() == {PLACE}
    coordinator.generation += 1
    for what in ("revoked", "assigned"):
        with pytest.raises(LookupError, match=what):
            await consumer.getmany(timeout_ms=10_000)
    assert await consumer.position(PLACE) == COMMITTED
    with pytest.raises(LookupError, match="revoked"):
        await consumer.stop()
    assert coordinator.asked[-1] == "LeaveGroupRequest"


async def test_a_member_that_was_thrown_out_has_lost_its_partitions(coordinator: Coordinator) -> None:
    refused: list[ErrorCode] = []

    class Committing(NotedListener):
        async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
            self.note("lost", partitions)
            try:
                await self.consumer.commit({PLACE: 1})
            except KafkaError as error:
                refused.append(error.code)

    async def throw_out(_: HeartbeatRequest) -> Message:
        del coordinator.answers[HeartbeatRequest]
        return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

    async with member(Committing(coordinator), "cooperative-sticky"):
        await until(lambda: "assigned [0]" in coordinator.asked)
        coordinator.answers[HeartbeatRequest] = throw_out
        await until(lambda: coordinator.asked.count("assigned [0]") == 2)
    assert refused == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert story(coordinator)[3:6] == ["lost [0]", "JoinGroup", "SyncGroup"]


async def test_a_static_member_that_is_replaced_loses_everything_for_good(coordinator: Coordinator) -> None:
    async def fence(_: HeartbeatRequest) -> Message:
        return HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)

    async with member(NotedListener(coordinator), group_instance_id="a") as consumer:
        await until(lambda: "assigned [0]" in coordinator.asked)
        coordinator.answers[HeartbeatRequest] = fence
        await until(lambda: "lost [0]" in coordinator.asked)
        for _ in range(2):
            with pytest.raises(KafkaError) as failure:
                await consumer.getmany(timeout_ms=10_000)
            assert failure.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert story(coordinator) == ["JoinGroup", "SyncGroup", "assigned [0]", "lost [0]"]


async def test_a_slow_listener_costs_no_membership_and_is_not_interrupted(coordinator: Coordinator) -> None:
    go_on = asyncio.Event()

    class Slow(NotedListener):
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            self.note("told", partitions)
            await go_on.wait()
            self.note("done", partitions)

    consumer = member(Slow(coordinator))
    await consumer.start()
    await until(lambda: "told [0]" in coordinator.asked and coordinator.asked.count("HeartbeatRequest") >= 3)
    stopping = asyncio.ensure_future(consumer.stop())
    await until(lambda: coordinator.asked.count("HeartbeatRequest") >= 3)
    assert not stopping.done()
    go_on.set()
    await stopping
    assert story(coordinator)[2:] == ["told [0]", "done [0]", "revoked [0]", "LeaveGroup"]


async def test_a_moved_coordinator_takes_nothing_away(coordinator: Coordinator) -> None:
    async def moved(_: HeartbeatRequest) -> Message:
        del coordinator.answers[HeartbeatRequest]
        return HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)

    async with member(NotedListener(coordinator)):
        await until(lambda: "assigned [0]" in coordinator.asked)
        coordinator.answers[HeartbeatRequest] = moved
        await until(lambda: HeartbeatRequest not in coordinator.answers)
        beats = coordinator.asked.count("HeartbeatRequest")
        await until(lambda: coordinator.asked.count("HeartbeatRequest") > beats + 1)
    assert story(coordinator) == ["JoinGroup", "SyncGroup", "assigned [0]", "revoked [0]", "LeaveGroup"]


async def test_what_is_subscribed_and_what_is_assigned_by_hand_exclude_each_other(
    coordinator: Coordinator,
) -> None:
    async with member(NotedListener(coordinator)) as consumer:
        assert consumer.subscription() == {"t"}
        with pytest.raises(ValueError, match="subscription"):
            consumer.assign([PLACE])
        with pytest.raises(ValueError, match="topics or a pattern"):
            consumer.subscribe(["t"], pattern="t.*")
        with pytest.raises(ValueError, match="topics or a pattern"):
            consumer.subscribe()
        await until(lambda: "assigned [0]" in coordinator.asked)
        leaving = consumer.unsubscribe()
        with pytest.raises(ValueError, match="await unsubscribe"):
            consumer.assign([PLACE])
        await leaving
        assert story(coordinator)[-2:] == ["revoked [0]", "LeaveGroup"]
        assert not consumer.subscription() | consumer.assignment()  # type: ignore[operator]
        consumer.assign([OTHER])
        assert await consumer.position(OTHER) == COMMITTED
        with pytest.raises(ValueError, match="by hand"):
            consumer.subscribe(["t"])
        await consumer.unsubscribe()
        consumer.subscribe("t")
        await until(lambda: consumer.assignment() == {PLACE})
