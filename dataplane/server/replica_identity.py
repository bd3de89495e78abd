"""The check that a request comes from the broker whose replica id it names.

Consumers send -1, and Kafka's debugging tools send -2. Any other id needs a connection on which that broker has proved
its identity (`AuthenticateNode`).
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError
from .handler import ClientRequest


def is_proven(request: ClientRequest, replica_id: int) -> bool:
    """Return whether the peer may use the replica id in its request: the id is a consumer's (-1) or a debugging tool's
    (-2), or the peer has proved to be that broker.
    """
    return replica_id < 0 or request.connection.is_broker(replica_id)


def unproven() -> KafkaError:
    """Return TOPIC_AUTHORIZATION_FAILED, which Kafka answers to a follower without the right CLUSTER_ACTION."""
    return KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the connection has not proved to come from that broker"
    )
