"""MirrorMaker 2 between Apache Kafka and Ottla, in both directions, while a broker of Ottla and MirrorMaker itself are
killed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from benchmarks.clusters import Cluster
from benchmarks.kafka import kafka_cluster
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER
from tests.programs.jvm import needs_jdk
from tests.programs.mirroring import MOVING, STAYING, Mirrored, Side, mirror_maker
from tests.programs.topics import Input, Sent

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(1200)]
PARTITIONS = 3
SETTINGS = {"retention.ms": "86400000", "max.message.bytes": "2000000", "compression.type": "gzip"}
CHANGED = {"retention.ms": "43200000"}
WAIT_S = 240.0  # two clusters and a JVM share the cores with other tests
ONE_BROKER = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
}


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Side]:
    """Run Apache Kafka."""
    with kafka_cluster(tmp_path / "kafka", brokers=1, quorum=1, settings=ONE_BROKER) as running:
        yield made("kafka", running, "ottla", replicas=1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    folder = tmp_path / "ottla"
    folder.mkdir()
    with running_cluster(folder, quorum=1, settings=SMALL_CLUSTER) as running:
        yield running


@pytest.fixture
def ours(cluster: RunningCluster) -> Side:
    return made("ottla", cluster, "kafka", replicas=3)


def made(name: str, cluster: Cluster | RunningCluster, other: str, replicas: int) -> Side:
    """Return a side with its topic."""
    side = Side(name, cluster.bootstrap, other)
    side.create(PARTITIONS, replicas, SETTINGS)
    return side


def records(topic: str) -> Iterator[Sent]:
    """Yield records with and without keys, with tombstones, and with headers with repeated names and missing values."""
    for number in itertools.count(1):
        key = f"key{number % 50}" if number % 7 else None
        value = None if number % 11 == 0 else f"value {number}"
        headers = (("number", str(number).encode()), ("twice", b"a"), ("twice", None))
        yield Sent(topic, key, value, headers=headers)


@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_mirrors_both_ways_through_kills(
    theirs: Side, ours: Side, cluster: RunningCluster, tmp_path: Path, exactly_once: bool
) -> None:
    sides = (theirs, ours)
    with mirror_maker(tmp_path, theirs.bootstrap, ours.bootstrap, exactly_once=exactly_once) as program:
        with (
            Input(theirs.bootstrap, records(theirs.topic)) as first,
            Input(ours.bootstrap, records(ours.topic)) as two,
        ):
            wait_for_more(*sides)
            kill_broker(cluster, ours.mirror, sides)
            program.kill9()
            program.start()
            for side in sides:
                change(side)
            for side in sides:
                wait_until(partial(follows, side), f"{side.mirror} like its origin", WAIT_S)
            wait_for_more(*sides)
            begun = [read_so_far(side, given) for side, given in ((theirs, first), (ours, two))]
            wait_for_more(*sides)
        for (here, there), read in zip((sides, sides[::-1]), begun, strict=True):
            check_mirror(here, there, exactly_once=exactly_once)
            check_moved(here, there, read)
            check_staying(here, there)


def read_so_far(side: Side, given: Input) -> list[Mirrored]:
    """Let the moving group read about as many records as there are, and stop."""
    goal = len(given.sent)
    return side.go_on(side.topic, lambda read: len(read) >= goal, WAIT_S)


def wait_for_more(*sides: Side) -> None:
    """Return once some hundred records have come to each mirror."""
    goals = {side: side.length(side.mirror) + 300 for side in sides}
    for side, goal in goals.items():
        wait_until(partial(has_grown, side, goal), f"{goal} records in {side.mirror}", WAIT_S)


def has_grown(side: Side, goal: int) -> bool:
    return side.length(side.mirror) >= goal


def kill_broker(cluster: RunningCluster, topic: str, sides: tuple[Side, Side]) -> None:
    """Kill a leader of Ottla's; records arrive on both sides before it is back."""
    leader = cluster.leader(topic, 0)
    assert leader is not None
    node = cluster.broker(leader)
    node.kill9()
    wait_for_more(*sides)
    node.restart()
    cluster.wait_until_in_sync(topic, WAIT_S)


def change(side: Side) -> None:
    """Change a setting, and add a partition with records."""
    side.set("retention.ms", CHANGED["retention.ms"])
    side.grow(PARTITIONS + 1)
    wait_until(
        lambda: side.partitions(side.topic) == PARTITIONS + 1, f"one partition more of {side.topic}", WAIT_S
    )
    producer = Producer({"bootstrap.servers": side.bootstrap, "enable.idempotence": True})
    outcomes = list[object]()
    for number in range(10):
        value = f"late value {number}"
        producer.produce(
            side.topic, value, partition=PARTITIONS, on_delivery=lambda error, _: outcomes.append(error)
        )
    producer.flush(60)
    assert outcomes == [None] * 10


def follows(side: Side) -> bool:
    """Return whether the mirror here has the new setting and the new partition."""
    return side.partitions(side.mirror) == PARTITIONS + 1 and side.config(side.mirror, *CHANGED) == CHANGED


def check_mirror(here: Side, there: Side, *, exactly_once: bool) -> None:
    """Check that each record is in the mirror, in its partition and order, once if `exactly_once`, and that the
    settings are equal.
    """
    written = {
        number: [placement.record for placement in placed] for number, placed in here.read(here.topic).items()
    }

    def copied() -> dict[int, list[Mirrored]]:
        return {
            number: [placement.record for placement in placed]
            for number, placed in there.read(there.mirror).items()
        }

    def arrived() -> bool:
        found = copied()
        return all(set(found.get(number, ())) >= set(records) for number, records in written.items())

    wait_until(arrived, f"all records in {there.mirror}", WAIT_S)
    found = copied()
    if not exactly_once:  # those whose offsets a killed process had not committed come again
        found = {number: list(dict.fromkeys(records)) for number, records in found.items()}
    assert found == written
    assert there.config(there.mirror, *SETTINGS) == here.config(here.topic, *SETTINGS) == SETTINGS | CHANGED


def check_moved(here: Side, there: Side, begun: list[Mirrored]) -> None:
    """Check that a group's offsets are translated, never beyond its unread records, and that it misses none in the
    mirror.
    """
    written, copied = here.read(here.topic), there.read(there.mirror)
    done = {
        partition: offset for partition, offset in here.offsets(MOVING, here.topic).items() if offset >= 0
    }

    def translated() -> dict[int, int]:
        return {
            partition: offset
            for partition, offset in there.offsets(MOVING, there.mirror).items()
            if offset >= 0
        }

    wait_until(lambda: translated().keys() >= done.keys(), f"{MOVING} in {there.mirror}", WAIT_S)
    for number, offset in translated().items():
        unread = {placement.record for placement in written[number] if placement.offset >= done[number]}
        assert unread <= {placement.record for placement in copied[number] if placement.offset >= offset}
    every = {placement.record for placed in written.values() for placement in placed}
    there.go_on(there.mirror, lambda read: {*begun, *read} >= every, WAIT_S)


def check_staying(here: Side, there: Side) -> None:
    """Check that the end of a topic is translated as the end of its mirror."""
    here.commit({number: placed[-1].offset + 1 for number, placed in here.read(here.topic).items()})
    ends = {number: placed[-1].offset + 1 for number, placed in there.read(there.mirror).items()}
    wait_until(
        lambda: there.offsets(STAYING, there.mirror) == ends,
        f"{STAYING} at the end of {there.mirror}",
        WAIT_S,
    )
    assert there.config(there.checkpoints, "cleanup.policy") == {"cleanup.policy": "compact"}
