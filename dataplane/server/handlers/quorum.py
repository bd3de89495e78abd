"""DescribeQuorum (0-2): what this broker's session knows of the metadata quorum.

Kafka's clients see the quorum as the one partition of `__cluster_metadata`. Voters' log ends are known of the
leader alone, by its feed; the others are given as -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ....protocol.cluster_image import ClusterImage
from ....protocol.errors import ErrorCode
from ....protocol.messages.quorum_description import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumNode,
    QuorumNodeListener,
    QuorumPartitionState,
    QuorumTopicState,
    ReplicaState,
)
from ..handler import Request, handles

METADATA_TOPIC = "__cluster_metadata"
_NOBODY = -1
_UNKNOWN = -1


class QuorumView(Protocol):
    """What the session knows."""

    @property
    def image(self) -> ClusterImage: ...
    @property
    def leader_id(self) -> int | None: ...
    @property
    def term(self) -> int: ...
    @property
    def voters(self) -> Mapping[int, tuple[str, int]]: ...


class QuorumHandlers:
    """Who votes, who leads, and how far the broker has followed."""

    def __init__(self, quorum: QuorumView) -> None:
        self._quorum = quorum

    @handles(DescribeQuorumRequest, 0, 2)
    def describe_quorum(self, _request: Request, message: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """The quorum's log, whichever of its names was asked for; other topics are unknown."""
        quorum = self._quorum
        leader = _NOBODY if quorum.leader_id is None else quorum.leader_id
        topics = []
        for asked in message.topics:
            known = asked.topic_name == METADATA_TOPIC
            topics.append(
                QuorumTopicState(
                    topic_name=asked.topic_name,
                    partitions=[
                        self._partition(leader)
                        if known and partition.partition_index == 0
                        else QuorumPartitionState(
                            partition_index=partition.partition_index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            leader_id=_NOBODY,
                        )
                        for partition in asked.partitions
                    ],
                )
            )
        return DescribeQuorumResponse(
            topics=topics,
            nodes=[
                QuorumNode(
                    node_id=node_id, listeners=[QuorumNodeListener(name="CONTROLLER", host=host, port=port)]
                )
                for node_id, (host, port) in sorted(quorum.voters.items())
            ],
        )

    def _partition(self, leader: int) -> QuorumPartitionState:
        quorum = self._quorum
        return QuorumPartitionState(
            leader_id=leader,
            leader_epoch=max(quorum.term, 0),
            high_watermark=quorum.image.offset,
            current_voters=[
                ReplicaState(
                    replica_id=node_id,
                    log_end_offset=quorum.image.offset if node_id == leader else _UNKNOWN,
                )
                for node_id in sorted(quorum.voters)
            ],
        )
