"""A log with changed bytes: detected by a read, set aside, and copied again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError

from .brokers_over_sockets import BrokersOverSockets, RawConnection, running, until

VALUE = b"v" * 1000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[BrokersOverSockets]:
    async with running(tmp_path) as cluster:
        async with RawConnection(cluster[1].port) as client:
            for _ in range(20):
                assert (await client.produce(VALUE)).error_code == 0
        yield cluster


def log_file(directory: Path, broker_id: int) -> Path:
    (found,) = (directory / str(broker_id) / "t-0").glob("*.log")
    return found


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def kept(directory: Path, broker_id: int) -> list[Path]:
    return [path for path in (directory / str(broker_id)).iterdir() if path.name.endswith("-stray")]


async def all_in_sync(cluster: BrokersOverSockets) -> None:
    await until(lambda: set(cluster.quorum.state.isr) == {1, 2, 3}, "an ISR of three")
    assert cluster.quorum.state.offline_replicas == ()


@pytest.mark.parametrize("position", [3_000, 11], ids=["in the records", "in the length of a batch"])
async def test_a_leader_learns_of_its_damage_from_a_follower(
    tmp_path: Path, cluster: BrokersOverSockets, position: int
) -> None:
    await cluster[3].stop()
    cluster.quorum.fence(3)
    for file in (tmp_path / "3" / "t-0").iterdir():
        file.unlink()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        (tmp_path / "3" / name).unlink(missing_ok=True)
    original = log_file(tmp_path, 1).read_bytes()
    flip(log_file(tmp_path, 1), position)
    cluster.start(3)
    await until(lambda: cluster.quorum.state.leader == 2, "another leader")
    await all_in_sync(cluster)
    for broker_id in (1, 2, 3):
        assert log_file(tmp_path, broker_id).read_bytes() == original
    (aside,) = kept(tmp_path, 1)
    assert any(aside.glob("*.log"))


async def test_a_log_that_does_not_open_is_copied_anew(tmp_path: Path, cluster: BrokersOverSockets) -> None:
    original = log_file(tmp_path, 2).read_bytes()
    await cluster[2].stop()
    (tmp_path / "2" / ".kafka_cleanshutdown").unlink()
    flip(log_file(tmp_path, 2), 11)  # The length of a batch that had been flushed.
    cluster.start(2)
    await until(lambda: cluster[2].replicas.find("t", 0) is not None, "the recreated replica")
    await all_in_sync(cluster)
    assert log_file(tmp_path, 2).read_bytes() == original
    assert len(kept(tmp_path, 2)) == 1


async def test_who_has_the_last_copy_keeps_it(tmp_path: Path, cluster: BrokersOverSockets) -> None:
    for broker_id in (2, 3):
        await cluster[broker_id].stop()
        cluster.quorum.fence(broker_id)
    assert cluster.quorum.state.isr == (1,)
    flip(log_file(tmp_path, 1), 3_000)
    for file in (tmp_path / "3" / "t-0").iterdir():
        file.unlink()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        (tmp_path / "3" / name).unlink(missing_ok=True)
    cluster.start(3)
    async with RawConnection(cluster[1].port) as client:
        assert (await client.produce(VALUE, acks=1)).error_code == 0
        assert (await client.fetch(0)).error_code == 0
    assert cluster.quorum.state.leader == 1
    assert kept(tmp_path, 1) == []


async def test_a_disk_that_damages_the_copy_as_well_is_given_up(
    tmp_path: Path, cluster: BrokersOverSockets
) -> None:
    for times in (1, 2):
        partition = cluster[2].partition
        cluster[2].replicas.damage.condemn(partition, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "rotten"))
        if times == 1:
            await until(lambda: len(kept(tmp_path, 2)) == 1, "the damaged log set aside")
            await all_in_sync(cluster)
    await until(lambda: cluster.quorum.state.offline_replicas == (2,), "an offline replica")
    cluster[2].replicas.damage.rebuilding.look()
    await cluster[2].replicas.offline.reported()
    assert cluster.quorum.state.offline_replicas == (2,)
    assert len(kept(tmp_path, 2)) == 1
