"""Metadata records: controllers write them, images fold them; each is the full new state of one thing."""

from __future__ import annotations

from ..codec import MalformedMessage, decode_from, encode_into
from ..schema import Message, array, boolean, bytes_, data, int8, int16, int32, int64, string, uint16, uuid
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
    """Where clients of one listener reach a broker."""

    name: str = string(about="Name of the listener.")
    host: str = string(about="Host as advertised.")
    port: int = uint16(about="TCP port.")
    security_protocol: str = string(default="PLAINTEXT", about="Kafka's name of the security protocol.")


@data()
class BrokerFeature(Message):
    """A feature that a broker's program knows."""

    name: str = string(about="Name of the feature.")
    most: int = int16(about="The highest level it knows.")


@data()
class ClusterRecord(Message):
    """The cluster was formed."""

    cluster_id: str = string(about="Chosen once, for ever.")


@data()
class BrokerRecord(Message):
    """A registered broker."""

    broker_id: int = int32(about="node.id of the broker.")
    broker_epoch: int = int64(about="Metadata offset of the registration, plus 1.")
    incarnation: bytes = uuid(about="Chosen at each start of the process.")
    listeners: list[BrokerListener] = array(BrokerListener, about="Where clients reach it.")
    rack: str | None = string(nullable="0+", default=None, about="Null without racks.")
    fenced: bool = boolean(about="Whether it may not lead.")
    shutting_down: bool = boolean(about="Whether it is in controlled shutdown.")
    log_dirs: list[bytes] = array(uuid, about="Ids of its log directories.")
    features: list[BrokerFeature] = array(
        BrokerFeature,
        "0+",
        tag=0,
        about="What its program knows; programs before these features tell nothing.",
    )
    host: str | None = string(
        "0+", tag=1, nullable="0+", default=None, about="broker.host; null for a broker on a host of its own."
    )


@data()
class BrokerRemovedRecord(Message):
    """A broker was unregistered."""

    broker_id: int = int32(about="node.id of the broker.")


@data()
class TopicRecord(Message):
    """A topic exists. Its partitions follow."""

    topic_id: bytes = uuid(about="Never used again.")
    name: str = string(about="Name.")


@data()
class TopicRemovedRecord(Message):
    """A topic was deleted, with its partitions; its configuration is removed by its own records."""

    topic_id: bytes = uuid(about="Which.")


@data()
class PartitionRecord(Message):
    """A partition's replicas and leadership."""

    topic_id: bytes = uuid(about="Topic.")
    partition: int = int32(about="Partition index.")
    replicas: list[int] = array(int32, about="Broker ids, preferred leader first.")
    isr: list[int] = array(int32, about="In-sync replicas.")
    elr: list[int] = array(int32, about="Replicas outside the ISR with all acknowledged records (KIP-966).")
    last_known_elr: list[int] = array(
        int32, about="Replicas that left ISR or ELR by an unclean stop and may have all acknowledged records."
    )
    leader: int = int32(default=-1, about="Broker id, -1 for none.")
    leader_epoch: int = int32(about="Rises with each change of leadership.")
    partition_epoch: int = int32(about="Rises with each change.")
    unclean: bool = boolean(about="Whether this leadership came from an unclean election.")
    adding_replicas: list[int] = array(
        int32, "0+", tag=0, about="Replicas that a reassignment under way adds."
    )
    removing_replicas: list[int] = array(int32, "0+", tag=1, about="Replicas that go when it is completed.")
    offline_replicas: list[int] = array(
        int32, "0+", tag=4, about="Replicas that their brokers cannot use: a data folder failed (KIP-112)."
    )


@data()
class ConfigRecord(Message):
    """A dynamic configuration value was set or, with null, removed."""

    resource_type: int = int8(about="2 topic, 4 broker, 16 client metrics, 32 group.")
    resource_name: str = string(about="Topic name, broker id, or empty for all brokers.")
    config_name: str = string(about="Key.")
    value: str | None = string(nullable="0+", default=None, about="Null: removed.")


@data()
class ProducerIdsRecord(Message):
    """Producer ids below were given out."""

    next_producer_id: int = int64(about="The first one that was not.")


@data()
class ClientQuotaRecord(Message):
    """All quotas of one entity; without any the entity has none."""

    entity: list[QuotaEntityPart] = array(QuotaEntityPart, about="Parts that name it, by type.")
    values: list[QuotaValue] = array(QuotaValue, about="Its quotas, by key.")


@data()
class FeatureLevelRecord(Message):
    """The finalized level of a feature."""

    feature: str = string(about="Name of the feature.")
    level: int = int16(about="0: not in force.")


@data()
class AclRecord(Message):
    """An ACL is there. All its fields together are its identity."""

    resource_type: int = int8(about="What is protected.")
    resource_name: str = string(about="Name of the pattern.")
    pattern_type: int = int8(about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Whom it is about.")
    host: str = string(about="From where: *, an address, or a network in CIDR notation.")
    operation: int = int8(about="What is done.")
    permission: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class AclRemovedRecord(Message):
    """An ACL is gone."""

    resource_type: int = int8(about="What was protected.")
    resource_name: str = string(about="Name of the pattern.")
    pattern_type: int = int8(about="3 LITERAL, 4 PREFIXED.")
    principal: str = string(about="Whom it was about.")
    host: str = string(about="From where.")
    operation: int = int8(about="What was done.")
    permission: int = int8(about="2 DENY, 3 ALLOW.")


@data()
class ScramCredentialRecord(Message):
    """How a user can log in by SCRAM."""

    name: str = string(about="Name of the user.")
    mechanism: int = int8(about="1 SCRAM-SHA-256, 2 SCRAM-SHA-512.")
    salt: bytes = bytes_(about="Random bytes that were hashed with the password.")
    sealed_keys: bytes = bytes_(about="Stored key and server key, encrypted; empty: there is no credential.")
    iterations: int = int32(about="How often the password was hashed.")


@data()
class DelegationTokenRecord(Message):
    """A delegation token is there, or has another end. Its secret is nowhere."""

    token_id: str = string(about="Name of the token.")
    owner: str = string(about="Whom a login with it acts as.")
    requester: str = string(about="Who asked for it.")
    renewers: list[str] = array(string, about="Who may renew and expire it besides the owner.")
    issued_at_ms: int = int64(about="When it was made.")
    expires_at_ms: int = int64(about="When it ends unless it is renewed.")
    ends_at_ms: int = int64(about="When it ends at the latest.")
    key_id: bytes = bytes_(about="Which key its secret follows from.")


@data()
class DelegationTokenRemovedRecord(Message):
    """A delegation token is gone."""

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
    32: MirrorVersionsRecord,  # 30 and 31 are another's
    33: MirrorAclRecord,
    34: MirrorOffsetsDueRecord,
    35: MirrorOffsetsToldRecord,
    36: MirrorOffsetsTakenRecord,
    37: MirrorOffsetsDoneRecord,
}
NUMBERS = {cls: number for number, cls in _TYPES.items()}
"""By which an encoded record begins."""


def encode_record(record: Record) -> bytes:
    """`u8 type | record`."""
    out = bytearray((NUMBERS[type(record)],))
    encode_into(record, 0, out)
    return bytes(out)


def decode_record(encoded: bytes | memoryview) -> Record:
    """Raises MalformedMessage for anything that is no metadata record."""
    cls = _TYPES.get(encoded[0]) if len(encoded) else None
    if cls is None:
        raise MalformedMessage(f"unknown metadata record type {bytes(encoded[:1]).hex() or '(empty)'}")
    return decode_from(cls, encoded, 0, 1)[0]
