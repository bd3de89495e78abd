"""The ends of partitions, which their leaders know: here, or over a request to another broker.

Followers learn the high watermark later. So a lag is computed from the leader's, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import CONSUMER_REPLICA_ID
from ...protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ..peers.requests import PeerLost, PeerRequests
from ..replication.replicas.replicas import Replicas

logger = logging.getLogger(__name__)

_Place = tuple[str, int]
"""Topic and partition index."""

TIMEOUT_S: Final = 10.0
"""Time within which a broker has to answer."""
_VERSION: Final = 7
"""A version of ListOffsets that all brokers of a cluster with share groups serve."""
_AT_ONCE: Final = 2_000
"""Maximum number of partitions in a request."""


class PartitionEnds:
    """The high watermarks of partitions of the cluster."""

    def __init__(
        self, node_id: int, replicas: Replicas, peers: PeerRequests, image: Callable[[], ClusterImage]
    ) -> None:
        self._node_id, self._replicas, self._peers, self._image = node_id, replicas, peers, image

    async def read(self, partitions: Iterable[_Place]) -> Mapping[_Place, int]:
        """Return the high watermark of each partition whose leader answers in time."""
        found: dict[_Place, int] = {}
        elsewhere: dict[int, list[_Place]] = {}
        for place in partitions:
            leader = self._leader(*place)
            if leader == self._node_id:
                replica = self._replicas.find(*place)
                if replica is not None and replica.leader is not None:
                    found[place] = replica.high_watermark
            elif leader >= 0:
                elsewhere.setdefault(leader, []).append(place)
        answers = await asyncio.gather(
            *(
                self._ask(leader, places[first : first + _AT_ONCE])
                for leader, places in elsewhere.items()
                for first in range(0, len(places), _AT_ONCE)
            )
        )
        for answer in answers:
            found.update(answer)
        return found

    def _leader(self, topic: str, index: int) -> int:
        """Return the broker that leads a partition; -1 without a leader."""
        entry = self._image().topics.get(topic)
        partition = None if entry is None else entry.partitions.get(index)
        return -1 if partition is None else partition.leader

    async def _ask(self, leader: int, places: Iterable[_Place]) -> dict[_Place, int]:
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(
                ListOffsetsPartition(partition_index=index, timestamp=LATEST)
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in by_topic.items()],
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = await self._peers.ask(leader, request, _VERSION)
        except (PeerLost, TimeoutError) as error:
            logger.info(
                "broker %d does not tell the ends of its partitions: %s", leader, error or "no answer"
            )
            return {}
        return {
            (topic.name, part.partition_index): part.offset
            for topic in response.topics
            for part in topic.partitions
            if part.error_code == ErrorCode.NONE
        }
