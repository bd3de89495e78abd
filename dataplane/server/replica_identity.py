"""Whether a request comes from the broker whose replica id it names.

Consumers send -1, and Kafka's tools that debug send -2. Any other id needs a connection on which that broker has
proved itself (`AuthenticateNode`).
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from .handler import ClientRequest


def is_proven(request: ClientRequest, replica_id: int) -> bool:
    """Whether the peer is what it says it is: a consumer, a tool that debugs, or that broker."""
    return replica_id < 0 or request.connection.is_broker(replica_id)


def unproven() -> KafkaError:
    """TOPIC_AUTHORIZATION_FAILED, as for a follower in Kafka that may not do CLUSTER_ACTION."""
    return KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the connection has not proved to come from that broker"
    )
