"""Bytes that change on a broker's disk are found, never taken for records, and copied again from other replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import Node, RunningCluster, running_cluster, wait_for, wait_until
from tests.faults.disks import flip
from tests.faults.workload import SESSIONS
from tests.integration.history import (
    SMALL_CLUSTER,
    Load,
    make_topic,
    read_all,
    segment_files,
    wait_identical_replicas,
)

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("disk-corruption"), pytest.mark.timeout(240)]

SETTINGS = (
    SMALL_CLUSTER
    | SESSIONS
    | {
        "log.segment.bytes": "1048576",
        "log.retention.check.interval.ms": "1000",
        "log.verify.bytes.per.second": "268435456",
        "replica.lag.time.max.ms": "5000",
    }
)
FOUND_S = 40.0
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)


@pytest.fixture(scope="module")
def rotting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run a cluster that writes small segments and scrubs them each second."""
    with running_cluster(tmp_path_factory.mktemp("rotting"), quorum=1, settings=SETTINGS) as running:
        yield running


def load_of(cluster: RunningCluster, topic: str) -> Load:
    """Return a load of two megabytes per second."""
    return Load(cluster.bootstrap, topic, per_second=250, padding=8_000)


def folder(cluster: RunningCluster, broker_id: int, topic: str) -> Path:
    return cluster.directory / f"broker-{broker_id}" / f"{topic}-0"


def kept(cluster: RunningCluster, broker_id: int, topic: str) -> list[Path]:
    """Return the damaged logs that were set aside."""
    return list(folder(cluster, broker_id, topic).parent.glob(f"{topic}-0.*-stray"))


