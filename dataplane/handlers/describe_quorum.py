"""DescribeQuorum (0-2): the metadata quorum as its leader sees it, asked for each request.

Kafka's clients see the quorum as the one partition of `__cluster_metadata`. All offsets are Raft indices, as in the
metric `ottla_quorum_applied_index`. A voter's log end is the index after its last entry on disk. The observers are the
brokers. A broker's log end is the index up to which it has followed the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import ErrorCode
from ...protocol.messages.quorum_description import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumNode,
    QuorumNodeListener,
    QuorumPartitionState,
    QuorumTopicState,
    ReplicaState,
)
from ...protocol.messages.quorum_session import QuorumStatus, ReplicaStanding
from ..security.authorization.needs import cluster
from ..server.handler import ClientRequest, handles

METADATA_TOPIC = "__cluster_metadata"
STATUS_TIMEOUT_S = 2.0
"""Timeout for the leader's answer; an election takes a small part of it."""
_NOBODY = -1
_UNKNOWN = -1


class QuorumView(Protocol):
    """The part of the quorum session that the handler uses."""

    @property
    def leader_id(self) -> int | None: ...
    @property
    def term(self) -> int: ...
    @property
    def voters(self) -> Mapping[int, tuple[str, int]]: ...

    @property
    def history_lost(self) -> str: ...

    async def quorum_status(self, timeout_s: float) -> QuorumStatus | None: ...


class DescribeQuorumHandlers:
    """Describes the voters, the leader, and the progress of each node."""

    def __init__(self, quorum: QuorumView) -> None:
        self._quorum = quorum

    @handles(DescribeQuorumRequest, 0, 2, needs=cluster(AclOperation.DESCRIBE))
    async def describe_quorum(
        self, _request: ClientRequest, message: DescribeQuorumRequest
    ) -> DescribeQuorumResponse:
        """Describe the quorum's log. Every other topic is unknown.

        The partition's error is REQUEST_TIMED_OUT if no leader answers. Then the answer has only the voters and the
        last leader. The error is BROKER_NOT_AVAILABLE if this broker does not follow the quorum because the quorum has
        lost entries.
        """
        known: QuorumPartitionState | None = None
        topics = []
        for asked in message.topics:
            partitions = []
            for partition in asked.partitions:
                if asked.topic_name == METADATA_TOPIC and partition.partition_index == 0:
                    known = known or await self._describe()
                    partitions.append(known)
                else:
                    partitions.append(_unknown(partition.partition_index))
            topics.append(QuorumTopicState(topic_name=asked.topic_name, partitions=partitions))
        return DescribeQuorumResponse(
            topics=topics,
            nodes=[
                QuorumNode(
                    node_id=node_id, listeners=[QuorumNodeListener(name="CONTROLLER", host=host, port=port)]
                )
                for node_id, (host, port) in sorted(self._quorum.voters.items())
            ],
        )

    async def _describe(self) -> QuorumPartitionState:
        if self._quorum.history_lost:
            return self._without_answer(ErrorCode.BROKER_NOT_AVAILABLE, self._quorum.history_lost)
        status = await self._quorum.quorum_status(STATUS_TIMEOUT_S)
        if status is None:
            return self._without_answer(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no leader of the metadata quorum has answered within {STATUS_TIMEOUT_S:g} s",
            )
        return QuorumPartitionState(
            leader_id=status.leader_id,
            leader_epoch=status.term,
            high_watermark=status.high_watermark,
            current_voters=_states(status.voters),
            observers=_states(status.observers),
        )

    def _without_answer(self, code: ErrorCode, reason: str) -> QuorumPartitionState:
        quorum = self._quorum
        return QuorumPartitionState(
            error_code=code,
            error_message=reason,
            leader_id=_NOBODY if quorum.leader_id is None else quorum.leader_id,
            leader_epoch=max(quorum.term, 0),
            high_watermark=_UNKNOWN,
            current_voters=[
                ReplicaState(replica_id=node_id, log_end_offset=_UNKNOWN) for node_id in sorted(quorum.voters)
            ],
        )


def _states(standings: Sequence[ReplicaStanding]) -> list[ReplicaState]:
    return [
        ReplicaState(
            replica_id=standing.node_id,
            log_end_offset=standing.log_end_offset,
            last_fetch_timestamp=standing.heard_at,
            last_caught_up_timestamp=standing.caught_up_at,
            abstains=standing.abstains,
        )
        for standing in standings
    ]


def _unknown(partition_index: int) -> QuorumPartitionState:
    return QuorumPartitionState(
        partition_index=partition_index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        leader_id=_NOBODY,
    )
