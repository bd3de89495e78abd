"""A copy that is promoted at a cut: the end of its log is searched for in turns of the loop, and then it leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ottla.dataplane.log import PartitionLog
from ottla.dataplane.log.storage_errors import BrokenBatch, damage
from ottla.dataplane.replication.replicas import cut_searches
from ottla.dataplane.replication.replicas.cut_searches import BATCHES_PER_TURN
from ottla.protocol.cluster.mirror_table import MirrorPhase
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord, TopicRemovedRecord
from ottla.protocol.messages.mirror_records import (
    MirrorPartitionRecord,
    MirrorRecord,
    MirrorTopicRecord,
    SourceEpoch,
)
from ottla.protocol.records.record import ControlRecord, ControlType, encode_control_batch
from ottla.protocol.records.record_batch import patch_offset_and_epoch
from tests.dataplane.log.batches import make_batch

from .brokers_over_sockets import Broker, Quorum
from .harness import TOPIC_ID

CUT = 5
MARKER = 3 * BATCHES_PER_TURN
END = MARKER + BATCHES_PER_TURN
DEADLINE_S = 60.0


class Promotion:
    """A copy with a long tail after its cut, whose mirror is promoted there."""

    def __init__(self, folder: Path) -> None:
        self.quorum = Quorum()
        self.broker = Broker(self.quorum, 1, 1, folder, durable=False)
        self.quorum.tell(
            MirrorRecord(name="m", source_cluster_id="there", topics="t", phase=MirrorPhase.ACTIVE),
            TopicRecord(topic_id=TOPIC_ID, name="t"),
            MirrorTopicRecord(topic_id=TOPIC_ID, mirror="m", source_topic_id=b"s" * 16),
            PartitionRecord(topic_id=TOPIC_ID, partition=0, replicas=[1], isr=[1], leader=1),
        )
        for offset in range(END):
            batch = _marker() if offset == MARKER else make_batch(1)
            patch_offset_and_epoch(batch, 0, offset, 9)
            self.broker.partition.append_copied(memoryview(batch))

    def begin(self, leader: int = 1) -> None:
        self.quorum.tell(
            MirrorPartitionRecord(
                topic_id=TOPIC_ID,
                partition=0,
                lineage=[SourceEpoch(epoch=9, start_offset=0)],
                promoted_epoch=1,
                resumed_epoch=1,
                resumed_offset=CUT,
            ),
            MirrorRecord(name="m", source_cluster_id="there", topics="t", phase=MirrorPhase.PROMOTED),
            self.quorum.partition(leader=leader, leader_epoch=1),
        )


def _marker() -> bytearray:
    marker = ControlRecord(ControlType.COMMIT, 1, 77)
    return bytearray(encode_control_batch(marker, timestamp_ms=1, producer_id=5, producer_epoch=0))


async def until(condition: Callable[[], object]) -> int:
    """Return the number of loop turns until the condition held."""
    turns = 0
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0)
            turns += 1
    return turns


@pytest_asyncio.fixture
async def promotion(tmp_path: Path) -> AsyncIterator[Promotion]:
    promotion = Promotion(tmp_path)
    yield promotion
    await promotion.broker.stop()


async def test_nobody_leads_until_the_end_is_found_and_the_loop_has_its_turns(promotion: Promotion) -> None:
    partition = promotion.broker.partition
    promotion.begin()
    assert partition.leader is None
    with pytest.raises(KafkaError) as refused:
        partition.leading()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    promotion.broker.replicas.check()
    assert await until(lambda: partition.leader is not None) >= MARKER / BATCHES_PER_TURN
    assert (partition.leader_epoch, partition.log.log_end_offset) == (1, MARKER)
    assert partition.log.leader_epochs.start_of(1) == MARKER
    promotion.broker.replicas.check()


async def test_a_copy_without_a_marker_behind_the_cut_keeps_all(promotion: Promotion) -> None:
    partition = promotion.broker.partition
    partition.go_on_at(MARKER)
    promotion.quorum.tell(promotion.quorum.partition())
    promotion.begin()
    await until(lambda: partition.leader is not None)
    assert partition.log.log_end_offset == MARKER


async def test_who_is_to_follow_meanwhile_follows(promotion: Promotion) -> None:
    partition, quorum = promotion.broker.partition, promotion.quorum
    promotion.begin()
    quorum.tell(quorum.partition(leader=2, replicas=[1, 2], isr=[1, 2], leader_epoch=2))
    for _ in range(10 * END // BATCHES_PER_TURN):
        await asyncio.sleep(0)
    assert (partition.leader, partition.log.log_end_offset) == (None, END)
    assert partition.follower is not None
    quorum.tell(quorum.partition(leader=1, leader_epoch=3))
    await until(lambda: partition.leader is not None)
    assert partition.log.log_end_offset == MARKER


async def test_a_topic_may_be_deleted_meanwhile(promotion: Promotion) -> None:
    promotion.begin()
    promotion.quorum.tell(TopicRemovedRecord(topic_id=TOPIC_ID))
    for _ in range(10 * END // BATCHES_PER_TURN):
        await asyncio.sleep(0)
    assert (len(promotion.broker.replicas), list(promotion.broker.replicas.offline)) == (0, [])


async def test_a_log_that_cannot_be_read_goes_offline(
    promotion: Promotion, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Any] = []

    def broken(log: PartitionLog, offset: int, batches_max: int) -> tuple[int | None, int]:
        raise damage(log.directory, 0, "it is torn") from BrokenBatch(0, "it is torn")

    monkeypatch.setattr(cut_searches, "look_for_marker", broken)
    monkeypatch.setattr(promotion.quorum, "_lose", lost.append)
    promotion.begin()
    await until(lambda: lost)
    assert list(promotion.broker.replicas.offline) == [(TOPIC_ID, 0)]
