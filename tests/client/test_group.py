"""Members of classic groups: the generation of their commits, and their start offsets, despite interruptions."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.consuming.membership.subscription import encode_assignment
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.wire.schema import Message
from tests.client.fake_coordinator import COMMITTED, PLACE, Coordinator, assigned, member


async def test_a_member_commits_in_the_generation_in_which_it_was_given_its_partitions(
    coordinator: Coordinator,
) -> None:
    """A member between JoinGroup and SyncGroup still has partitions of the previous generation, whose next owner may
    have begun.
    """
    syncing, go_on = asyncio.Event(), asyncio.Event()

    async def sync_slowly(message: SyncGroupRequest) -> Message:
        syncing.set()
        await go_on.wait()
        return coordinator.usual(message)

    async with member() as consumer:
        await assigned(consumer)
        coordinator.answers[SyncGroupRequest] = sync_slowly
        coordinator.generation += 1  # Another member joins, so this member has to join again, too.
        async with asyncio.timeout(25):
            await syncing.wait()
        await consumer.commit({PLACE: 3})
        go_on.set()
        async with asyncio.timeout(25):
            while coordinator.commits[-1].generation_id_or_member_epoch == 1:
                await asyncio.sleep(0.001)
                await consumer.commit({PLACE: 4})
    assert {each.generation_id_or_member_epoch for each in coordinator.commits} == {1, 3}


async def test_who_was_thrown_out_commits_nothing(coordinator: Coordinator) -> None:
    """A commit without a generation would be taken for an administrator's, in a group without members."""
    out, joining = asyncio.Event(), asyncio.Event()

    async def throw_out(_: HeartbeatRequest) -> Message:
        return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

    async def join_never(_: JoinGroupRequest) -> Message:
        out.set()
        await joining.wait()
        raise AssertionError

    async with member() as consumer:
        await assigned(consumer)
        coordinator.answers = {HeartbeatRequest: throw_out, JoinGroupRequest: join_never}
        async with asyncio.timeout(25):
            await out.wait()
        with pytest.raises(KafkaError) as refused:
            await consumer.commit({PLACE: 3})
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert not coordinator.commits


async def test_a_member_that_cannot_learn_where_to_begin_asks_again(coordinator: Coordinator) -> None:
    """The member would otherwise own the partition and never read it."""
    refusals = 3

    async def refuse(message: OffsetFetchRequest) -> Message:
        nonlocal refusals
        refusals -= 1
        if refusals < 0:
            return coordinator.usual(message)
        return OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    coordinator.answers[OffsetFetchRequest] = refuse
    async with member() as consumer:
        await assigned(consumer)
        with pytest.raises(KafkaError, match="offset fetch"):
            await consumer.getmany(timeout_ms=10_000)
        async with asyncio.timeout(25):
            while True:
                try:
                    assert await consumer.position(PLACE) == COMMITTED
                    break
                except KafkaError:
                    continue


async def test_who_reads_what_is_committed_begins_behind_no_open_transaction(
    coordinator: Coordinator,
) -> None:
    """Another member's transaction may still move the offset: earlier records would be read twice (KIP-447)."""
    asked: list[bool] = []

    async def unstable(message: OffsetFetchRequest) -> Message:
        asked.append(message.require_stable)
        if len(asked) > 3:
            return coordinator.usual(message)
        partition = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])])

    coordinator.answers[OffsetFetchRequest] = unstable
    async with asyncio.timeout(25), member(isolation_level="read_committed") as consumer:
        await assigned(consumer)
        assert await consumer.position(PLACE) == COMMITTED
    assert asked == [True] * 4


async def test_nobody_waits_for_the_position_of_a_partition_that_is_somebody_elses(
    coordinator: Coordinator,
) -> None:
    async def refuse(_message: OffsetFetchRequest) -> Message:
        return OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def nothing(_message: SyncGroupRequest) -> Message:
        return SyncGroupResponse(assignment=encode_assignment({}))

    coordinator.answers[OffsetFetchRequest] = refuse
    async with asyncio.timeout(25), member() as consumer:
        await assigned(consumer)
        waiting = asyncio.create_task(consumer.position(PLACE))
        coordinator.answers[SyncGroupRequest] = nothing
        coordinator.generation += 1
        with pytest.raises(ValueError, match="t-0 is not assigned"):
            await waiting
