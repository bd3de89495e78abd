"""Records of the metadata stream: each is the full new state of one thing, so that folding is replacing.

On the wire and in snapshots a record is a type number (one byte) and the message at version 0; all are
flexible, so fields may be added as tagged ones. `docs/ARCHITECTURE.md` tells how they travel.
"""

from __future__ import annotations

from typing import TypeAlias

from ..codec import MalformedMessage, decode, encode
from ..schema import ZERO_UUID, Message, array, boolean, data, int8, int32, int64, string, uint16, uuid


@data()
class ClusterRecord(Message):
    """The cluster was formed."""

    cluster_id: str = string(about="Chosen when the cluster was set up.")


@data()
class BrokerListener(Message):
    """One address of a broker."""

    name: str = string(about="Name of the listener.")
    host: str = string(about="Where it is reached.")
    port: int = uint16(about="TCP port.")
    security_protocol: str = string(default="PLAINTEXT", about="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.")


@data()
class BrokerRecord(Message):
    """A registered broker."""

    broker_id: int = int32(about="Its node.id.")
    broker_epoch: int = int64(default=-1, about="Epoch of this registration; rises with each.")
    incarnation: bytes = uuid(default=ZERO_UUID, about="Chosen anew by each process.")
    listeners: list[BrokerListener] = array(BrokerListener, about="Where it is reached.")
    rack: str | None = string(nullable="0+", default=None, about="broker.rack; null without.")
    fenced: bool = boolean(default=True, about="Registered, but may not lead nor join an ISR.")
    shutting_down: bool = boolean(about="Leaving in good order: gets no new leaderships.")
    log_dirs: list[bytes] = array(uuid, about="Ids of its log directories.")


@data()
class BrokerRemovedRecord(Message):
    """A broker was unregistered."""

    broker_id: int = int32(about="Its node.id.")


@data()
class TopicRecord(Message):
    """A topic; its partitions follow in records of their own."""

    topic_id: bytes = uuid(about="Never used again.")
    name: str = string(about="Name, unique among the topics that exist.")


@data()
class TopicRemovedRecord(Message):
    """A topic was deleted, with its partitions and configuration."""

    topic_id: bytes = uuid(about="Which.")


@data()
class PartitionRecord(Message):
    """One partition's state."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Index in the topic.")
    replicas: list[int] = array(int32, about="Assigned brokers, the preferred leader first.")
    isr: list[int] = array(int32, about="In-sync replicas.")
    elr: list[int] = array(int32, about="Eligible leader replicas: out of the ISR, yet complete (KIP-966).")
    last_known_elr: list[int] = array(int32, about="Last leader before the ISR and the ELR ran empty.")
    leader: int = int32(default=-1, about="-1 without one.")
    leader_epoch: int = int32(about="Rises with each leadership.")
    partition_epoch: int = int32(about="Rises with each change of this record.")
    unclean: bool = boolean(about="This leadership came from an unclean election.")


@data()
class ConfigRecord(Message):
    """One dynamic setting."""

    resource_type: int = int8(about="2 topic, 4 broker (Kafka's numbers).")
    resource_name: str = string(about="Topic name or broker id; empty: all brokers.")
    config_name: str = string(about="Key.")
    value: str | None = string(nullable="0+", default=None, about="Null removes the setting.")


@data()
class ProducerIdsRecord(Message):
    """Producer ids below this are taken."""

    next_producer_id: int = int64(about="The first free one.")


MetadataRecord: TypeAlias = (
    ClusterRecord
    | BrokerRecord
    | BrokerRemovedRecord
    | TopicRecord
    | TopicRemovedRecord
    | PartitionRecord
    | ConfigRecord
    | ProducerIdsRecord
)

# Numbers are for ever: a new record gets a new one.
_TYPES: dict[int, type[MetadataRecord]] = {
    1: ClusterRecord,
    2: BrokerRecord,
    3: BrokerRemovedRecord,
    4: TopicRecord,
    5: TopicRemovedRecord,
    6: PartitionRecord,
    7: ConfigRecord,
    8: ProducerIdsRecord,
}
_NUMBERS = {cls: bytes([number]) for number, cls in _TYPES.items()}


def encode_record(record: MetadataRecord) -> bytes:
    """Type number and body."""
    return _NUMBERS[type(record)] + encode(record, 0)


def decode_record(data: bytes | memoryview) -> MetadataRecord:
    """The record. Raises MalformedMessage, also for a type this build does not know."""
    cls = _TYPES.get(data[0]) if len(data) else None
    if cls is None:
        raise MalformedMessage(f"unknown metadata record type {data[0] if len(data) else 'of no bytes'}")
    return decode(cls, data, 0, 1)
