"""Who leads what: what answers tell clients that asked the wrong broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.protocol.cluster_image import ClusterImage, TopicState
from ottla.protocol.errors import ErrorCode

from .endpoints import Endpoint, endpoint

LEADERSHIP_ERRORS = frozenset({int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH)})
"""Errors after which a client is told who leads."""


def leader_of(topic: TopicState | None, index: int) -> tuple[int, int]:
    """Leader id and leader epoch as the cluster image has them; (-1, -1) if there is none."""
    partition = None if topic is None else topic.partitions.get(index)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


def endpoints(image: ClusterImage, broker_ids: Iterable[int], listener: str) -> Iterator[Endpoint]:
    """Where clients of `listener` reach these brokers; those they cannot reach are left out."""
    for broker_id in sorted(broker_ids):
        broker = image.brokers.get(broker_id)
        found = None if broker is None else endpoint(broker, listener)
        if found is not None:
            yield found
