"""Time until the partitions of a dead broker can be written again, as the remaining brokers see it.

One record is written to each of a few partitions, by requests to every remaining broker, repeated until one
acknowledges it for all replicas in sync. A few stand for thousands: a client of thousands would use more of the
processors than the brokers do.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence

from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch

from .churn import Peer

Place = tuple[str, int]
"""Topic and partition."""

VERSION = 9
AGAIN_S = 0.005


def few_of(places: Sequence[Place], count: int) -> list[Place]:
    """Return `count` of the partitions, evenly spread, including the first and the last."""
    if len(places) <= count:
        return list(places)
    return [places[round(number * (len(places) - 1) / (count - 1))] for number in range(count)]


async def written_after(brokers: Sequence[str], places: Sequence[Place], since: float) -> list[float]:
    """Return seconds from `since`, a time of `time.monotonic()`, until each partition accepted a record; ascending."""
    took: dict[Place, float] = {}
    missing = set(places)

    async def ask(broker: str) -> None:
        peer = await Peer.connect(broker, "takeover")
        try:
            while missing:
                answer = await peer.ask(request(sorted(missing)), VERSION)
                now = time.monotonic()
                for topic in answer.responses:
                    for partition in topic.partition_responses:
                        if not partition.error_code and (topic.name, partition.index) in missing:
                            missing.discard((topic.name, partition.index))
                            took[topic.name, partition.index] = now - since
                await asyncio.sleep(AGAIN_S)
        finally:
            peer.close()

    await asyncio.gather(*map(ask, brokers))
    return sorted(took.values())


def request(places: Sequence[Place]) -> ProduceRequest:
    """Make a request with a record for each partition, acks=all."""
    batch = encode_batch([(None, b"x", int(time.time() * 1000))])
    by_topic: dict[str, list[PartitionProduceData]] = defaultdict(list)
    for topic, index in places:
        by_topic[topic].append(PartitionProduceData(index=index, records=batch))
    data = [TopicProduceData(name=topic, partition_data=parts) for topic, parts in by_topic.items()]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
