"""Idle replicas are not checked repeatedly; each changed replica is, by all its observers."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from ottla.dataplane.quorum.log_end_reports import ReportedLogEnds
from ottla.dataplane.replication.replicas.isr_upkeep import LaggingLeaders
from ottla.dataplane.replication.replicas.replicas import Replicas
from ottla.dataplane.replication.roles.leader import LeaderState
from ottla.dataplane.storage.log_store import LogStore
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRemovedRecord

from .harness import LAG_MS, ReplicasByHand
from .test_restarts import NEW_TOPIC, OLD_TOPIC, broker, fold, produce, topic


class Told:
    """The reports to the quorum's leader, compared with a walk over all logs."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._reported = ReportedLogEnds(lambda: replicas.log_ends)

    def news(self) -> dict[bytes, tuple[int, int]]:
        """Return the news by topic."""
        news = self._reported.next_piece(image_offset=1)
        return {progress.topic_id: (progress.leader_epoch, progress.log_end_offset) for progress in news}


async def test_the_quorum_hears_of_logs_that_come_grow_and_go(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        reports = Told(replicas)
        replicas.image_changed(image, fold(image, *topic(OLD_TOPIC)))
        assert reports.news() == {OLD_TOPIC: (0, 0)}
        produce(replicas, 3)
        assert reports.news() == {OLD_TOPIC: (0, 3)}
        assert reports.news() == {}
        replicas.image_changed(
            image, fold(image, TopicRemovedRecord(topic_id=OLD_TOPIC), *topic(leader_epoch=4))
        )
        assert reports.news() == {NEW_TOPIC: (4, 0)}
        lost = replicas.get("t", 0)
        replicas.take_offline([(NEW_TOPIC, 0)])
        assert reports.news() == {}
        assert lost.leader is None
        replicas.offline.discard((NEW_TOPIC, 0))
        replicas.look_again((NEW_TOPIC, 0))
        assert reports.news() == {NEW_TOPIC: (4, 0)}, "the same end, of a log that was gone meanwhile"


async def test_a_new_leadership_of_an_empty_log_is_news(tmp_path: Path) -> None:
    """The epoch of its last record is then the leadership's epoch."""
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        reports = Told(replicas)
        replicas.image_changed(image, fold(image, *topic()))
        assert reports.news() == {NEW_TOPIC: (0, 0)}
        later = PartitionRecord(
            topic_id=NEW_TOPIC,
            partition=0,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=3,
            partition_epoch=1,
        )
        replicas.image_changed(image, fold(image, later))
        assert reports.news() == {NEW_TOPIC: (3, 0)}


# ---------------------------------------------------------------- the ISR


def test_time_changes_nothing_of_a_settled_leadership(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    partition = cluster[1].partition
    looked = LaggingLeaders(cluster[1].moved.since(lambda: [partition]))
    assert list(looked.look()) == [partition], "the follower has not fetched yet"
    cluster.sync(1, 2)
    assert list(looked.look()) == [partition]
    assert list(looked.look()) == []
    leader = partition.leader
    assert leader is not None
    assert leader.is_settled
    assert leader.propose_shrink(cluster.now_ms + 100 * LAG_MS) is None
    assert not leader.advance(cluster.now_ms + 100 * LAG_MS)


def test_a_leader_whose_follower_lags_is_looked_at_until_it_does_not(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster.sync(1, 2)
    partition = cluster[1].partition
    looked = LaggingLeaders(cluster[1].moved.since(lambda: [partition]))
    list(looked.look())
    assert list(looked.look()) == []
    cluster[1].produce(b"a", acks=1)
    for _ in range(3):
        assert list(looked.look()) == [partition]
        looked.check(partition)
    cluster.sync(1, 2)
    list(looked.look())
    assert list(looked.look()) == []
    looked.check(partition)


def test_a_follower_that_fell_back_is_noticed(tmp_path: Path) -> None:
    """A follower that lost unflushed records asks from below its acknowledged offset."""
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster[1].produce(b"a", acks=1)
    cluster.sync(1, 2)
    partition = cluster[1].partition
    looked = LaggingLeaders(cluster[1].moved.since(lambda: [partition]))
    list(looked.look())
    assert list(looked.look()) == []
    partition.fetched_by(2, cluster.brokers[2].broker_epoch, 0)
    for _ in range(2):
        assert list(looked.look()) == [partition]


def test_a_leader_for_whose_low_watermark_somebody_waits_is_looked_at(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, brokers=(1, 2))
    cluster.elect(1)
    cluster[1].produce(b"a", acks=1)
    cluster.sync(1, 2)
    partition = cluster[1].partition
    partition.record_deletion.trim(1)
    looked = LaggingLeaders(cluster[1].moved.since(lambda: [partition]))
    list(looked.look())
    assert list(looked.look()) == []
    outcomes: list[ErrorCode] = []
    partition.record_deletion.on_low_watermark(1, outcomes.append)
    for _ in range(2):
        assert list(looked.look()) == [partition]
        assert not outcomes


@pytest.fixture
def shrinks(monkeypatch: pytest.MonkeyPatch) -> list[LeaderState]:
    """Return the leaderships that were checked for lagging followers."""
    asked: list[LeaderState] = []

    def propose_shrink(leader: LeaderState, _now_ms: int) -> None:
        asked.append(leader)

    monkeypatch.setattr(LeaderState, "propose_shrink", propose_shrink)
    return asked


async def test_the_check_of_the_isr_leaves_idle_partitions_alone(
    tmp_path: Path, shrinks: list[LeaderState]
) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        replicas.image_changed(image, fold(image, *topic()))
        replicas.check_isr()
        assert len(shrinks) == 1
        replicas.check_isr()
        assert len(shrinks) == 1
        produce(replicas, 1)
        replicas.check_isr()
        assert len(shrinks) == 2
        replicas.check()


# ---------------------------------------------------------------- high watermarks


def _writes(logs: LogStore) -> mock._patch[mock.Mock]:
    checkpoints = logs.directories[0].checkpoints
    return mock.patch.object(checkpoints, "write_high_watermarks", wraps=checkpoints.write_high_watermarks)


async def _written(logs: LogStore, replicas: Replicas) -> None:
    replicas.checkpoint_high_watermarks()
    logs.checkpoint().result()  # The thread has done all that it was given before.


async def test_high_watermarks_are_written_down_when_one_has_moved(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (logs, replicas):
        replicas.image_changed(image, fold(image, *topic()))
        await _written(logs, replicas)
        with _writes(logs) as write:
            await _written(logs, replicas)
            assert write.call_count == 0
            produce(replicas, 2)
            await _written(logs, replicas)
            await _written(logs, replicas)
            assert write.call_count == 1
        assert logs.directories[0].checkpoints.read_high_watermarks() == {("t", 0): 2}
        replicas.check()


async def test_high_watermarks_that_could_not_be_written_are_written_later(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (logs, replicas):
        replicas.image_changed(image, fold(image, *topic()))
        produce(replicas, 2)
        full = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
        checkpoints = logs.directories[0].checkpoints
        with mock.patch.object(checkpoints, "write_high_watermarks", side_effect=full):
            await _written(logs, replicas)
        assert checkpoints.read_high_watermarks() == {}
        await _written(logs, replicas)
        assert checkpoints.read_high_watermarks() == {("t", 0): 2}


async def test_a_topic_of_the_same_name_begins_without_the_high_watermark_of_the_old_one(
    tmp_path: Path,
) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (logs, replicas):
        replicas.image_changed(image, fold(image, *topic(OLD_TOPIC)))
        produce(replicas, 2)
        await _written(logs, replicas)
        replicas.image_changed(image, fold(image, TopicRemovedRecord(topic_id=OLD_TOPIC), *topic()))
        assert replicas.get("t", 0).high_watermark == 0
        await _written(logs, replicas)
        assert logs.directories[0].checkpoints.read_high_watermarks() == {("t", 0): 0}
        replicas.check()
