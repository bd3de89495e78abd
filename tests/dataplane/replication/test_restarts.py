"""A returning broker's treatment of its logs: old images, deleted topics, settings, flushes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.dataplane.assembly.own_logs import is_needed
from ottla.dataplane.log import LogConfig
from ottla.dataplane.quorum.image_follower import ImageFollower
from ottla.dataplane.quorum.image_gate import ImageGate
from ottla.dataplane.replication.leader.isr_updates import Outcome
from ottla.dataplane.replication.replica.settings import ReplicationSettings, TopicSettings
from ottla.dataplane.replication.replicas.replicas import Replicas, ReplicasConfig
from ottla.dataplane.replication.roles.follower import EpochEnd
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.storage.log_store import LogStore
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import (
    BrokerRecord,
    ConfigRecord,
    PartitionRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
    encode_record,
)
from ottla.protocol.messages.quorum_session import FeedSnapshotChunk
from tests.node_credentials import credentials

from .harness import batch

OLD_TOPIC, NEW_TOPIC = b"o" * 16, b"n" * 16
BEFORE, NOW = b"b" * 16, b"i" * 16
SETTINGS = TopicSettings(LogConfig(), ReplicationSettings())


def never(_topic: object, _index: int) -> bool:
    return False


async def _no_isr_changes(_proposals: Sequence[object]) -> Sequence[Outcome]:
    await asyncio.Event().wait()
    return ()


@contextlib.asynccontextmanager
async def broker(
    directory: Path,
    image: ClusterImage,
    settings: TopicSettings | Callable[[str], TopicSettings] = SETTINGS,
    *,
    clean: bool = True,
) -> AsyncIterator[tuple[LogStore, Replicas]]:
    """Run broker 1 with its logs and replicas, without a server."""
    settings_of = settings if callable(settings) else lambda _: settings
    logs = LogStore.open([directory], "cluster", 1, wall_ms)
    replicas = Replicas(
        ReplicasConfig(credentials(1), "BROKER"), logs, image, settings_of, _no_isr_changes, lambda: 7
    )
    try:
        yield logs, replicas
    finally:
        await replicas.close()
        logs.close(clean=clean, broker_epoch=7)


def fold(image: ClusterImage, *records: Record) -> ImageDelta:
    delta = ImageDelta()
    for record in records:
        delta.note(record)
        image.apply(record)
    return delta


def topic(topic_id: bytes = NEW_TOPIC, **state: Any) -> list[Record]:
    """Return topic `t` with one partition, led by broker 1 alone."""
    given = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0} | state
    return [
        TopicRecord(topic_id=topic_id, name="t"),
        PartitionRecord(topic_id=topic_id, partition=0, **given),
    ]


def registration(incarnation: bytes, epoch: int, **state: Any) -> Record:
    return BrokerRecord(broker_id=1, broker_epoch=epoch, incarnation=incarnation, fenced=False, **state)


def produce(replicas: Replicas, values: int, acks: int = 1) -> None:
    for number in range(values):
        replicas.get("t", 0).append(memoryview(batch(b"%d" % number)), required_acks=acks)


async def test_images_of_the_past_give_no_roles_and_delete_no_logs(tmp_path: Path) -> None:
    """The feed is replayed in pushes.

    None of them may make a broker lead like its previous process, rewrite the leader epochs of its logs, or take the
    current topic's log for an older topic's.
    """
    history: list[list[Record]] = [
        [registration(BEFORE, 1), *topic(OLD_TOPIC)],
        [TopicRemovedRecord(topic_id=OLD_TOPIC), *topic(leader_epoch=3)],
        [PartitionRecord(topic_id=NEW_TOPIC, partition=0, replicas=[1], isr=[1], leader=1, leader_epoch=5)],
    ]
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        for push in history[1:]:
            replicas.image_changed(image, fold(image, *_without_removal(push)))
        produce(replicas, 3)

    replayed = ClusterImage()
    gate = ImageGate(lambda: 1 in replayed.brokers and replayed.brokers[1].incarnation == NOW)
    async with broker(tmp_path, replayed) as (_, replicas):
        for push in history:
            assert gate.passed(replayed, fold(replayed, *push)) is None
        joined = gate.passed(replayed, fold(replayed, registration(NOW, 9)))
        assert joined is not None
        replicas.image_changed(replayed, joined)
        partition = replicas.get("t", 0)
        assert (partition.log.log_end_offset, partition.leader_epoch) == (3, 5)
        assert partition.log.leader_epochs.entries == ((5, 0),)
        follow_up = fold(replayed, registration(NOW, 9))
        assert gate.passed(replayed, follow_up) is follow_up


async def test_settings_reach_logs_that_an_earlier_process_made(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        replicas.image_changed(image, fold(image, *topic()))
    larger = TopicSettings(LogConfig(max_message_bytes=77_000), ReplicationSettings())
    async with broker(tmp_path, image, larger) as (_, replicas):
        replicas.image_changed(image, ImageDelta.between(ClusterImage(), image))
        assert replicas.get("t", 0).log.config.max_message_bytes == 77_000


@pytest.mark.parametrize("leader_epoch", [0, 1], ids=["the same leadership", "a new one"])
async def test_a_higher_min_insync_replicas_holds_for_the_isr_that_comes_with_it(
    tmp_path: Path, leader_epoch: int
) -> None:
    """Broker 2 left the ISR after the minimum was raised: by the quorum's rules it has all acknowledged records."""
    image = ClusterImage()
    minimum = 1

    def settings_of(_topic: str) -> TopicSettings:
        return TopicSettings(LogConfig(), ReplicationSettings(min_in_sync=minimum))

    async with broker(tmp_path, image, settings_of) as (_, replicas):
        brokers = [registration(NOW, 1), BrokerRecord(broker_id=2, broker_epoch=2, fenced=False)]
        replicas.image_changed(image, fold(image, *brokers, *topic(replicas=[1, 2], isr=[1, 2])))
        produce(replicas, 1, acks=-1)
        partition = replicas.get("t", 0)
        outcomes: list[ErrorCode] = []
        partition.on_high_watermark(1, outcomes.append)
        minimum = 2
        config = ConfigRecord(resource_type=4, config_name="min.insync.replicas", value="2")
        shrunk = PartitionRecord(
            topic_id=NEW_TOPIC,
            partition=0,
            replicas=[1, 2],
            isr=[1],
            elr=[2],
            leader=1,
            leader_epoch=leader_epoch,
            partition_epoch=1,
        )
        replicas.image_changed(image, fold(image, config, shrunk))
        assert partition.high_watermark == 0
        assert ErrorCode.NONE not in outcomes
        assert partition.settings.min_in_sync == 2
        minimum = 1
        replicas.image_changed(image, fold(image, config))
        assert partition.high_watermark == 1