def cold(cluster: RunningCluster, broker: Node, topic: str) -> Path:
    """Return a segment in the middle of a log."""
    found = segment_files(cluster, broker.id, topic, 0)
    assert len(found) > 3, found
    return found[len(found) // 2]


def filled(cluster: RunningCluster, topic: str, load: Load) -> tuple[Node, Node]:
    """Return the leader and a follower, once there are some closed segments."""
    leader = cluster.broker(wait_for(lambda: cluster.leader(topic, 0), "a leader"))
    wait_until(lambda: len(segment_files(cluster, leader.id, topic, 0)) > 4, "some segments")
    load.wait_acknowledged(50)
    replicas = cluster.partitions(topic)[0].replicas
    return leader, cluster.broker(next(replica for replica in replicas if replica != leader.id))


def made_anew(cluster: RunningCluster, broker: Node, topic: str, logs: int = 1) -> None:
    """Return once the damaged log is set aside and the replica in sync again."""
    wait_until(lambda: len(kept(cluster, broker.id, topic)) == logs, "the damaged log set aside", FOUND_S)
    cluster.wait_until_in_sync(topic, FOUND_S)


@pytest.mark.parametrize("role", [pytest.param("leader", marks=pytest.mark.short), "follower"])
def test_a_cold_segment_rots_in_use(rotting: RunningCluster, role: str) -> None:
    topic = f"cold-{role}"
    make_topic(rotting.bootstrap, topic, 1, min_insync_replicas=2)
    with load_of(rotting, topic) as load:
        leader, follower = filled(rotting, topic, load)
        victim = leader if role == "leader" else follower
        flip(cold(rotting, victim, topic), 5_000)
        made_anew(rotting, victim, topic)
        assert victim.alive
        if role == "follower":
            assert rotting.leader(topic, 0) == leader.id
        load.wait_acknowledged(50)
    load.check(read_all(rotting.bootstrap, topic))
    wait_identical_replicas(rotting, topic, 1)


@pytest.mark.parametrize("place", ["records", "length"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_cold_segment_rots_while_the_broker_is_down(rotting: RunningCluster, how: str, place: str) -> None:
    """A flushed segment is set aside and copied again.

    After a kill, the log above the flushed part is cut at the damage, as after a torn write, and the rest is fetched.
    """
    topic = f"down-{how}-{place}"
    make_topic(rotting.bootstrap, topic, 1, min_insync_replicas=2)
    with load_of(rotting, topic) as load:
        leader, _ = filled(rotting, topic, load)
        leader.terminate() if how == "stopped" else leader.kill9()
        flip(cold(rotting, leader, topic), 5_000 if place == "records" else 10)
        load.wait_acknowledged(50)
        leader.restart()
        if how == "stopped":
            made_anew(rotting, leader, topic)
        else:
            rotting.wait_until_in_sync(topic, FOUND_S)
        load.wait_acknowledged(50)
    load.check(read_all(rotting.bootstrap, topic))
    wait_identical_replicas(rotting, topic, 1)


def test_the_end_of_the_segment_that_was_being_written(rotting: RunningCluster) -> None:
    """After a kill and a torn write the log is cut at the damage, and the missing records are fetched."""
    topic = "torn"
    make_topic(rotting.bootstrap, topic, 1, min_insync_replicas=2)
    with load_of(rotting, topic) as load:
        leader, _ = filled(rotting, topic, load)
        leader.kill9()
        last = segment_files(rotting, leader.id, topic, 0)[-1]
        if last.stat().st_size > 100:
            flip(last, -20)
        with last.open("ab") as file:
            file.write(b"\1" * 300)
        load.wait_acknowledged(50)
        leader.restart()
        rotting.wait_until_in_sync(topic, FOUND_S)
        load.wait_acknowledged(50)
    load.check(read_all(rotting.bootstrap, topic))
    wait_identical_replicas(rotting, topic, 1)


def _flipped(path: Path) -> None:
    for position in range(8, path.stat().st_size, 8):
        flip(path, position - 1, 0x55)


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 3)


def _replaced(path: Path) -> None:
    path.write_bytes(b"\xff" * 300)


@pytest.mark.parametrize("damage", [_flipped, _cut, _replaced])
@pytest.mark.parametrize("name", ["*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint"])
def test_what_stands_beside_the_records(
    rotting: RunningCluster, name: str, damage: Callable[[Path], None]
) -> None:
    """All files of a kind are damaged while their broker is down; then the broker leads and is read from."""
    topic = f"beside-{name.strip('*.')}-{damage.__name__.strip('_')}"
    make_topic(rotting.bootstrap, topic, 1, min_insync_replicas=2)
    with load_of(rotting, topic) as load:
        leader, follower = filled(rotting, topic, load)
        follower.kill9()
        for path in folder(rotting, follower.id, topic).glob(name):
            if path.stat().st_size:
                damage(path)
        follower.restart()
        rotting.wait_until_in_sync(topic, FOUND_S)
        leader.kill9()
        load.wait_acknowledged(50)
        leader.restart()
        rotting.wait_until_in_sync(topic, FOUND_S)
        load.wait_acknowledged(50)
    load.check(read_all(rotting.bootstrap, topic))
    wait_identical_replicas(rotting, topic, 1)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_of_the_folder(rotting: RunningCluster, name: str) -> None:
    """A broker names the damaged file and refuses to start until an operator removes it."""
    topic = f"{name}"
    make_topic(rotting.bootstrap, topic, 1, min_insync_replicas=2)
    with load_of(rotting, topic) as load:
        leader, _ = filled(rotting, topic, load)
        leader.kill9()
        checkpoint = folder(rotting, leader.id, topic).parent / name
        checkpoint.write_bytes(b"\xff" * 300)
        leader.restart()
        wait_until(lambda: not leader.alive, "the broker to refuse")
        assert f"{checkpoint} is damaged" in leader.log()
        load.wait_acknowledged(50)
        checkpoint.unlink()
        leader.restart()
        rotting.wait_until_in_sync(topic, FOUND_S)
        load.wait_acknowledged(50)
    load.check(read_all(rotting.bootstrap, topic))
    wait_identical_replicas(rotting, topic, 1)


def test_who_has_the_only_copy_keeps_it_and_serves_the_rest(rotting: RunningCluster) -> None:
    topic = "only-copy"
    make_topic(rotting.bootstrap, topic, 1, 1)
    with load_of(rotting, topic) as load:
        leader = rotting.broker(wait_for(lambda: rotting.leader(topic, 0), "a leader"))
        wait_until(lambda: len(segment_files(rotting, leader.id, topic, 0)) > 4, "some segments")
    load.check(read_all(rotting.bootstrap, topic))
    flip(cold(rotting, leader, topic), 5_000)
    wait_until(lambda: "nobody else is known to have all of it" in leader.log(), "a word about it", FOUND_S)
    assert rotting.leader(topic, 0) == leader.id
    assert kept(rotting, leader.id, topic) == []
