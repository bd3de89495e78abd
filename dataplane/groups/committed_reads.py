"""Committed offsets of groups, wherever their coordinators are: here, or over a request to another broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..coordinated_log.key_hash import leader_for
from ..peers.requests import PeerLost, PeerRequests
from .coordinator import GroupCoordinator

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
"""Time within which a coordinator has to answer."""
_VERSION: Final = 10
"""A version of OffsetFetch with the ids of topics: a later topic of the same name has other offsets."""


class CommittedReads:
    """The committed offsets of groups of the cluster."""

    def __init__(
        self, node_id: int, groups: GroupCoordinator, peers: PeerRequests, image: Callable[[], ClusterImage]
    ) -> None:
        self._node_id, self._groups, self._peers, self._image = node_id, groups, peers, image

    async def read(self, group_id: str, topic: str) -> Mapping[int, int] | None:
        """Return by partition the offsets that a group has committed for a topic; None if its coordinator does not
        answer in time."""
        image = self._image()
        known = image.topics.get(topic)
        coordinator = leader_for(group_id, OFFSETS_TOPIC, image)
        if known is None or coordinator < 0:
            return None
        try:
            if coordinator == self._node_id:
                return self._own(group_id, topic, known.id)
            async with asyncio.timeout(TIMEOUT_S):
                asked = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
                answer = await self._peers.ask(coordinator, OffsetFetchRequest(groups=asked), _VERSION)
            return _offsets(answer, known.id)
        except (KafkaError, PeerLost, TimeoutError) as error:
            logger.info(
                "broker %d does not report the offsets of group %s: %s",
                coordinator,
                group_id,
                error or "no answer",
            )
            return None

    def _own(self, group_id: str, topic: str, topic_id: bytes) -> dict[int, int]:
        """Return the offsets of a group that this broker coordinates. Raises KafkaError if it does not, or not yet."""
        committed = self._groups.shard_for(group_id).offsets.view(group_id)
        return {
            index: each.offset
            for (name, index), each in committed.items()
            if name == topic and each.is_of(topic_id)
        }


def _offsets(answer: OffsetFetchResponse, topic_id: bytes) -> dict[int, int]:
    """Return the offsets of a topic in an answer about one group. Raises KafkaError for an error of the group."""
    found: dict[int, int] = {}
    for group in answer.groups:
        if group.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(group.error_code))
        for topic in group.topics:
            if topic.topic_id == topic_id:
                found.update(
                    (part.partition_index, part.committed_offset)
                    for part in topic.partitions
                    if part.error_code == ErrorCode.NONE and part.committed_offset >= 0
                )
    return found
