"""min.insync.replicas, flush.messages=1 and unclean elections, with brokers killed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from tests.cluster import RunningCluster, running_cluster, wait_for, wait_until
from tests.integration.history import SMALL_CLUSTER, Load, make_topic, read_all, wait_identical_replicas

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run three brokers; each test leaves all of them running."""
    with running_cluster(tmp_path_factory.mktemp("min-isr"), quorum=1, settings=SMALL_CLUSTER) as running:
        yield running


def outcome(cluster: RunningCluster, topic: str, value: bytes, **config: object) -> str | None:
    """Send one record without retries; the name of the error, None if it is acknowledged."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "retries": 0,
            "message.timeout.ms": 10_000,
            "log_level": 0,
            **config,
        }
    )
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    return None if outcomes[0] is None else outcomes[0].name()


def test_too_few_replicas_refuse_acks_all_and_serve_acks_1(cluster: RunningCluster) -> None:
    make_topic(cluster.bootstrap, "strict", 1, min_insync_replicas=3)
    assert outcome(cluster, "strict", b"0", acks="all") is None
    leader = wait_for(lambda: cluster.leader("strict", 0), "a leader")
    victim = next(broker for broker in cluster.brokers if broker.id != leader)
    victim.kill9()
    wait_until(lambda: len(cluster.partitions("strict")[0].isr) == 2, "an ISR of two")
    assert outcome(cluster, "strict", b"refused", acks="all") == "NOT_ENOUGH_REPLICAS"
    assert outcome(cluster, "strict", b"1", acks=1) is None
    victim.restart()
    cluster.wait_until_in_sync("strict")
    assert outcome(cluster, "strict", b"2", acks="all") is None
    assert [record.value for record in read_all(cluster.bootstrap, "strict")] == [b"0", b"1", b"2"]
    wait_identical_replicas(cluster, "strict", 1)


def test_records_flushed_before_they_are_acknowledged_outlive_a_leader(cluster: RunningCluster) -> None:
    make_topic(cluster.bootstrap, "flushed", min_insync_replicas=2, flush_messages=1)
    with Load(cluster.bootstrap, "flushed", per_second=500) as load:
        load.wait_acknowledged(200)
        leader = wait_for(lambda: cluster.leader("flushed", 0), "a leader")
        cluster.broker(leader).kill9()
        load.wait_acknowledged(300)
        cluster.broker(leader).restart()
        cluster.wait_until_in_sync("flushed")
        load.wait_acknowledged(100)
    assert load.failed == []
    load.check(read_all(cluster.bootstrap, "flushed"))
    wait_identical_replicas(cluster, "flushed", 3)


@pytest.mark.parametrize("unclean", [True, False])
def test_when_the_whole_isr_is_dead(cluster: RunningCluster, unclean: bool) -> None:
    topic = f"unclean-{unclean}".lower()
    make_topic(cluster.bootstrap, topic, 1, 2, unclean_leader_election_enable=str(unclean).lower())
    assert outcome(cluster, topic, b"both", acks="all") is None
    cluster.wait_until_in_sync(topic)
    info = cluster.partitions(topic)[0]
    last = cluster.broker(info.leader)
    behind = cluster.broker(next(replica for replica in info.replicas if replica != info.leader))
    behind.kill9()
    wait_until(lambda: cluster.partitions(topic)[0].isr == (last.id,), "an ISR of the leader alone")
    assert outcome(cluster, topic, b"only the leader", acks="all") is None
    last.kill9()
    wait_until(lambda: cluster.partitions(topic) and cluster.leader(topic, 0) is None, "no leader")
    behind.restart()
    if unclean:
        wait_until(lambda: cluster.leader(topic, 0) == behind.id, "an unclean leader")
        assert outcome(cluster, topic, b"after", acks="all") is None
        expected = [b"both", b"after"]
    else:
        until = time.monotonic() + 2
        wait_until(lambda: behind.id in cluster.taking_part(), "the broker that is back")
        while time.monotonic() < until:
            assert cluster.leader(topic, 0) is None
        expected = [b"both", b"only the leader"]
    last.restart()
    cluster.wait_until_in_sync(topic)
    assert [record.value for record in read_all(cluster.bootstrap, topic)] == expected
    wait_identical_replicas(cluster, topic, 1)
