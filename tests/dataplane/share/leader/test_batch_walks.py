"""Walks over batch headers: which batches members may acquire, cold files, and damage."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.dataplane.log import LogSlice
from ottla.dataplane.log.segments.aborted_transaction import AbortedTransaction
from ottla.dataplane.share.leader import batches
from ottla.dataplane.share.leader.batches import HEADERS_MAX, BatchWalk, ColdRecords
from ottla.dataplane.share.leader.group_settings import ShareGroupSettings
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.replication.harness import batch

from .share_broker import BROKER_SETTINGS, Member, ShareBroker, until

WAITS = os.RWF_NOWAIT


class File:
    """A slice of a file of batches, whose descriptor may refuse to read without waiting."""

    def __init__(self, path: Path, parts: Sequence[bytes]) -> None:
        path.write_bytes(b"".join(parts))
        self.fd = os.open(path, os.O_RDONLY)
        self.slice = LogSlice(self, 0, path.stat().st_size, 0)  # type: ignore[arg-type]

    def release(self) -> None:
        os.close(self.fd)


def records(first: int, count: int, attributes: int = 0, producer_id: int = -1) -> bytes:
    data = bytearray(batch(b"v", count=count, attributes=attributes))
    data[0:8] = first.to_bytes(8, "big")
    data[43:51] = producer_id.to_bytes(8, "big", signed=True)
    return bytes(data)


def test_a_walk_finds_batches_and_leaves_out_markers_and_aborted_batches(tmp_path: Path) -> None:
    file = File(
        tmp_path / "log",
        [
            records(0, 2),
            records(2, 1, 0x10, producer_id=7),
            records(3, 1, 0x10, producer_id=8),
            records(4, 1, 0x30, producer_id=7),
            records(5, 1, 0x10, producer_id=7),
            records(9, 3),
        ],
    )
    walk = BatchWalk(file.slice, [AbortedTransaction(7, 1, 4, 5)])
    assert list(walk.data_batches()) == [(0, 1), (3, 3), (5, 5), (9, 11)]
    assert walk.left_out == [(2, 2), (4, 4)]
    whole = file.slice.size
    walk.cut(3, 5)
    assert file.slice.position == len(records(0, 2)) + len(records(2, 1))
    assert file.slice.size < whole


def test_a_walk_is_bounded(tmp_path: Path) -> None:
    file = File(tmp_path / "log", [records(number, 1) for number in range(HEADERS_MAX + 10)])
    assert len(list(BatchWalk(file.slice).data_batches())) == HEADERS_MAX


@pytest.mark.parametrize("fault", ["length", "offset", "delta"])
def test_damage_ends_a_walk_before_the_batch(tmp_path: Path, fault: str) -> None:
    bad = bytearray(records(5, 1))
    if fault == "length":
        bad[8:12] = (3).to_bytes(4, "big")
    elif fault == "offset":
        bad[0:8] = (0).to_bytes(8, "big")
    else:
        bad[23:27] = (-1).to_bytes(4, "big", signed=True)
    file = File(tmp_path / "log", [records(0, 5), bytes(bad), records(6, 1)])
    walk = BatchWalk(file.slice)
    assert list(walk.data_batches()) == [(0, 4)]
    assert walk.is_damaged
    if fault != "offset":
        alone = File(tmp_path / "alone", [bytes(bad)])
        with pytest.raises(KafkaError) as caught:
            list(BatchWalk(alone.slice).data_batches())
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_cold_header_ends_a_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [records(number, 1) for number in range(200)]
    file = File(tmp_path / "log", large)
    read = os.preadv
    cold_from = 4096

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        if flags & WAITS and position >= cold_from:
            raise BlockingIOError
        return read(fd, buffers, position)

    monkeypatch.setattr(batches.os, "preadv", preadv)
    assert 0 < len(list(BatchWalk(file.slice).data_batches())) < 200
    cold_from = 0
    with pytest.raises(ColdRecords):
        list(BatchWalk(file.slice).data_batches())
    assert len(list(BatchWalk(file.slice, may_wait=True).data_batches())) > 0


async def test_a_fetch_of_cold_records_waits_for_the_disk_in_a_thread(
    broker: ShareBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.write(3)
    read, refused = os.preadv, 0

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        nonlocal refused
        if flags & WAITS and len(buffers[0]) <= 8192 and not refused:
            refused += 1
            raise BlockingIOError
        return read(fd, buffers, position, flags)

    monkeypatch.setattr(batches.os, "preadv", preadv)
    assert await Member(broker).take() == [(0, 2, 1)]
    assert refused == 1


async def test_a_damaged_batch_is_reported(broker: ShareBroker) -> None:
    broker.write(1, batches=2)
    log = broker.replica().log
    segment = log.segments[0]
    with segment.path.open("r+b") as file:
        file.seek(segment.size // 2 + 8)
        file.write((3).to_bytes(4, "big"))
    member = Member(broker)
    assert await member.take() == [(0, 0, 1)]
    member.send(max_wait_ms=20_000)
    response = await member.answered()
    (topic,) = response.responses
    assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    share = broker.led().share
    assert share is not None
    assert share.acquired_count == 1
    await until(lambda: not broker.fetches.waiting_count, "no waiting fetch")


def test_settings_of_a_group_stay_within_the_bounds_of_the_broker() -> None:
    own: dict[str, str] = {}
    level = [2]
    settings = ShareGroupSettings(BROKER_SETTINGS.__getitem__, lambda _group: own, lambda: level[0] > 1)
    found = settings.get("g")
    assert (found.limits.lock_duration_ms, found.limits.delivery_limit, found.limits.record_locks) == (
        30_000,
        5,
        2_000,
    )
    assert (found.is_read_committed, found.may_renew, found.offset_reset) == (False, True, "latest")
    own.update(
        {
            "share.record.lock.duration.ms": "9999999",
            "share.delivery.count.limit": "1",
            "share.partition.max.record.locks": "300",
            "share.isolation.level": "read_committed",
            "share.renew.acknowledge.enable": "FALSE",
            "share.auto.offset.reset": "by_duration:P1D",
        }
    )
    found = settings.get("g")
    assert (found.limits.lock_duration_ms, found.limits.delivery_limit, found.limits.record_locks) == (
        60_000,
        2,
        300,
    )
    assert (found.is_read_committed, found.may_renew, found.offset_reset) == (True, False, "by_duration:P1D")
    assert settings.get("g") is found
    own.update(
        {
            "errors.deadletterqueue.topic.name": "dlq.t",
            "errors.deadletterqueue.copy.record.enable": "True",
        }
    )
    found = settings.get("g")
    assert (found.letter_topic, found.copies_letters, found.limits.has_dead_letters) == ("dlq.t", True, True)
    level[0] = 1
    assert not settings.get("g").limits.has_dead_letters
