"""The ends of partitions on this broker, on another broker, and on brokers that do not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.peers.requests import PeerLost
from ottla.dataplane.share import partition_ends
from ottla.dataplane.share.partition_ends import PartitionEnds
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord

LEADERS = {0: 1, 1: 2, 2: 2, 3: 3, 4: 4, 5: -1}
"""Leader of each partition of topic t. Broker 1 reads, broker 2 answers, broker 3 is lost, broker 4 is silent."""


class Peers:
    """Brokers 2 to 4, of which broker 2 leads partition 1 only."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def ask(self, broker_id: int, request: ListOffsetsRequest, _version: int) -> asyncio.Future[Any]:
        self.asked.append(broker_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if broker_id == 3:
            answer.set_exception(PeerLost("broker 3 is gone"))
        if broker_id == 2:
            partitions = [
                ListOffsetsPartitionResponse(partition_index=part.partition_index, offset=70)
                if part.partition_index == 1
                else ListOffsetsPartitionResponse(
                    partition_index=part.partition_index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                )
                for part in request.topics[0].partitions
            ]
            answer.set_result(
                ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])
            )
        return answer


async def test_leaders_tell_the_ends_of_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_ends, "TIMEOUT_S", 0.01)
    image = ClusterImage()
    image.apply(TopicRecord(topic_id=b"t" * 16, name="t"))
    for index, leader in LEADERS.items():
        image.apply(
            PartitionRecord(topic_id=b"t" * 16, partition=index, replicas=[1], isr=[1], leader=leader)
        )
    own = SimpleNamespace(leader=object(), high_watermark=40)
    replicas: Any = SimpleNamespace(find=lambda topic, index: own if (topic, index) == ("t", 0) else None)
    peers = Peers()
    ends = PartitionEnds(1, replicas, cast(Any, peers), lambda: image)
    places = [*(("t", index) for index in LEADERS), ("t", 9), ("gone", 0)]
    assert await ends.read(places) == {("t", 0): 40, ("t", 1): 70}
    assert sorted(peers.asked) == [2, 3, 4], "one request to each leader"
