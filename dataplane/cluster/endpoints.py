"""Addresses of brokers for clients, and leaders of partitions, from this broker's image of the cluster.

The answer to a client that asked the wrong broker contains the leader and its address (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...protocol.cluster.cluster_image import BrokerState, ClusterImage, TopicState
from ...protocol.errors import ErrorCode

LEADERSHIP_ERRORS = frozenset({int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH)})
"""Errors whose answer names the current leader."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which clients of one listener reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None


def endpoint(broker: BrokerState, listener_name: str) -> Endpoint | None:
    """Return the broker's address on a listener; None if the broker is fenced or has no such listener."""
    return None if broker.fenced else registered_endpoint(broker, listener_name)


def registered_endpoint(broker: BrokerState, listener_name: str) -> Endpoint | None:
    """Return the broker's address on a listener, whether fenced or not; None if it has no such listener."""
    for listener in broker.listeners:
        if listener.name == listener_name:
            return Endpoint(broker.broker_id, listener.host, listener.port, broker.rack)
    return None


def live_endpoints(image: ClusterImage, listener_name: str) -> Iterator[Endpoint]:
    """Yield all brokers that clients of a listener can reach, by id."""
    for broker_id in sorted(image.brokers):
        found = endpoint(image.brokers[broker_id], listener_name)
        if found is not None:
            yield found


def controller_id(live: list[Endpoint], own_broker_id: int) -> int:
    """Return the broker to report as the controller: this one if it is live, else the first live one, else -1.

    Any live broker passes commands on to the quorum.
    """
    if any(found.broker_id == own_broker_id for found in live):
        return own_broker_id
    return live[0].broker_id if live else -1


def leader_of(topic: TopicState | None, index: int) -> tuple[int, int]:
    """Return leader id and leader epoch in the cluster image; (-1, -1) if there is no such partition."""
    partition = None if topic is None else topic.partitions.get(index)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


def endpoints_of(image: ClusterImage, broker_ids: Iterable[int], listener: str) -> Iterator[Endpoint]:
    """Yield the addresses of these brokers for clients of `listener`; unreachable brokers are left out."""
    for broker_id in sorted(broker_ids):
        broker = image.brokers.get(broker_id)
        found = None if broker is None else endpoint(broker, listener)
        if found is not None:
            yield found
