"""What the metadata handlers need of the rest of the broker: its image of the cluster, and a way to change
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ottla.protocol.cluster_image import BrokerState, ClusterImage
from ottla.protocol.messages.quorum_commands import Command
from ottla.protocol.schema import Message

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

# Bits by Kafka's operation codes: what anyone may do while there is no authorizer.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
OPERATIONS_NOT_ASKED_FOR = -2147483648


class Quorum(Protocol):
    """The session with the metadata quorum."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it; changed only between turns of the event loop."""
        ...

    async def submit(self, command: Command, timeout_ms: int | None = None) -> Message:
        """Have a command applied exactly once and return its result, once the image contains its effects.

        Raises KafkaError, REQUEST_TIMED_OUT among them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients of one listener reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None


def endpoint(broker: BrokerState, listener_name: str) -> Endpoint | None:
    """The broker's address on a listener, None if it is fenced or has no such listener."""
    return None if broker.fenced else registered_endpoint(broker, listener_name)


def registered_endpoint(broker: BrokerState, listener_name: str) -> Endpoint | None:
    """The broker's address on a listener, fenced or not; None if it has no such listener."""
    for listener in broker.listeners:
        if listener.name == listener_name:
            return Endpoint(broker.broker_id, listener.host, listener.port, broker.rack)
    return None


def live_endpoints(image: ClusterImage, listener_name: str) -> Iterator[Endpoint]:
    """All brokers that clients of a listener can reach, by id."""
    for broker_id in sorted(image.brokers):
        found = endpoint(image.brokers[broker_id], listener_name)
        if found is not None:
            yield found


def controller_id(endpoints: list[Endpoint], own_broker_id: int) -> int:
    """Whom to name as controller: any live broker passes commands on, so this one if it is live; -1 if none
    is.
    """
    if any(found.broker_id == own_broker_id for found in endpoints):
        return own_broker_id
    return endpoints[0].broker_id if endpoints else -1
