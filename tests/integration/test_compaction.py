"""Compaction under real brokers and stock clients: disks shrink, and readers and groups see what they saw."""

from __future__ import annotations

import random
import shutil
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import RunningCluster, running_cluster, wait_until

pytestmark = pytest.mark.cluster

KEYS, UPDATES, VALUE_BYTES = 100, 80, 1000
SEGMENT_BYTES = 1 << 20
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
}


def _folders(cluster: RunningCluster, name: str) -> list[Path]:
    return [path for path in cluster.directory.rglob(name) if path.is_dir()]


def _is_of(folder: Path, broker_id: int) -> bool:
    return f"node.id={broker_id}" in (folder.parent / "meta.properties").read_text().split()


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log") if path.exists())


def _produce(bootstrap: str, topic: str, seed: int) -> dict[bytes, bytes]:
    """Write many updates of few keys, the last of some of them a tombstone; return the resulting state."""
    chance = random.Random(seed)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 50,  # many to a segment, of which only the last one is sure to stay
        }
    )
    state: dict[bytes, bytes | None] = {}
    for update in range(UPDATES):
        for number in range(KEYS):
            key = b"key-%03d" % number
            gone = update == UPDATES - 1 and number % 5 == 0
            value = None if gone else chance.randbytes(VALUE_BYTES)
            state[key] = value
            producer.produce(topic, value, key)
        producer.poll(0)
    assert producer.flush(60) == 0
    return {key: value for key, value in state.items() if value is not None}


def _read(bootstrap: str, topic: str) -> tuple[dict[bytes, bytes], int]:
    """Return the last value of each key, and the number of records."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    state: dict[bytes, bytes | None] = {}
    count, last = 0, -1
    while True:
        message = consumer.poll(60)
        assert message is not None, "nothing comes"
        if message.error() is not None:
            break
        assert message.offset() > last
        last = message.offset()
        state[message.key()] = message.value()
        count += 1
    consumer.close()
    return {key: value for key, value in state.items() if value is not None}, count


def _commit_often(bootstrap: str, group: str, topic: str, count: int) -> None:
    """Commit often; each commit writes four KiB of metadata to `__consumer_offsets`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    metadata = "m" * 4000
    for offset in range(1, count + 1):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
    consumer.close()


def _committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=20)
        return int(found.offset)
    except KafkaException:
        return -1
    finally:
        consumer.close()


def test_disks_shrink_and_every_replica_says_the_same(tmp_path: Path) -> None:
    with running_cluster(tmp_path, quorum=1, brokers=3, settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(
            "table", 1, 3, config={"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        )
        admin.create_topics([topic])["table"].result(60)
        state = _produce(cluster.bootstrap, "table", seed=1)
        written = KEYS * UPDATES * VALUE_BYTES

        folders = _folders(cluster, "table-0")
        assert len(folders) == 3
        wait_until(
            lambda: all(_log_bytes(folder) < written / 3 for folder in folders), "three smaller logs", 40
        )
        assert _read(cluster.bootstrap, "table")[0] == state

        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        failures: list[object] = []
        producer.produce("table", b"no key", on_delivery=lambda error, _: failures.append(error))
        producer.flush(60)
        assert failures[0] is not None
        assert "INVALID_RECORD" in str(failures[0])

        _commit_often(cluster.bootstrap, "group", "table", 800)
        offsets = _folders(cluster, "__consumer_offsets-0")
        wait_until(
            lambda: all(_log_bytes(folder) < 2.5 * SEGMENT_BYTES for folder in offsets),
            "smaller logs of offsets", 40,
        )  # fmt: skip

        leader = cluster.leader("table", 0)
        coordinator = cluster.leader("__consumer_offsets", 0)
        for broker_id in {leader, coordinator}:
            assert broker_id is not None
            cluster.broker(broker_id).kill9()
            wait_until(lambda: cluster.leader("table", 0) not in (None, broker_id), "another leader")  # noqa: B023
            assert _read(cluster.bootstrap, "table")[0] == state
            wait_until(lambda: _committed(cluster.bootstrap, "group", "table") == 800, "the committed offset")
            lost = next(folder for folder in folders if _is_of(folder, broker_id))
            shutil.rmtree(lost)
            cluster.broker(broker_id).restart()
            cluster.wait_until_in_sync("table")
            cluster.wait_until_in_sync("__consumer_offsets")
            assert (lost / "offset-gaps").exists(), "it copies its lost records, including gaps"
