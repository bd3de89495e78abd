"""Leader epochs above all that there have been, from headers that no checksum covers: recovery may believe those of
the last batches, roles do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import ReplicasByHand


def spoil_last_epoch(cluster: ReplicasByHand, broker: int, record_size: int) -> None:
    log = cluster[broker].partition.log
    path = log.segments[-1].path
    data = bytearray(path.read_bytes())
    data[len(data) - record_size + 13] ^= 16
    path.write_bytes(data)


@pytest.fixture
def cluster(tmp_path: Path) -> ReplicasByHand:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    for value in (b"a", b"b", b"c"):
        cluster[1].produce(value)
        cluster.sync(1, 2, 3)
    spoil_last_epoch(cluster, 2, cluster[2].partition.log.size // 3)
    cluster[2].crash()
    return cluster


def test_a_follower_forgets_them_and_follows(cluster: ReplicasByHand) -> None:
    assert cluster[2].partition.log.leader_epochs.latest_epoch > 1 << 19
    cluster[2].hear()
    cluster[2].partition.check()
    cluster.elect(3, isr=(1, 3))
    cluster[3].produce(b"d")
    cluster.sync(3, 1, 2)
    assert cluster[2].values() == [b"a", b"b", b"c", b"d"]
    cluster[2].partition.check()
    assert cluster[2].partition.log.leader_epochs.entries == cluster[3].partition.log.leader_epochs.entries


def test_a_leader_forgets_them_and_what_it_sends_of_them_is_refused(cluster: ReplicasByHand) -> None:
    cluster.elect(2, isr=(2,), tell=(2, 3))
    cluster[2].partition.check()
    cluster[3].crash(keep_below=0)
    cluster[3].hear()
    assert cluster[3].values() == []
    cluster.fetch(3, 2, rounds=4)
    assert cluster[3].values() == []
    assert max(epoch for epoch, _ in cluster[3].partition.log.leader_epochs.entries or [(0, 0)]) < 10
