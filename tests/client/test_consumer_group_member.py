"""One member of a consumer group (KIP-848), and its reaction to late, lost or faulty answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla import Consumer, RebalanceListener, TopicPartition
from ottla.client.connections.metadata import KnownTopic
from ottla.client.failures import AuthorizationFailed, ConnectionLost
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.wire.schema import Message
from tests.client.fake_coordinator import PLACE, Coordinator, assigned

TOPIC_ID = b"t" * 16


class Broker:
    """A broker that answers heartbeats with `epoch`, and with `given` if that is new or a full answer is requested."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.epoch = 1
        self.given = [0]
        self.beats: list[ConsumerGroupHeartbeatRequest] = []
        self.failing: list[ErrorCode | Exception] = []
        """Errors in place of the next answers."""
        self._told: list[int] | None = None
        coordinator.metadata.topics["t"] = KnownTopic("t", TOPIC_ID, False)
        coordinator.answers[ConsumerGroupHeartbeatRequest] = self._heartbeat

    async def _heartbeat(self, beat: ConsumerGroupHeartbeatRequest) -> Message:
        self.beats.append(beat)
        if self.failing and beat.member_epoch >= 0:
            failure = self.failing.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return ConsumerGroupHeartbeatResponse(error_code=failure)
        news = beat.rebalance_timeout_ms != -1 or self.given != self._told
        self._told = self.given
        places = [TopicPartitions(topic_id=TOPIC_ID, partitions=self.given)]
        return ConsumerGroupHeartbeatResponse(
            member_id=beat.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=1,
            assignment=Assignment(topic_partitions=places) if news else None,
        )

    async def beaten(self, condition: Callable[[ConsumerGroupHeartbeatRequest], bool]) -> None:
        """Wait for a later heartbeat that meets the condition."""
        seen = len(self.beats)
        async with asyncio.timeout(25):
            while not any(condition(beat) for beat in self.beats[seen:]):
                await asyncio.sleep(0.001)


@pytest.fixture
def broker(coordinator: Coordinator) -> Broker:
    return Broker(coordinator)


def member(**options: Any) -> Consumer:
    return Consumer("t", group_id="g", group_protocol="consumer", auto_offset_reset="earliest", **options)


def owned(beat: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if beat.topic_partitions is None:
        return None
    return [index for topic in beat.topic_partitions for index in topic.partitions]


async def test_a_commit_under_a_stale_epoch_is_made_again_under_the_next(
    coordinator: Coordinator, broker: Broker
) -> None:
    async def stale_at_first(request: OffsetCommitRequest) -> Message:
        coordinator.commits.append(request)
        code = ErrorCode.STALE_MEMBER_EPOCH if request.generation_id_or_member_epoch < 2 else ErrorCode.NONE
        broker.epoch = 2
        done = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[done])])

    coordinator.answers[OffsetCommitRequest] = stale_at_first
    async with member() as consumer:
        await assigned(consumer)
        await consumer.commit({PLACE: 3})
        assert [commit.generation_id_or_member_epoch for commit in coordinator.commits] == [1, 2]
        assert consumer.group_metadata().generation == 2
        assert {commit.member_id for commit in coordinator.commits} == {consumer.group_metadata().member_id}


async def test_a_stale_commit_is_not_made_again_for_a_partition_that_was_given_up(
    coordinator: Coordinator, broker: Broker
) -> None:
    """The commit of the partition's next owner was undone, since a coordinator compares epochs, not ownership."""
    consumer = member(enable_auto_commit=False)

    async def stale(request: OffsetCommitRequest) -> Message:
        coordinator.commits.append(request)
        code = ErrorCode.NONE
        if request.generation_id_or_member_epoch < 2:
            code, broker.epoch, broker.given = ErrorCode.STALE_MEMBER_EPOCH, 2, []
            await broker.beaten(lambda beat: owned(beat) == [])
        done = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[done])])

    coordinator.answers[OffsetCommitRequest] = stale
    async with consumer:
        await assigned(consumer)
        await broker.beaten(lambda beat: beat.topic_partitions is None)
        async with asyncio.timeout(25):
            with pytest.raises(KafkaError) as caught:
                await consumer.commit({PLACE: 3})
    assert caught.value.code is ErrorCode.STALE_MEMBER_EPOCH
    assert [commit.generation_id_or_member_epoch for commit in coordinator.commits] == [1]


