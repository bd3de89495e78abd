"""Methods about the cluster and its metadata quorum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ...protocol.errors import ErrorCode
from ...protocol.messages.cluster import DescribeClusterBroker, DescribeClusterRequest
from ...protocol.messages.quorum_description import (
    DescribeQuorumRequest,
    QuorumPartitionAsked,
    QuorumTopicAsked,
    ReplicaState,
)
from ..bounds import BrokerId, Within
from ..connections.metadata import BrokerAddress
from .admin_base import AdminBase
from .session import TELLS_FENCED, check
from .values import ClusterDescription, FencedBroker, QuorumDescription

SILENT_MS = 3_000
"""Time in ms without a fetch after which a voter counts as silent. Followers fetch many times a second; Apache Kafka's
fetch at least every 500 ms."""


class ClusterAdmin(AdminBase):
    """The methods that describe the cluster and its quorum."""

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster id and the brokers."""
        connection = await self.session.cluster.any_connection()
        tells_fenced = connection.version_for(DescribeClusterRequest) >= TELLS_FENCED
        request = DescribeClusterRequest(include_fenced_brokers=tells_fenced)
        response = await connection.request(request)
        check(response.error_code, "cluster", response.error_message)
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            tuple(_address(broker) for broker in response.brokers if not broker.is_fenced),
            tuple(
                FencedBroker(_address(broker), None if broker.fenced_since_ms < 0 else broker.fenced_since_ms)
                for broker in response.brokers
                if broker.is_fenced
            ),
            {broker.broker_id: broker.machine for broker in response.brokers if broker.machine is not None},
        )

    async def describe_quorum(
        self, *, broker_id: BrokerId | None = None, timeout_ms: Annotated[float, Within(0)] | None = None
    ) -> QuorumDescription:
        """Return the voters and the leader of the metadata quorum, as any broker, or the broker `broker_id`, sees them.

        A broker that gets no answer from the leader still reports the voters and the leader that it knows. Raises
        KafkaError: BROKER_NOT_AVAILABLE from a broker of Ottla that does not follow the quorum, since it has lost
        entries.
        """
        asked = QuorumTopicAsked(topic_name="__cluster_metadata", partitions=[QuorumPartitionAsked()])
        request = DescribeQuorumRequest(topics=[asked])
        if broker_id is None:
            response = await self.session.cluster.ask_any(request, timeout_ms=timeout_ms)
        else:
            response = await self.session.cluster.ask(broker_id, request, timeout_ms=timeout_ms)
        check(response.error_code, "quorum", response.error_message)
        state = response.topics[0].partitions[0]
        if not (state.error_code == ErrorCode.REQUEST_TIMED_OUT and state.current_voters):
            check(state.error_code, "quorum", state.error_message)
        addresses = {
            node.node_id: (node.listeners[0].host, node.listeners[0].port)
            for node in response.nodes
            if node.listeners
        }
        return QuorumDescription(
            None if state.leader_id < 0 else state.leader_id,
            state.leader_epoch,
            {voter.replica_id: addresses.get(voter.replica_id) for voter in state.current_voters},
            tuple(voter.replica_id for voter in state.current_voters if voter.abstains),
            silent_voters(state.current_voters),
        )


def _address(broker: DescribeClusterBroker) -> BrokerAddress:
    return BrokerAddress(broker.broker_id, broker.host, broker.port, broker.rack)


def silent_voters(voters: Sequence[ReplicaState]) -> tuple[int, ...]:
    """Return the voters that the leader has not heard from for SILENT_MS, by the leader's clock, which is its own last
    fetch timestamp. The result is empty if the answer has no timestamps."""
    now = max((voter.last_fetch_timestamp for voter in voters), default=-1)
    if now < 0:
        return ()
    return tuple(voter.replica_id for voter in voters if voter.last_fetch_timestamp < now - SILENT_MS)