async def test_a_snapshot_of_the_feed_brings_its_brokers_to_leaders_that_stay(tmp_path: Path) -> None:
    """A leader with outdated brokers would exclude every follower that restarted since."""
    follower = ImageFollower(1)
    records = [registration(NOW, 1), BrokerRecord(broker_id=2, broker_epoch=2), *topic(replicas=[1, 2])]
    async with broker(tmp_path, follower.image) as (_, replicas):
        replicas.image_changed(follower.image, fold(follower.image, *records))
        records[1] = BrokerRecord(broker_id=2, broker_epoch=8)
        chunk = FeedSnapshotChunk(
            end_offset=9, first=True, last=True, records=[encode_record(record) for record in records]
        )
        delta = follower.snapshot(chunk)
        assert isinstance(delta, ImageDelta)
        replicas.image_changed(follower.image, delta)
        leader = replicas.get("t", 0).leader
        assert leader is not None
        assert leader.brokers[2].broker_epoch == 8


async def test_a_follower_flushes_what_was_recovered_and_then_fetches(tmp_path: Path) -> None:
    """The follower acknowledges flushed records because of flush.messages=1; after a crash these are fewer than in its
    log.
    """
    durable = TopicSettings(LogConfig(), ReplicationSettings(durable_before_acknowledged=True))
    image = ClusterImage()
    async with broker(tmp_path, image, clean=False) as (_, replicas):
        replicas.image_changed(image, fold(image, *topic(replicas=[1, 2])))
        produce(replicas, 3)
    async with broker(tmp_path, image, durable) as (_, replicas):
        moved = PartitionRecord(
            topic_id=NEW_TOPIC, partition=0, replicas=[1, 2], isr=[2], leader=2, leader_epoch=1
        )
        fold(image, moved)
        replicas.image_changed(image, ImageDelta.between(ClusterImage(), image))
        partition = replicas.get("t", 0)
        async with asyncio.timeout(60):
            while partition.acknowledged_offset < 3:
                await asyncio.sleep(0.001)


