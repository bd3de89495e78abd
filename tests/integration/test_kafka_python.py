"""kafka-python 3: asks for the newest versions it knows and turns idempotence on by default."""

from __future__ import annotations

import time
import uuid

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back(bootstrap: str, new_topic: str, codec: str | None) -> None:
    values = [f"{codec} {n} {'z' * 50}".encode() for n in range(300)]
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5, acks="all")
    futures = [producer.send(new_topic, v) for v in values]
    producer.flush(30)
    assert all(f.get(10).offset >= 0 for f in futures)
    producer.close()
    consumer = KafkaConsumer(
        new_topic,
        bootstrap_servers=bootstrap,
        group_id=f"g-{uuid.uuid4().hex}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    read: list[bytes] = []
    deadline = time.monotonic() + 40
    while len(read) < len(values):
        assert time.monotonic() < deadline, f"{len(read)} of {len(values)} read"
        for records in consumer.poll(200).values():
            read += [r.value for r in records]
    consumer.commit()
    consumer.close()
    assert sorted(read) == sorted(values)


def test_admin_and_its_errors(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    name = f"kp-{uuid.uuid4().hex[:8]}"
    try:
        admin.create_topics([NewTopic(name, 3, 2)])
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(name, 3, 2)])
        described = admin.describe_topics([name])
        assert len(described[0]["partitions"]) == 3
        admin.delete_topics([name])
    finally:
        admin.close()
