"""Metadata records: the quorum's controller writes them, and cluster images apply them. Each record is the full new
state of one item, such as a partition or a broker."""

from __future__ import annotations

from ..wire.codec import MalformedMessage, decode_from, encode_into
from ..wire.schema import (
    Message,
    array,
    boolean,
    bytes_,
    data,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)
from .mirror_records import (
    MirrorAclRecord,
    MirrorCutReachedRecord,
    MirrorCutRecord,
    MirrorCutsTrimmedRecord,
    MirrorOffsetsDoneRecord,
    MirrorOffsetsDueRecord,
    MirrorOffsetsTakenRecord,
    MirrorOffsetsToldRecord,
    MirrorPartitionRecord,
    MirrorRecord,
    MirrorRemovedRecord,
    MirrorTopicRecord,
    MirrorVersionsRecord,
    RetiredTopicIdRecord,
)
from .quota_commands import QuotaEntityPart, QuotaValue
from .transaction_records import (
    CommitIndexRecord,
    TransactionalIdRemovedRecord,
    TransactionalRecord,
    TransactionRecord,
    TransactionSettledRecord,
    TransactionWriterRecord,
    WriterPoolRecord,
)


@data()
class BrokerListener(Message):
    """Address at which clients of one listener reach a broker."""

    name: str = string(about="Name of the listener.")
    host: str = string(about="Host, as advertised.")
    port: int = uint16(about="TCP port.")
    security_protocol: str = string(default="PLAINTEXT", about="Kafka's name of the security protocol.")


@data()
class BrokerFeature(Message):
    """A feature that a broker's program supports, with the range of its levels."""

    name: str = string(about="Name of the feature.")
    most: int = int16(about="Highest level that the program knows.")


@data()
class ClusterRecord(Message):
    """Formation of the cluster, with its id."""

    cluster_id: str = string(about="Id of the cluster, chosen once and for ever.")


@data()
class BrokerRecord(Message):
    """A registered broker."""

    broker_id: int = int32(about="node.id of the broker.")
    broker_epoch: int = int64(about="Metadata offset of the registration, plus 1.")
    incarnation: bytes = uuid(about="Id that the process chooses at each start.")
    listeners: list[BrokerListener] = array(
        BrokerListener, about="Addresses at which clients reach the broker."
    )
    rack: str | None = string(nullable="0+", default=None, about="Rack of the broker; null without racks.")
    fenced: bool = boolean(about="Whether the broker is fenced: it may not lead.")
    shutting_down: bool = boolean(about="Whether the broker is in controlled shutdown.")
    log_dirs: list[bytes] = array(uuid, about="Ids of the broker's log directories.")
    features: list[BrokerFeature] = array(
        BrokerFeature,
        "0+",
        tag=0,
        about="Features that the broker's program knows; empty from programs older than these features.",
    )
    host: str | None = string(
        "0+",
        tag=1,
        nullable="0+",
        default=None,
        about="broker.host; null for a broker that shares its host with no other.",
    )
    fenced_since_ms: int = int64(
        "0+",
        tag=2,
        default=-1,
        about="Time at which a fenced broker was fenced, in ms since 1970; -1 unknown.",
    )


@data()
class BrokerRemovedRecord(Message):
    """Removal of a broker's registration."""

    broker_id: int = int32(about="node.id of the broker.")


@data()
class TopicRecord(Message):
    """Creation of a topic. The records of its partitions follow."""

    topic_id: bytes = uuid(about="Id of the topic, never used again.")
    name: str = string(about="Name of the topic.")


@data()
class TopicRemovedRecord(Message):
    """Deletion of a topic with its partitions; separate records remove its configuration."""

    topic_id: bytes = uuid(about="Id of the topic.")