async def test_a_flush_says_nothing_about_records_that_replaced_what_it_flushed(tmp_path: Path) -> None:
    durable = TopicSettings(LogConfig(), ReplicationSettings(durable_before_acknowledged=True))
    image = ClusterImage()
    async with broker(tmp_path, image, durable) as (_, replicas):
        replicas.image_changed(image, fold(image, *topic(replicas=[1, 2])))
        with mock.patch.object(Replicas, "flush"):
            produce(replicas, 3)
            partition = replicas.get("t", 0)
            flushed = partition.log.flush()
            replicas.image_changed(image, fold(image, *topic(replicas=[1, 2], leader=2, leader_epoch=1)[1:]))
            partition.following.truncate_diverging(EpochEnd(0, 1), 0)
            for offset in (1, 2):
                other = batch(b"other")
                struct.pack_into(">q", other, 0, offset)
                struct.pack_into(">i", other, 12, 1)
                partition.following.append_fetched(memoryview(other), 0, 0)
            partition.flushed(flushed)
            assert (flushed, partition.log.log_end_offset, partition.acknowledged_offset) == (3, 3, 1)


async def test_logs_of_topics_that_went_meanwhile_are_set_aside_and_kept(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        replicas.image_changed(image, fold(image, *topic(OLD_TOPIC)))
        produce(replicas, 1)
    async with broker(tmp_path, image) as (logs, _):
        logs.set_strays_aside(lambda topic_id, index: (topic_id, index) == (OLD_TOPIC, 0), never)
        assert logs.get("t", OLD_TOPIC, 0) is not None
        logs.set_strays_aside(never, never)
        assert logs.get("t", OLD_TOPIC, 0) is None
        assert not (tmp_path / "t-0").exists()
    (kept,) = [name for name in os.listdir(tmp_path) if name.startswith("t-0")]
    assert kept.endswith("-stray")
    assert list((tmp_path / kept).glob("*.log")), "were the quorum lost, this would be all there is"
    async with broker(tmp_path, image) as (logs, _):
        assert logs.get("t", OLD_TOPIC, 0) is None, "it comes back only by hand"


@pytest.mark.parametrize("needed", [False, True])
async def test_a_log_that_does_not_tell_its_topic_stays_only_where_it_is_needed(
    tmp_path: Path, needed: bool
) -> None:
    """Power failed before its first flush. Then its topic was deleted, and another one was made with its name."""
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        replicas.image_changed(image, fold(image, *topic(OLD_TOPIC)))
        produce(replicas, 3)
    (tmp_path / "t-0" / "partition.metadata").unlink()
    image = ClusterImage()
    async with broker(tmp_path, image) as (logs, replicas):
        logs.set_strays_aside(never, lambda name, index: needed and (name, index) == ("t", 0))
        replicas.image_changed(image, fold(image, *topic()))
        assert replicas.get("t", 0).log.log_end_offset == (3 if needed else 0)
    kept = [name for name in os.listdir(tmp_path) if name.endswith("-stray")]
    assert len(kept) == (0 if needed else 1)


@pytest.mark.parametrize(
    ("name", "fields", "needed"),
    [
        ("t", {"leader": 2, "isr": [2]}, False),
        ("t", {"leader": 2, "isr": [2, 1]}, True),
        ("t", {"leader": 2, "isr": [2], "elr": [1]}, True),
        ("t", {"leader": -1, "isr": [], "last_known_elr": [1, 2]}, True),
        ("t", {"leader": 1, "isr": [1]}, True),
        ("t", {"leader": 2, "isr": [2], "replicas": [2, 3]}, False),
        ("deleted", {"leader": -1, "isr": []}, False),
    ],
)
def test_a_log_is_needed_where_no_other_broker_surely_has_as_much(
    name: str, fields: dict[str, Any], needed: bool
) -> None:
    image = ClusterImage()
    fold(image, *topic(**({"replicas": [1, 2]} | fields)))
    assert is_needed(image, 1, name, 0) is needed


async def test_high_watermarks_stay_known_until_their_replicas_are_there(tmp_path: Path) -> None:
    """A broker without its quorum does not overwrite its checkpoints."""
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        replicas.image_changed(image, fold(image, *topic()))
        produce(replicas, 4)
    async with broker(tmp_path, image) as (_, replicas):
        replicas.checkpoint_high_watermarks()
    async with broker(tmp_path, image) as (logs, _):
        assert logs.high_watermark("t", 0) == 4


async def test_a_follower_whose_disk_was_full_goes_on(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (logs, replicas):
        failures: list[KafkaError] = []
        logs.on_failure = failures.append
        replicas.image_changed(image, fold(image, *topic(replicas=[1, 2], isr=[2], leader=2)))
        partition = replicas.get("t", 0)
        records = memoryview(batch(b"x" * 100))
        with failing_writes(errno.ENOSPC), pytest.raises(KafkaError) as full:
            partition.following.append_fetched(records, 0, 0)
        replicas.failed(partition, full.value)
        assert replicas.get("t", 0) is partition
        partition.following.append_fetched(records, 0, 0)
        assert not failures


async def test_a_replica_that_found_no_room_is_made_when_there_is(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (_, replicas):
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with mock.patch.object(Path, "mkdir", side_effect=full):
            replicas.image_changed(image, fold(image, *topic()))
        with pytest.raises(KafkaError):
            replicas.get("t", 0)
        replicas.making.look_for_missing_logs()
        produce(replicas, 1, acks=-1)
        assert replicas.get("t", 0).high_watermark == 1


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
async def test_a_leader_whose_disk_failed_says_so_at_once(tmp_path: Path, number: int) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image, clean=False) as (logs, replicas):
        failures: list[KafkaError] = []
        logs.on_failure = failures.append
        replicas.image_changed(image, fold(image, *topic()))
        with failing_writes(number), pytest.raises(KafkaError) as failed:
            produce(replicas, 1)
        assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert [error.message for error in failures] == [failed.value.message]
        assert os.strerror(number) in failed.value.message


@pytest.mark.parametrize(
    ("call", "number", "failed"),
    [
        ("os.fdatasync", errno.EIO, True),
        ("os.fdatasync", errno.ENOSPC, True),  # The written data is lost.
        ("os.open", errno.EMFILE, False),
        ("os.replace", errno.ENOSPC, False),
    ],
)
async def test_what_a_failed_flush_means(tmp_path: Path, call: str, number: int, *, failed: bool) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image, clean=False) as (logs, replicas):
        failures: list[KafkaError] = []
        logs.on_failure = failures.append
        replicas.image_changed(image, fold(image, *topic()))
        produce(replicas, 1)
        partition_log = replicas.get("t", 0).log
        error = OSError(number, os.strerror(number))
        with mock.patch(call, side_effect=error), pytest.raises(KafkaError) as flush:
            partition_log.flush()
        assert flush.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert bool(failures) is failed
        if not failed:
            assert partition_log.flush() == 1
            assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


async def test_a_deletion_under_a_flush_is_no_failure_of_the_disk(tmp_path: Path) -> None:
    image = ClusterImage()
    async with broker(tmp_path, image) as (logs, replicas):
        failures: list[KafkaError] = []
        logs.on_failure = failures.append
        replicas.image_changed(image, fold(image, *topic()))
        produce(replicas, 1)
        partition_log = replicas.get("t", 0).log
        replicas.image_changed(image, fold(image, TopicRemovedRecord(topic_id=NEW_TOPIC)))
        with pytest.raises(KafkaError):
            partition_log.flush()
        assert not failures


@contextlib.contextmanager
def failing_writes(number: int) -> Iterator[None]:
    with mock.patch("os.pwrite", side_effect=OSError(number, os.strerror(number))):
        yield


def _without_removal(push: Sequence[Record]) -> list[Record]:
    return [record for record in push if not isinstance(record, TopicRemovedRecord)]
