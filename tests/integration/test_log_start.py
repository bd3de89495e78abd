"""Records are removed by age, by size, and by DeleteRecords, across restarts and losses of a leader or the cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator

import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.structs import TopicPartition as KafkaPythonPartition

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

CHECKPOINT = "log-start-offset-checkpoint"
HOUR_MS = 3_600_000
VALUE = b"v" * 60_000
SEGMENT = {"segment.bytes": str(1 << 20), "min.insync.replicas": "2"}
PER_SEGMENT = (1 << 20) // len(VALUE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run three brokers that check often for records to remove."""
    often = {"log.retention.check.interval.ms": "200", "log.segment.delete.delay.ms": "100"}
    settings = {**SMALL_CLUSTER, **often}
    with running_cluster(tmp_path_factory.mktemp("cluster"), quorum=1, settings=settings) as running:
        yield running


@pytest.fixture
def admin(cluster: RunningCluster) -> AdminClient:
    """Return a new client for each test, since a client remembers leaders, which are killed here."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def _create(admin: AdminClient, name: str, **config: str) -> None:
    topic = NewTopic(
        name, 1, 3, config={**SEGMENT, **{key.replace("_", "."): v for key, v in config.items()}}
    )
    admin.create_topics([topic])[name].result(60)


def _set(admin: AdminClient, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)


def _producer(cluster: RunningCluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})


def _produce(producer: Producer, topic: str, count: int, *, age_ms: int = 0, value: bytes = VALUE) -> None:
    failures: list[object] = []
    for _ in range(count):
        producer.produce(
            topic,
            value,
            timestamp=int(time.time() * 1000) - age_ms,
            on_delivery=lambda error, _: error and failures.append(error),
        )
    assert producer.flush(30) == 0
    assert failures == []


def _offset(admin: AdminClient, topic: str, spec: OffsetSpec) -> int:
    partition = TopicPartition(topic, 0)
    return int(admin.list_offsets({partition: spec})[partition].result(60).offset)


def _start(admin: AdminClient, topic: str) -> int:
    return _offset(admin, topic, OffsetSpec.earliest())


def _end(admin: AdminClient, topic: str) -> int:
    return _offset(admin, topic, OffsetSpec.latest())


def _files(cluster: RunningCluster, topic: str) -> list[list[str]]:
    """Return the names of the segment files, for each broker."""
    return [
        sorted(path.name for path in folder.iterdir() if ".log" in path.name)
        for folder in cluster.directory.rglob(f"{topic}-0")
    ]


def _delete(admin: AdminClient, topic: str, offset: int, timeout_s: float = 15) -> int:
    partition = TopicPartition(topic, 0, offset)
    done = admin.delete_records([partition], operation_timeout=timeout_s)[TopicPartition(topic, 0)]
    return int(done.result(30).low_watermark)


def _refusal(admin: AdminClient, topic: str, offset: int, timeout_s: float = 15) -> int:
    with pytest.raises(KafkaException) as caught:
        _delete(admin, topic, offset, timeout_s)
    return int(caught.value.args[0].code())


def test_old_records_go_on_every_replica_and_the_producer_goes_on(
    cluster: RunningCluster, admin: AdminClient
) -> None:
    _create(admin, "old", retention_ms="-1")
    producer = _producer(cluster)
    _produce(producer, "old", 3 * PER_SEGMENT, age_ms=HOUR_MS)
    end = _end(admin, "old")
    time.sleep(0.5)  # Two checks pass and drop nothing: -1 keeps everything.
    assert _start(admin, "old") == 0
    _set(admin, "old", retention_ms="60000")
    wait_until(lambda: _start(admin, "old") == end, "all old records to go")
    empty = [[f"{end:020d}.log"]] * 3
    wait_until(lambda: _files(cluster, "old") == empty, "the files to go on all brokers")
    assert _offset(admin, "old", OffsetSpec.for_timestamp(0)) == -1
    assert _offset(admin, "old", OffsetSpec.max_timestamp()) == -1
    _produce(producer, "old", 2, value=b"young")
    assert (_start(admin, "old"), _end(admin, "old")) == (end, end + 2)
    assert _offset(admin, "old", OffsetSpec.for_timestamp(0)) == end


def test_a_log_that_grew_too_large_loses_its_oldest_segments(
    cluster: RunningCluster, admin: AdminClient
) -> None:
    _create(admin, "large", retention_bytes=str(2 << 20))
    _create(admin, "kept", retention_bytes=str(2 << 20), cleanup_policy="compact")
    producer = _producer(cluster)
    _produce(producer, "large", 6 * PER_SEGMENT)
    wait_until(lambda: _start(admin, "large") > 2 * PER_SEGMENT, "the oldest segments to go")
    assert _start(admin, "large") <= 4 * PER_SEGMENT, "no more than need be"
    wait_until(lambda: all(len(names) <= 4 for names in _files(cluster, "large")), "the files to go")
    assert _start(admin, "kept") == 0


def test_deleted_records_are_gone_through_restarts_and_the_end_of_leaders(
    cluster: RunningCluster, admin: AdminClient
) -> None:
    _create(admin, "cut")
    producer = _producer(cluster)
    _produce(producer, "cut", 3 * PER_SEGMENT)
    end = _end(admin, "cut")
    reader = {"bootstrap.servers": cluster.bootstrap, "group.id": "cut", "enable.auto.commit": False}
    consumer = Consumer(reader)
    consumer.commit(offsets=[TopicPartition("cut", 0, 5)], asynchronous=False)
    cut = PER_SEGMENT + 4

    assert _delete(admin, "cut", cut) == cut
    assert _delete(admin, "cut", 3) == cut, "deleted records stay deleted"
    assert _start(admin, "cut") == cut
    wait_until(lambda: all(len(names) == 3 for names in _files(cluster, "cut")), "whole segments to go")
    assert _refusal(admin, "cut", end + 1) == KafkaError.OFFSET_OUT_OF_RANGE
    assert _refusal(admin, "cut", -2) == KafkaError.OFFSET_OUT_OF_RANGE
    assert _refusal(admin, "__consumer_offsets", 0) == KafkaError.TOPIC_EXCEPTION
    _create(admin, "compacted", cleanup_policy="compact")
    assert _refusal(admin, "compacted", 0) == KafkaError.POLICY_VIOLATION

    (committed,) = consumer.committed([TopicPartition("cut", 0)])
    assert committed.offset == 5
    consumer.close()
    assert _first_read(reader, "earliest") == cut
    assert _first_read(reader, "error") == KafkaError._AUTO_OFFSET_RESET

    leader = cluster.leader("cut", 0)
    assert leader is not None
    cluster.broker(leader).kill9()
    wait_until(lambda: cluster.leader("cut", 0) not in (None, leader), "another leader")
    wait_until(lambda: _ends(cluster, "cut") is not None, "the other leader to answer")
    assert _ends(cluster, "cut") == (cut, end)
    cluster.broker(leader).restart()
    cluster.wait_until_in_sync("cut")
    written = f"cut 0 {cut}"
    wait_until(
        lambda: [written in path.read_text() for path in cluster.directory.rglob(CHECKPOINT)] == [True] * 3,
        "a checkpoint of the followers' log starts",
    )
    for broker in cluster.brokers:
        broker.kill9()
    for broker in cluster.brokers:
        broker.restart()
    wait_until(lambda: _ends(cluster, "cut") is not None, "a leader after all were gone")
    assert _ends(cluster, "cut") == (cut, end)


def _ends(cluster: RunningCluster, topic: str) -> tuple[int, int] | None:
    """Return start and end of the log, None without a leader; uses a client without cached state."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "log_level": 0})
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    except KafkaException:
        return None
    finally:
        consumer.close()
    return start, end