@data()
class PartitionRecord(Message):
    """Replicas and leadership of a partition."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partition: int = int32(about="Partition index.")
    replicas: list[int] = array(int32, about="Broker ids, preferred leader first.")
    isr: list[int] = array(int32, about="In-sync replicas.")
    elr: list[int] = array(
        int32,
        about="Eligible leader replicas: replicas outside the ISR that have all acknowledged records (KIP-966).",
    )
    last_known_elr: list[int] = array(
        int32, about="Replicas that left ISR or ELR by an unclean stop and may have all acknowledged records."
    )
    leader: int = int32(default=-1, about="Broker id, -1 for none.")
    leader_epoch: int = int32(about="Epoch of the leadership; rises with each change of leadership.")
    partition_epoch: int = int32(about="Epoch of the partition's state; rises with each change.")
    unclean: bool = boolean(about="Whether this leadership came from an unclean election.")
    adding_replicas: list[int] = array(
        int32, "0+", tag=0, about="Replicas that a reassignment in progress adds."
    )
    removing_replicas: list[int] = array(
        int32, "0+", tag=1, about="Replicas that will be removed when the reassignment is complete."
    )
    offline_replicas: list[int] = array(
        int32, "0+", tag=4, about="Replicas that their brokers cannot use: a data folder failed (KIP-112)."
    )


@data()
class ConfigRecord(Message):
    """A dynamic configuration value that was set or, with null, removed."""

    resource_type: int = int8(about="2 topic, 4 broker, 16 client metrics, 32 group.")
    resource_name: str = string(about="Topic name, broker id, or empty for all brokers.")
    config_name: str = string(about="Configuration key.")
    value: str | None = string(nullable="0+", default=None, about="New value; null: removed.")


@data()
class ProducerIdsRecord(Message):
    """Allocation of all producer ids below a number."""

    next_producer_id: int = int64(about="First producer id that was not given out yet.")


@data()
class ClientQuotaRecord(Message):
    """All quotas of one entity; an empty list removes the entity's quotas."""

    entity: list[QuotaEntityPart] = array(QuotaEntityPart, about="Parts that name the entity, by type.")
    values: list[QuotaValue] = array(QuotaValue, about="Quotas of the entity, by key.")


@data()
class FeatureLevelRecord(Message):
    """The finalized level of a feature (KIP-584), from now on in force in the cluster."""

    feature: str = string(about="Name of the feature.")
    level: int = int16(about="Finalized level; 0: not in force.")


