"""confluent-kafka (librdkafka) against a cluster of three brokers."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

pytestmark = pytest.mark.cluster


def produce(bootstrap: str, topic: str, values: list[bytes], **config: object) -> None:
    """Write all values, or fail with the first error."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda e, _m: errors.append(str(e)) if e else None)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert not errors, errors[:3]


def consume(
    bootstrap: str, topic: str, count: int, *, group: str | None = None, deadline_s: float = 30
) -> list[bytes]:
    """Read `count` values from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group or uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    values: list[bytes] = []
    deadline = time.monotonic() + deadline_s
    try:
        consumer.subscribe([topic])
        while len(values) < count:
            assert time.monotonic() < deadline, f"{len(values)} of {count} read"
            for message in consumer.consume(1_000, 0.2):
                if message.error():
                    raise KafkaException(message.error())
                values.append(message.value() or b"")
        if group:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting(bootstrap: str, new_topic: str, acks: str) -> None:
    values = [str(n).encode() for n in range(500)]
    produce(bootstrap, new_topic, values, acks=acks, **{"enable.idempotence": acks == "all"})
    assert sorted(consume(bootstrap, new_topic, len(values))) == sorted(values)


def test_order_within_a_key_is_kept(bootstrap: str, new_topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(3_000):
        producer.produce(new_topic, str(n).encode(), key=str(n % 7).encode())
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([new_topic])
    last: dict[bytes, int] = {}
    seen, deadline = 0, time.monotonic() + 60
    while seen < 3_000:
        assert time.monotonic() < deadline
        for message in consumer.consume(1_000, 0.2):
            assert message.error() is None
            key, value = message.key() or b"", int(message.value() or b"-1")
            assert value > last.get(key, -1)
            last[key] = value
            seen += 1
    consumer.close()


def test_committed_offsets_are_where_the_next_member_starts(bootstrap: str, new_topic: str) -> None:
    group = f"g-{new_topic}"
    produce(bootstrap, new_topic, [b"first"] * 100)
    assert consume(bootstrap, new_topic, 100, group=group) == [b"first"] * 100
    produce(bootstrap, new_topic, [b"second"] * 50)
    assert consume(bootstrap, new_topic, 50, group=group) == [b"second"] * 50


def test_a_member_that_leaves_gives_its_partitions_to_the_other(bootstrap: str, new_topic: str) -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"g-{new_topic}",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
    }
    survivor, leaving = Consumer(config), Consumer(config)
    survivor.subscribe([new_topic])
    leaving.subscribe([new_topic])
    deadline = time.monotonic() + 60
    while not (survivor.assignment() and leaving.assignment()):
        assert time.monotonic() < deadline
        survivor.poll(0.1)
        leaving.poll(0.1)
    shared = len(survivor.assignment())
    leaving.close()
    while len(survivor.assignment()) <= shared:
        assert time.monotonic() < deadline
        survivor.poll(0.1)
    produce(bootstrap, new_topic, [str(n).encode() for n in range(300)])
    seen = 0
    while seen < 300:
        assert time.monotonic() < deadline
        seen += sum(1 for m in survivor.consume(500, 0.2) if not m.error())
    survivor.close()


def test_watermarks_and_offsets_for_times(bootstrap: str, one_partition: str) -> None:
    before = int(time.time() * 1000) - 1
    produce(bootstrap, one_partition, [b"v"] * 10)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
    assert consumer.get_watermark_offsets(TopicPartition(one_partition, 0), timeout=60) == (0, 10)
    found = consumer.offsets_for_times([TopicPartition(one_partition, 0, before)], timeout=60)
    assert found[0].offset == 0
    late = consumer.offsets_for_times([TopicPartition(one_partition, 0, before + 3_600_000)], timeout=60)
    assert late[0].offset == -1
    consumer.close()


def test_topics_are_created_described_grown_and_deleted(bootstrap: str, admin: AdminClient) -> None:
    name = f"admin-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 2, 3, config={"retention.ms": "60000"})])[name].result(60)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(name, 2, 3)])[name].result(60)
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "60000"
    resource.add_incremental_config(
        ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(60)
    with pytest.raises(AssertionError, match=r"MSG_SIZE_TOO_LARGE|Message size too large"):
        produce(bootstrap, name, [b"x" * 5_000])
    admin.create_partitions([NewPartitions(name, 5)])[name].result(60)
    deadline = time.monotonic() + 60
    while len(admin.list_topics(name, 60).topics[name].partitions) != 5:
        assert time.monotonic() < deadline
    admin.delete_topics([name])[name].result(60)
    while name in admin.list_topics(timeout=60).topics:
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (NewTopic("bad name!", 1, 1), "INVALID_TOPIC_EXCEPTION|TOPIC_EXCEPTION"),
        (NewTopic("x" * 250, 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("too-many-replicas", 1, 7), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("no-partitions", 0, 1), "INVALID_PARTITIONS"),
        (NewTopic("bad-config", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (NewTopic("unknown-config", 1, 1, config={"retension.ms": "1"}), "INVALID_CONFIG"),
    ],
)
def test_bad_topics_are_refused_with_kafkas_codes(admin: AdminClient, topic: NewTopic, message: str) -> None:
    with pytest.raises(KafkaException, match=message):
        admin.create_topics([topic])[topic.topic].result(60)
