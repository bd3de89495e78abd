"""Thousands of replicas appear at once: the loop has turns while their logs are made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.dataplane.replication.fetch_values import PartitionKey
from ottla.dataplane.replication.follower.fetching import LeaderSession
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord, TopicRemovedRecord

from .brokers_over_sockets import Broker, Quorum

TOPIC = bytes(range(16))
LATER_TOPIC = b"\xff" * 16
COUNT = 200
A_FEW = 50


async def test_new_replicas_are_made_in_slices_and_all_come_to_be(tmp_path: Path) -> None:
    quorum = Quorum()
    broker = Broker(quorum, 1, 1, tmp_path / "b1", durable=False)
    try:
        partitions = [
            PartitionRecord(topic_id=TOPIC, partition=n, replicas=[1], isr=[1], leader=1)
            for n in range(COUNT)
        ]
        quorum.tell(TopicRecord(topic_id=TOPIC, name="many"), *partitions)
        assert 0 < len(broker.replicas) < A_FEW
        made = {partition.index for partition in broker.replicas}
        missing = next(n for n in range(COUNT) if n not in made)
        with pytest.raises(KafkaError) as refused:
            broker.replicas.get("many", missing)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER  # which makes clients ask again
        async with asyncio.timeout(60):
            before = len(broker.replicas)
            while before < COUNT:
                await asyncio.sleep(0)
                assert len(broker.replicas) - before < A_FEW, "a turn of the loop made too many logs"
                before = len(broker.replicas)
        assert all(broker.replicas.get("many", n).leader is not None for n in range(COUNT))
        broker.replicas.check()
    finally:
        await broker.stop()


async def test_pieces_of_the_feed_share_the_replicas_of_a_turn(tmp_path: Path) -> None:
    """A turn that makes some of thousands of replicas also gets news of more; each piece used to make as many at once.

    A topic that is created meanwhile does not wait for all of these.
    """
    quorum = Quorum()
    broker = Broker(quorum, 1, 1, tmp_path / "b1", durable=False)

    def tell(topic_id: bytes, indexes: range) -> None:
        quorum.tell(
            *(
                PartitionRecord(topic_id=topic_id, partition=n, replicas=[1], isr=[1], leader=1)
                for n in indexes
            )
        )

    try:
        quorum.tell(TopicRecord(topic_id=TOPIC, name="many"))
        for first in range(0, COUNT, 20):
            tell(TOPIC, range(first, first + 20))
        at_once = len(broker.replicas)
        assert 0 < at_once < 20, "the pieces of one turn had more made than one piece may"
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
            tell(TOPIC, range(COUNT, COUNT + 20))
            assert len(broker.replicas) - at_once <= at_once
            await asyncio.sleep(0)
            quorum.tell(TopicRecord(topic_id=LATER_TOPIC, name="one"))
            tell(LATER_TOPIC, range(1))
            assert broker.replicas.get("one", 0).leader is not None
            assert len(broker.replicas) < COUNT
            while len(broker.replicas) < COUNT + 20 + 1:
                await asyncio.sleep(0)
        broker.replicas.check()
    finally:
        await broker.stop()


async def test_a_follower_waits_for_a_log_that_its_leader_still_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum()
    leader = Broker(quorum, 1, 1, tmp_path / "b1", durable=False, lag_ms=60_000)
    follower = Broker(quorum, 2, 1, tmp_path / "b2", durable=False, lag_ms=60_000)
    refused: list[PartitionKey] = []
    monkeypatch.setattr(LeaderSession, "_later", lambda session, key: refused.append(key))
    try:
        # The leader has as many others to make first.
        others = [
            PartitionRecord(topic_id=TOPIC, partition=n, replicas=[1], isr=[1], leader=1)
            for n in range(COUNT)
        ]
        followed = [
            PartitionRecord(topic_id=LATER_TOPIC, partition=n, replicas=[1, 2], isr=[1, 2], leader=1)
            for n in range(COUNT)
        ]
        topics = TopicRecord(topic_id=TOPIC, name="others"), TopicRecord(topic_id=LATER_TOPIC, name="many")
        quorum.tell(*topics, *others, *followed)
        async with asyncio.timeout(60):
            while len(leader.replicas) < 2 * COUNT or not all(
                leader.replicas.get("many", n).leading().followers[2].log_end_offset == 0
                for n in range(COUNT)
            ):
                assert refused == []
                await asyncio.sleep(0.01)
        leader.replicas.check()
        follower.replicas.check()
    finally:
        await leader.stop()
        await follower.stop()


async def test_a_topic_deleted_while_its_replicas_are_made_leaves_none(tmp_path: Path) -> None:
    quorum = Quorum()
    broker = Broker(quorum, 1, 1, tmp_path / "b1", durable=False)
    try:
        partitions = [
            PartitionRecord(topic_id=TOPIC, partition=n, replicas=[1], isr=[1], leader=1)
            for n in range(COUNT)
        ]
        quorum.tell(TopicRecord(topic_id=TOPIC, name="many"), *partitions)
        quorum.tell(TopicRemovedRecord(topic_id=TOPIC))
        for _ in range(COUNT):
            await asyncio.sleep(0)
        assert len(broker.replicas) == 0
        assert not [p for p in (tmp_path / "b1").iterdir() if p.name.startswith("many-") and p.suffix == ""]
    finally:
        await broker.stop()