def _first_read(reader: dict[str, object], reset: str) -> int:
    """Return the offset of the first record that the group gets, or the error."""
    consumer = Consumer({**reader, "auto.offset.reset": reset})
    consumer.assign([TopicPartition("cut", 0)])
    try:
        for _ in range(40):
            message = consumer.poll(0.5)
            if message is not None:
                error = message.error()
                return int(error.code() if error else message.offset())
    finally:
        consumer.close()
    raise AssertionError("nothing came")


def test_a_follower_that_stands_still_is_waited_for(cluster: RunningCluster, admin: AdminClient) -> None:
    _create(admin, "slow")
    _produce(_producer(cluster), "slow", 10, value=b"small")
    leader = cluster.leader("slow", 0)
    assert leader is not None
    follower = next(broker for broker in cluster.brokers if broker.id != leader)
    # Knows the leader alone, so that it asks nothing of the broker that stands still; and is connected before it does,
    # since a broker that stands still for longer than its session is fenced, and not waited for.
    at_leader = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.broker(leader).port}"})
    assert _start(at_leader, "slow") == 0
    follower.pause()
    try:
        assert _refusal(at_leader, "slow", 7, timeout_s=0.3) == KafkaError.REQUEST_TIMED_OUT
        assert _start(at_leader, "slow") == 7, "the leader has done so"
    finally:
        follower.resume()
    cluster.wait_until_in_sync("slow")
    client = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        partition = KafkaPythonPartition("slow", 0)
        assert client.delete_records({partition: -1})[partition]["low_watermark"] == 10
        with pytest.raises(kafka.errors.OffsetOutOfRangeError):
            client.delete_records({partition: 11})
    finally:
        client.close()
    assert _start(admin, "slow") == 10


def test_timestamps_out_of_bounds_are_refused(cluster: RunningCluster, admin: AdminClient) -> None:
    _create(admin, "bounds", message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="60000")
    producer = _producer(cluster)
    for age_ms in (50_000, -50_000):
        _produce(producer, "bounds", 1, age_ms=age_ms, value=b"fits")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    codes: list[int] = []
    for age_ms in (70_000, -70_000):
        timestamp = int(time.time() * 1000) - age_ms
        producer.produce(
            "bounds", b"not", timestamp=timestamp, on_delivery=lambda error, _: codes.append(error.code())
        )
        producer.flush(60)
    assert codes == [KafkaError.INVALID_TIMESTAMP] * 2
    _set(admin, "bounds", message_timestamp_type="LogAppendTime")
    wait_until(lambda: _appended(cluster, admin), "the broker's clock to stamp")


def _appended(cluster: RunningCluster, admin: AdminClient) -> bool:
    before = int(time.time() * 1000)
    try:
        _produce(_producer(cluster), "bounds", 1, age_ms=2 * HOUR_MS, value=b"stamped")
    except AssertionError:
        return False
    return _offset(admin, "bounds", OffsetSpec.for_timestamp(before)) >= 0
