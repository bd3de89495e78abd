"""Members whose program does not come back for records: the notifications to group and program, and their times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.consumer import Consumer
from ottla.client.consuming.group_metadata import ConsumerGroupMetadata
from ottla.client.consuming.membership.listener import RebalanceListener
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import LeaveGroupRequest
from ottla.protocol.messages.offsets import OffsetCommitRequest
from ottla.protocol.wire.schema import Message
from tests.client.fake_coordinator import PLACE, Coordinator, assigned, member


class PausingListener(RebalanceListener):
    """A listener that notes notifications among the coordinator's requests, and pauses all partitions: none could be
    read, but a program that does not poll still counts as absent.
    """

    def __init__(self, coordinator: Coordinator, consumer: Consumer) -> None:
        self._asked = coordinator.asked
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self._consumer.pause(*partitions)

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self._asked.append("revoked")

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self._asked.append("lost")


def impatient(coordinator: Coordinator, **options: Any) -> Consumer:
    consumer = member(max_poll_interval_ms=30, **options)
    consumer.subscribe(["t"], listener=PausingListener(coordinator, consumer))
    return consumer


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(25):
        while not condition():
            await asyncio.sleep(0.001)


def story(coordinator: Coordinator) -> list[str]:
    notable = {"JoinGroupRequest", "LeaveGroupRequest", "revoked", "lost"}
    return [request.removesuffix("Request") for request in coordinator.asked if request in notable]


async def test_the_partitions_are_lost_and_the_group_is_joined_again_by_the_next_read(
    coordinator: Coordinator,
) -> None:
    async with impatient(coordinator) as consumer:
        await until(lambda: "lost" in coordinator.asked)
        assert story(coordinator) == ["JoinGroup", "LeaveGroup", "lost"]
        beats = len(coordinator.asked)
        await asyncio.sleep(0.05)
        assert len(coordinator.asked) == beats, "no join or heartbeat is sent for an absent program"
        assert not consumer.assignment()
        reading = asyncio.ensure_future(consumer.getmany(timeout_ms=None))
        await assigned(consumer)
        await until(lambda: len(coordinator.asked) > beats + 100)
        assert story(coordinator)[3:] == ["JoinGroup"], "a program that waits in a read is present"
        reading.cancel()


async def test_what_it_would_commit_is_refused_and_what_it_is_taken_for_is_fenced(
    coordinator: Coordinator,
) -> None:
    """The coordinator would accept transactional offsets without a member id."""
    async with impatient(coordinator) as consumer:
        await until(lambda: "lost" in coordinator.asked)
        with pytest.raises(
            KafkaError, match=r"max_poll_interval_ms \(30 ms\), so this consumer has left"
        ) as e:
            await consumer.commit()
        assert e.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert consumer.group_metadata() == ConsumerGroupMetadata("g", 1, "me")
    assert not coordinator.commits


async def test_a_static_member_keeps_its_place_until_the_session_ends(coordinator: Coordinator) -> None:
    async with impatient(coordinator, group_instance_id="a"):
        await until(lambda: "lost" in coordinator.asked)
        assert story(coordinator) == ["JoinGroup", "lost"]


async def test_who_stops_without_coming_back_waits_for_nothing(coordinator: Coordinator) -> None:
    async with asyncio.timeout(25):
        async with impatient(coordinator, enable_auto_commit=True, auto_commit_interval_ms=1):
            await until(lambda: "lost" in coordinator.asked)
    assert story(coordinator) == ["JoinGroup", "LeaveGroup", "lost"]


async def test_a_program_that_comes_back_while_the_group_is_being_left_joins_again(
    coordinator: Coordinator,
) -> None:
    leaving, go_on = asyncio.Event(), asyncio.Event()

    async def leave_slowly(message: LeaveGroupRequest) -> Message:
        leaving.set()
        await go_on.wait()
        return coordinator.usual(message)

    coordinator.answers[LeaveGroupRequest] = leave_slowly
    async with asyncio.timeout(25), impatient(coordinator) as consumer:
        await leaving.wait()
        reading = asyncio.ensure_future(consumer.getmany(timeout_ms=None))
        await asyncio.sleep(0)
        go_on.set()
        await until(lambda: coordinator.asked.count("JoinGroupRequest") == 2)
        await assigned(consumer)
        reading.cancel()


async def test_a_rebalance_waits_for_no_program_that_waits_for_a_commit(coordinator: Coordinator) -> None:
    committing, go_on = asyncio.Event(), asyncio.Event()

    async def commit_slowly(message: OffsetCommitRequest) -> Message:
        committing.set()
        await go_on.wait()
        return coordinator.usual(message)

    coordinator.answers[OffsetCommitRequest] = commit_slowly
    async with asyncio.timeout(25), member() as consumer:
        await assigned(consumer)
        commit = asyncio.ensure_future(consumer.commit({PLACE: 8}))
        await committing.wait()
        coordinator.generation += 1  # Another member joins.
        await until(lambda: coordinator.asked.count("SyncGroupRequest") == 2)
        await assigned(consumer)
        assert not commit.done()
        go_on.set()
        await commit
