"""Every stock client writes with every codec, the stored batches use that codec, and the client reads all of them
again.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.client.connections.cluster import Cluster
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record_batch import walk_batches
from tests.integration.conftest import create
from tests.integration.history import Place
from tests.integration.stock_clients import CODECS, NAMES, installed, number_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

BY_NAME = 12
"""Highest version of Fetch with topic names instead of ids."""
COUNT = 300


async def stored_codecs(bootstrap: str, topic: str) -> dict[Place, str]:
    """Return the codec of the batch of every record in a topic."""
    found: dict[Place, str] = {}
    async with Cluster(bootstrap) as cluster:
        await cluster.refresh([topic])
        for partition, info in cluster.metadata.topics[topic].partitions.items():
            connection = await cluster.connection(info.leader)
            offset, high_watermark = 0, 1
            while offset < high_watermark:
                wanted = FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=1_000_000
                )
                request = FetchRequest(max_wait_ms=100, topics=[FetchTopic(topic=topic, partitions=[wanted])])
                version = connection.version_for(FetchRequest, at_most=BY_NAME)
                answer = (await connection.request(request, version=version)).responses[0].partitions[0]
                assert answer.error_code == 0
                high_watermark = answer.high_watermark
                for _, header in walk_batches(answer.records or b"", partial_tail=True):
                    codec = Compression(header.attributes & 7).name.lower()
                    offset = header.next_offset
                    found |= {Place(partition, at): codec for at in range(header.base_offset, offset)}
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_codec_is_written_and_read(
    bootstrap: str, admin: AdminClient, tmp_path: Path, name: str
) -> None:
    client, topic = installed(tmp_path)[name], create(admin, 3)
    with ExitStack() as stack:
        producers = {
            codec: stack.enter_context(client.producer(bootstrap, topic, codec=codec, count=COUNT))
            for codec in CODECS
        }
        with client.consumer(bootstrap, topic, f"g-{topic}") as consumer:
            for producer in producers.values():
                producer.wait_end()
                assert producer.failures == []
            consumer.wait_until(lambda: len(consumer.read) >= COUNT * len(CODECS), "all records")
    codecs = asyncio.run(stored_codecs(bootstrap, topic))
    for codec, producer in producers.items():
        assert len(producer.acknowledged) == COUNT, producer.said
        assert {codecs[place] for place, _ in producer.acknowledged} == {codec}
    assert {record.place for record in consumer.read} == codecs.keys()
    numbers = sorted(number_of(record.value) for record in consumer.read)
    assert numbers == sorted([*range(COUNT)] * len(CODECS))