async def test_what_is_lost_on_the_way_is_said_again_in_full_and_costs_no_partition(
    coordinator: Coordinator, broker: Broker
) -> None:
    async with member(max_poll_interval_ms=77_000, client_rack="r") as consumer:
        await assigned(consumer)
        await broker.beaten(lambda beat: beat.topic_partitions is None)
        for failure in (
            ConnectionLost("x"),
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            broker.failing = [failure]
            await broker.beaten(
                lambda beat: (
                    (beat.member_epoch, beat.rebalance_timeout_ms, beat.rack_id, beat.subscribed_topic_names)
                    == (1, 77_000, "r", ["t"])
                    and owned(beat) == [0]
                )
            )
        assert consumer.assignment() == {PLACE}
        assert coordinator.asked.count("FindCoordinatorRequest") >= 4
    assert (broker.beats[-1].member_epoch, broker.beats[-1].instance_id) == (-1, None)


async def test_who_is_fenced_gives_up_all_and_joins_anew_with_nothing(
    coordinator: Coordinator, broker: Broker
) -> None:
    events: list[str] = []

    class SlowToGiveUp(RebalanceListener):
        async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
            events.append(f"lost {len(broker.beats)}")
            await asyncio.sleep(0.01)
            events.append(f"given up {len(broker.beats)}")

    consumer = member()
    consumer.subscribe(["t"], listener=SlowToGiveUp())
    async with consumer:
        await assigned(consumer)
        for code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            broker.failing = [code]
            await broker.beaten(lambda beat: beat.member_epoch == 0 and owned(beat) == [])
            await assigned(consumer)
    lost, given_up, *_ = (event.split()[-1] for event in events)
    assert lost == given_up, "nothing is said before everything is given up"
    assert len({beat.member_id for beat in broker.beats}) == 1


async def test_a_partition_is_said_to_be_free_when_it_is_given_up_and_not_before(
    coordinator: Coordinator, broker: Broker
) -> None:
    giving_up, go_on = asyncio.Event(), asyncio.Event()

    class Slow(RebalanceListener):
        def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[Any]:
            giving_up.set()
            return go_on.wait()

    consumer = member()
    consumer.subscribe(["t"], listener=Slow())
    async with consumer:
        await assigned(consumer)
        await broker.beaten(lambda beat: beat.topic_partitions is None)
        seen = len(broker.beats)
        broker.given = []
        await giving_up.wait()
        for _ in range(3):  # Heartbeats go on meanwhile.
            await broker.beaten(lambda beat: True)
        assert all(owned(beat) in (None, [0]) for beat in broker.beats[seen:])
        go_on.set()
        await broker.beaten(lambda beat: owned(beat) == [])
        assert consumer.assignment() == set()


async def test_a_static_member_says_that_it_will_be_back(coordinator: Coordinator, broker: Broker) -> None:
    async with member(group_instance_id="i") as consumer:
        await assigned(consumer)
    assert {beat.instance_id for beat in broker.beats} == {"i"}
    assert broker.beats[-1].member_epoch == -2


class AwayForLong:
    """A consumer that the group has lost, up to the coordinator's answer to its leave request."""

    def __init__(self, coordinator: Coordinator, broker: Broker) -> None:
        self.leaving, self.meanwhile = asyncio.Event(), asyncio.Event()
        self._heartbeat = coordinator.answers[ConsumerGroupHeartbeatRequest]
        coordinator.answers[ConsumerGroupHeartbeatRequest] = self._answer
        self._broker = broker

    async def _answer(self, beat: ConsumerGroupHeartbeatRequest) -> Message:
        if beat.member_epoch < 0:
            self.leaving.set()
            await self.meanwhile.wait()
        return await self._heartbeat(beat)


async def test_a_member_that_says_goodbye_takes_nothing_over(
    coordinator: Coordinator, broker: Broker
) -> None:
    """The coordinator gives all its partitions to others. The name of a topic arrived while it was leaving."""
    away = AwayForLong(coordinator, broker)
    asked = asyncio.Event()
    del coordinator.metadata.topics["t"]

    async def names(_request: MetadataRequest) -> MetadataResponse:
        asked.set()
        await away.leaving.wait()
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=TOPIC_ID)])

    coordinator.ask_any = names  # type: ignore[attr-defined]
    async with asyncio.timeout(25), member(max_poll_interval_ms=30) as consumer:
        await asked.wait()
        await away.leaving.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        taken_over = consumer.assignment()
        away.meanwhile.set()
    assert not taken_over


async def test_what_was_being_taken_over_as_a_member_left_is_not_read(
    coordinator: Coordinator, broker: Broker
) -> None:
    """The listener ended while the member was leaving, and then the partition was read like any other."""
    away = AwayForLong(coordinator, broker)
    noted, go_on = asyncio.Event(), asyncio.Event()

    class Slow(RebalanceListener):
        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            noted.set()
            await go_on.wait()

    consumer = member(max_poll_interval_ms=30)
    consumer.subscribe(["t"], listener=Slow())
    async with asyncio.timeout(25), consumer:
        await noted.wait()
        await away.leaving.wait()
        go_on.set()
        for _ in range(100):
            await asyncio.sleep(0)
        is_read = not consumer._fetcher.assigned[PLACE].held
        away.meanwhile.set()
        assert not is_read
        while PLACE in consumer.assignment():
            await asyncio.sleep(0.001)
        reading = asyncio.ensure_future(consumer.getmany(timeout_ms=None))
        await assigned(consumer)
        while consumer._fetcher.assigned[PLACE].held:
            await asyncio.sleep(0.001)
        reading.cancel()


async def test_a_coordinator_that_denies_a_topic_ends_no_membership(
    coordinator: Coordinator, broker: Broker
) -> None:
    """A right may be revoked between the check of the topics and the heartbeat; as in Java, it may come back."""
    broker.failing = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    async with member() as consumer, asyncio.timeout(25):
        with pytest.raises(AuthorizationFailed, match="DESCRIBE on topic 't'") as raised:
            while True:
                await consumer.getmany(timeout_ms=10)
        assert raised.value.resource == "topic 't'"
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=10)
