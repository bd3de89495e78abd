"""What the fetcher asks whom, when leaders move while it is about to ask."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.client.connections.cluster import Cluster
from ottla.client.consuming.fetched import TopicPartition
from ottla.client.consuming.fetcher import EARLIEST, Fetcher, FetchOptions
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PLACE = TopicPartition("orders", 0)
OPTIONS = FetchOptions(
    read_committed=False,
    reset_timestamp=EARLIEST,
    max_wait_ms=10,
    min_bytes=1,
    max_bytes=1000,
    max_partition_bytes=1000,
    request_timeout_ms=1000,
    retry_backoff_max_ms=10,
    check_crcs=True,
)


def known() -> MetadataResponse:
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=4)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=number, host="localhost", port=number) for number in (1, 2)],
        topics=[MetadataResponseTopic(name=PLACE.topic, topic_id=bytes(16), partitions=[partition])],
    )


class Asked:
    """A connection that notes what is asked over it, and never answers."""

    def __init__(self, cluster: MovingCluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id

    def version_for(self, _request: object, at_most: int) -> int:
        return at_most

    async def request(self, message: FetchRequest, **_: Any) -> FetchResponse:
        epoch = message.topics[0].partitions[0].current_leader_epoch
        self._cluster.asked.put_nowait((self._broker_id, epoch))
        await asyncio.Event().wait()
        raise AssertionError


class MovingCluster(Cluster):
    """Broker 2 takes the partition over while a connection to broker 1 is made."""

    def __init__(self) -> None:
        super().__init__("localhost:1")
        self.metadata.update(known())
        self.asked: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    async def connection(self, broker_id: int, lane: str = "") -> Any:
        await asyncio.sleep(0)
        self.metadata.learn_leader(*PLACE, 2, 5)
        return Asked(self, broker_id)


async def test_a_broker_that_leads_no_more_is_not_asked_in_the_epoch_of_its_successor() -> None:
    """It may follow in that epoch, with less than the leader has: it would say that the offset is out of range."""
    cluster = MovingCluster()
    fetcher = Fetcher(cluster, OPTIONS)
    fetcher.assign([PLACE])
    fetcher.assigned[PLACE].seek(22)
    fetcher.start()
    try:
        assert await asyncio.wait_for(cluster.asked.get(), 10) == (2, 5)
        assert cluster.asked.empty()
    finally:
        await fetcher.stop()