@data()
class AclRecord(Message):
    """An ACL that exists. All its fields together are its identity."""

    resource_type: int = int8(about="Type of the protected resources.")
    resource_name: str = string(about="Name of the resource pattern.")
    pattern_type: int = int8(about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Principal that the ACL applies to.")
    host: str = string(
        about="Client host that the ACL applies to: *, an address, or a network in CIDR notation."
    )
    operation: int = int8(about="Operation that is allowed or denied.")
    permission: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class AclRemovedRecord(Message):
    """Removal of an ACL."""

    resource_type: int = int8(about="Type of the protected resources.")
    resource_name: str = string(about="Name of the resource pattern.")
    pattern_type: int = int8(about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Principal that the ACL applied to.")
    host: str = string(about="Client host that the ACL applied to.")
    operation: int = int8(about="Operation that was allowed or denied.")
    permission: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class ScramCredentialRecord(Message):
    """The credential by which a user logs in by SCRAM."""

    name: str = string(about="Name of the user.")
    mechanism: int = int8(about="1 SCRAM-SHA-256, 2 SCRAM-SHA-512.")
    salt: bytes = bytes_(about="Random bytes that were hashed with the password.")
    sealed_keys: bytes = bytes_(about="Stored key and server key, encrypted; empty: there is no credential.")
    iterations: int = int32(about="Number of iterations with which the password was hashed.")


@data()
class DelegationTokenRecord(Message):
    """A delegation token that was created or renewed, or whose end changed. Its secret is stored nowhere."""

    token_id: str = string(about="Name of the token.")
    owner: str = string(about="Principal that a login with the token acts as.")
    requester: str = string(about="Principal that asked for the token.")
    renewers: list[str] = array(
        string, about="Principals who may renew and expire the token besides its owner."
    )
    issued_at_ms: int = int64(about="Time at which the token was made, in ms since 1970.")
    expires_at_ms: int = int64(
        about="Time at which the token expires unless it is renewed, in ms since 1970."
    )
    ends_at_ms: int = int64(about="Latest time at which the token can expire, in ms since 1970.")
    key_id: bytes = bytes_(about="Short name of the key from which the token's secret is derived.")


@data()
class DelegationTokenRemovedRecord(Message):
    """Removal of a delegation token."""

    token_id: str = string(about="Name of the token.")


Record = (
    ClusterRecord
    | BrokerRecord
    | BrokerRemovedRecord
    | TopicRecord
    | TopicRemovedRecord
    | PartitionRecord
    | ConfigRecord
    | ProducerIdsRecord
    | ClientQuotaRecord
    | FeatureLevelRecord
    | AclRecord
    | AclRemovedRecord
    | ScramCredentialRecord
    | DelegationTokenRecord
    | DelegationTokenRemovedRecord
    | TransactionalRecord
    | MirrorRecord
    | MirrorRemovedRecord
    | MirrorTopicRecord
    | MirrorPartitionRecord
    | RetiredTopicIdRecord
    | MirrorCutRecord
    | MirrorCutReachedRecord
    | MirrorCutsTrimmedRecord
    | MirrorVersionsRecord
    | MirrorAclRecord
    | MirrorOffsetsDueRecord
    | MirrorOffsetsToldRecord
    | MirrorOffsetsTakenRecord
    | MirrorOffsetsDoneRecord
)

_TYPES: dict[int, type[Record]] = {
    1: ClusterRecord,
    2: BrokerRecord,
    3: BrokerRemovedRecord,
    4: TopicRecord,
    5: TopicRemovedRecord,
    6: PartitionRecord,
    7: ConfigRecord,
    8: ProducerIdsRecord,
    9: ClientQuotaRecord,
    10: FeatureLevelRecord,
    11: TransactionRecord,
    12: TransactionWriterRecord,
    13: TransactionSettledRecord,
    14: TransactionalIdRemovedRecord,
    15: WriterPoolRecord,
    16: CommitIndexRecord,
    17: AclRecord,
    18: AclRemovedRecord,
    19: ScramCredentialRecord,
    20: DelegationTokenRecord,
    21: DelegationTokenRemovedRecord,
    22: MirrorRecord,
    23: MirrorRemovedRecord,
    24: MirrorTopicRecord,
    25: MirrorPartitionRecord,
    26: RetiredTopicIdRecord,
    27: MirrorCutRecord,
    28: MirrorCutReachedRecord,
    29: MirrorCutsTrimmedRecord,
    32: MirrorVersionsRecord,  # 30 and 31 are reserved for other records
    33: MirrorAclRecord,
    34: MirrorOffsetsDueRecord,
    35: MirrorOffsetsToldRecord,
    36: MirrorOffsetsTakenRecord,
    37: MirrorOffsetsDoneRecord,
}
NUMBERS = {cls: number for number, cls in _TYPES.items()}
"""The number of each record class, which is the first byte of an encoded record."""


def encode_record(record: Record) -> bytes:
    """Encode a record as `u8 type | record`."""
    out = bytearray((NUMBERS[type(record)],))
    encode_into(record, 0, out)
    return bytes(out)


def decode_record(encoded: bytes | memoryview) -> Record:
    """Decode a record. Raises MalformedMessage for anything that is no metadata record."""
    cls = _TYPES.get(encoded[0]) if len(encoded) else None
    if cls is None:
        raise MalformedMessage(f"unknown metadata record type {bytes(encoded[:1]).hex() or '(empty)'}")
    return decode_from(cls, encoded, 0, 1)[0]
