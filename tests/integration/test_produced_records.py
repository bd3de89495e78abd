"""A running broker and producers of invalid records: no record that would stop consumers enters a partition, and
accepted records can be found by their time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.compression import Compression, compress
from ottla.protocol.records.record import encode_batch
from tests.cluster import RunningCluster, running_cluster
from tests.dataplane.log.batches import raw_batch
from tests.protocol.produced import MALFORMED, TWO, produced, record, with_header
from tests.raw_peer import Peer

pytestmark = pytest.mark.cluster

VERSION = 9
HOUR_MS = 3600 * 1000
CODECS = list(Compression)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("produced"), quorum=1, brokers=1) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def peer(cluster: RunningCluster) -> Iterator[Peer]:
    peer = Peer(cluster.brokers[0].port)
    yield peer
    peer.close()


def create(admin: AdminClient, **config: str) -> str:
    name = f"t{uuid.uuid4().hex[:10]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(60)
    deadline = time.monotonic() + 60
    while admin.list_topics(name, 60).topics[name].partitions[0].leader < 0:
        assert time.monotonic() < deadline, f"{name} has no leader"
        time.sleep(0.02)
    return name


def produce(peer: Peer, topic: str, batch: bytes | bytearray) -> PartitionProduceResponse:
    data = PartitionProduceData(index=0, records=bytes(batch))
    message = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer: PartitionProduceResponse = peer.ask(message, VERSION, 20).responses[0].partition_responses[0]
    return answer


def values(cluster: RunningCluster, topic: str, count: int) -> list[bytes | None]:
    """Return the values that a stock client reads from the beginning."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "check.crcs": "true"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    return found


def test_what_nobody_could_read_stops_nobody(cluster: RunningCluster, admin: AdminClient, peer: Peer) -> None:
    topic = create(admin)
    good = 0
    for codec in CODECS:
        for what, (count, body, part) in MALFORMED.items():
            base = 2**62 if "64 bits" in what else 1_000
            refused = produce(
                peer, topic, raw_batch(count, compress(codec, body), timestamp=base, attributes=codec)
            )
            assert refused.error_code == ErrorCode.INVALID_RECORD, (codec, what)
            assert part in (refused.error_message or "") or not body, (codec, what)
        assert produce(peer, topic, produced(2, TWO, codec)).base_offset == 2 * good
        good += 1
        if codec:
            damaged = compress(codec, TWO)[:-3]
            refused = produce(peer, topic, raw_batch(2, damaged, attributes=codec))
            assert refused.error_code == ErrorCode.INVALID_RECORD, codec
            assert codec.name.lower() in (refused.error_message or "")
    assert values(cluster, topic, 2 * good) == [b"v"] * 2 * good


def test_a_batch_begins_at_offset_0_and_lz4_is_one_frame(admin: AdminClient, peer: Peer) -> None:
    topic = create(admin)
    elsewhere = produce(peer, topic, with_header(produced(2, TWO), base_offset=7))
    assert elsewhere.error_code == ErrorCode.INVALID_RECORD
    assert elsewhere.error_message == "the base offset of a produced batch is 0, not 7"
    half = len(TWO) // 2
    frames = compress(Compression.LZ4, TWO[:half]) + compress(Compression.LZ4, TWO[half:])
    refused = produce(peer, topic, raw_batch(2, frames, attributes=Compression.LZ4))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert "consumers read one" in (refused.error_message or "")
    assert produce(peer, topic, produced(2, TWO)).base_offset == 0


@pytest.mark.parametrize("claimed", [-1, 1])
def test_records_are_found_by_their_times_whatever_the_header_says(
    admin: AdminClient, peer: Peer, claimed: int
) -> None:
    """Some producers, e.g. Sarama before 1.45.1, leave the largest timestamp at -1."""
    topic, start = create(admin), int(time.time() * 1000) - HOUR_MS
    for number, codec in enumerate(CODECS):
        records = [(b"k", b"v", start + 100 * number + i) for i in range(5)]
        batch = with_header(encode_batch(records, compression=codec), max_timestamp=claimed)
        assert produce(peer, topic, batch).error_code == 0
    partition = TopicPartition(topic, 0)

    def found(spec: OffsetSpec) -> tuple[int, int]:
        found_offset = admin.list_offsets({partition: spec})[partition].result(60)
        return found_offset.offset, found_offset.timestamp - start

    for asked, offset, later_ms in ((0, 0, 0), (2, 2, 2), (100, 5, 100), (5, 5, 100), (404, 24, 404)):
        assert found(OffsetSpec.for_timestamp(start + asked)) == (offset, later_ms)
    assert found(OffsetSpec.max_timestamp()) == (24, 404)


@pytest.mark.parametrize("codec", CODECS)
def test_the_time_of_each_record_is_within_the_topics_bounds(
    admin: AdminClient, peer: Peer, codec: Compression
) -> None:
    topic, now = create(admin, message_timestamp_before_max_ms=str(HOUR_MS)), int(time.time() * 1000)
    times = [now, now + 2 * HOUR_MS, now - 2 * HOUR_MS, now]
    batch = encode_batch([(b"k", b"v", each) for each in times], compression=codec)
    refused = produce(peer, topic, with_header(batch, max_timestamp=now))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [1, 2]
    assert "message.timestamp.after.max.ms" in (refused.record_errors[0].batch_index_error_message or "")


def test_of_a_compacted_topic_the_records_without_a_key_are_named(admin: AdminClient, peer: Peer) -> None:
    topic = create(admin, cleanup_policy="compact")
    for codec in CODECS:
        refused = produce(
            peer, topic, produced(3, record(0, key=None) + record(1) + record(2, key=None), codec)
        )
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in refused.record_errors] == [0, 2]


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec])
def test_a_stock_producer_keeps_its_order_with_large_batches(
    cluster: RunningCluster, admin: AdminClient, codec: Compression
) -> None:
    topic, failures = create(admin), []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec.name.lower(),
            "linger.ms": 2,
        }
    )
    count = 3_000
    for number in range(count):
        value = b"%d " % number * (1 if number % 7 else 400)
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failures == []
    found = values(cluster, topic, count)
    assert [int((value or b"-1").split(b" ")[0]) for value in found] == [*range(count)]
