"""The cluster's metadata, as a pure fold of metadata records; quorum nodes and brokers fold them alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from ..credentials.delegation_tokens import TokenState
from ..messages.metadata_records import (
    AclRecord,
    AclRemovedRecord,
    BrokerFeature,
    BrokerListener,
    BrokerRecord,
    BrokerRemovedRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    DelegationTokenRecord,
    DelegationTokenRemovedRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    ScramCredentialRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from ..messages.mirror_records import (
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
from ..messages.quota_commands import QuotaEntityPart, QuotaValue
from ..messages.transaction_records import TransactionalRecord
from .acls import Acl
from .broker_lists import broker_list
from .mirror_cuts import MirrorCuts
from .mirror_offsets import MirrorOffsets
from .mirror_table import NO_EPOCH, MirrorTable
from .transaction_table import Place, TransactionTable

NO_LEADER = -1
UNKNOWN_TIME_MS = -1

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: pairs of a type (user, client-id or ip) and a name, or None for the default, sorted by
type."""

ScramKey = tuple[str, int]
"""The key of a SCRAM credential: the user's name, and the number of the mechanism."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A registered broker.

    `fenced_since_ms` is the time at which a fenced broker was fenced or first registered, in ms since 1970; -1 if it is
    unknown, or the broker is not fenced.
    """

    broker_id: int
    broker_epoch: int
    incarnation: bytes
    listeners: tuple[BrokerListener, ...] = ()
    rack: str | None = None
    fenced: bool = True
    shutting_down: bool = False
    log_dirs: tuple[bytes, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    host: str | None = None
    fenced_since_ms: int = UNKNOWN_TIME_MS

    def level_of(self, feature: str) -> int:
        """Return the highest level of a feature that the broker's program knows; 0 if it does not know the feature."""
        return max((entry.most for entry in self.features if entry.name == feature), default=0)

    @property
    def usable(self) -> bool:
        """True if the broker may lead and be a member of ISRs."""
        return not self.fenced and not self.shutting_down


@dataclass(slots=True, unsafe_hash=True)
class PartitionState:
    """Replicas and leadership of a partition: ISR, ELR, leader, epochs, reassignment and offline replicas, as broker
    ids.

    Instances never change, which type checkers verify. A frozen dataclass would take four times as long to make, and
    each node makes an instance for each replica of a broker that dies.
    """

    replicas: Final[tuple[int, ...]]
    isr: Final[tuple[int, ...]]
    elr: Final[tuple[int, ...]] = ()
    last_known_elr: Final[tuple[int, ...]] = ()
    leader: Final[int] = NO_LEADER
    leader_epoch: Final[int] = 0
    partition_epoch: Final[int] = 0
    unclean: Final[bool] = False
    adding_replicas: Final[tuple[int, ...]] = ()
    removing_replicas: Final[tuple[int, ...]] = ()
    offline_replicas: Final[tuple[int, ...]] = ()

    @property
    def is_moving(self) -> bool:
        """True if a reassignment of the partition's replicas is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)


@dataclass(slots=True)
class TopicState:
    """A topic: its id, its name, and the states of its partitions by index."""

    id: bytes
    name: str
    partitions: dict[int, PartitionState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SealedCredential:
    """A user's stored credential for login by SCRAM: salt, iterations and keys. The keys are encrypted, so that only
    brokers can read them."""

    salt: bytes = field(repr=False)
    sealed_keys: bytes = field(repr=False)
    iterations: int


class ImageInconsistent(AssertionError):
    """A metadata record that does not fit the image, or a broken invariant of the image. The process must not
    continue."""


class ClusterImage:
    """All cluster metadata. `offset` is the number of records applied since the cluster was formed."""

    def __init__(self) -> None:
        self.offset = 0
        self.cluster_id = ""
        self.brokers: dict[int, BrokerState] = {}
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[bytes, TopicState] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.next_producer_id = 0
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        #: finalized levels of features, where any was set
        self.features: dict[str, int] = {}
        self.acls: set[Acl] = set()
        self.scram_credentials: dict[ScramKey, SealedCredential] = {}
        #: delegation tokens by id
        self.delegation_tokens: dict[str, TokenState] = {}
        #: on a quorum node all transactions, on a broker the transactions that concern its replicas
        self.transactions = TransactionTable()
        self.mirrors = MirrorTable()
        self.mirror_cuts = MirrorCuts()
        self.mirror_offsets = MirrorOffsets()

    def apply(self, record: Record) -> None:
        """Apply one metadata record to the image; `offset` rises by one. Raises ImageInconsistent."""
        # Partition and transaction records are tested first, since they are the most frequent.
        if isinstance(record, PartitionRecord):
            self.set_partition(record.topic_id, record.partition, _partition_state(record))
            return
        if isinstance(record, TransactionalRecord):
            self.transactions.apply(record)
            self.offset += 1
            return
        match record:
            case BrokerRecord():
                self.brokers[record.broker_id] = _broker_state(record)
            case BrokerRemovedRecord():
                self.brokers.pop(record.broker_id, None)
            case TopicRecord():
                topic = TopicState(record.topic_id, record.name)
                self.topics[topic.name] = self.topics_by_id[topic.id] = topic
            case TopicRemovedRecord():
                topic = self._topic(record.topic_id)
                del self.topics_by_id[topic.id], self.topics[topic.name]
                self.mirrors.topic_removed(topic.id)
                self.mirror_cuts.topic_removed(topic.id)
            case ConfigRecord():
                self._configure(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case ClientQuotaRecord():
                self._limit(record)
            case FeatureLevelRecord():
                self.features[record.feature] = record.level
            case AclRecord():
                self.acls.add(Acl.of(record))
            case AclRemovedRecord():
                self.acls.discard(Acl.of(record))
            case ScramCredentialRecord():
                self._set_credential(record)
            case DelegationTokenRecord():
                self.delegation_tokens[record.token_id] = _token_state(record)
            case DelegationTokenRemovedRecord():
                self.delegation_tokens.pop(record.token_id, None)
            case ClusterRecord():
                self.cluster_id = record.cluster_id
            case MirrorRecord() | MirrorRemovedRecord() | RetiredTopicIdRecord() | MirrorAclRecord():
                self.mirrors.apply(record)
                if isinstance(record, MirrorRemovedRecord):
                    self.mirror_cuts.mirror_removed(record.name)
                    self.mirror_offsets.mirror_removed(record.name)
            case MirrorTopicRecord():
                self._topic(record.topic_id)
                self.mirrors.apply(record)
            case MirrorPartitionRecord():
                self._know_copy(record)
            case (
                MirrorCutRecord()
                | MirrorCutReachedRecord()
                | MirrorCutsTrimmedRecord()
                | MirrorVersionsRecord()
            ):
                self.mirror_cuts.apply(record)
            case (
                MirrorOffsetsDueRecord()
                | MirrorOffsetsToldRecord()
                | MirrorOffsetsTakenRecord()
                | MirrorOffsetsDoneRecord()
            ):
                self.mirror_offsets.apply(record)
            case _:
                assert_never(record)
        self.offset += 1

    def _know_copy(self, record: MirrorPartitionRecord) -> None:
        topic, index = self._topic(record.topic_id), record.partition
        if topic.id not in self.mirrors.topics:
            raise ImageInconsistent(f"a record is about a copy, and {topic.name} is none")
        before = self.mirrors.partition(topic.id, index)
        self.mirrors.apply(record)
        after = self.mirrors.topics[topic.id].partitions[index]
        resumption = None if before is None else before.resumption
        if after.resumption != resumption and after.promoted_epoch == NO_EPOCH:
            self.mirror_cuts.copy_goes_on_elsewhere((topic.id, index))

    def copies_of(self, mirror: str) -> list[Place]:
        """Return the partitions that a mirror copies, or has copied."""
        return [
            (topic_id, index)
            for topic_id, _ in self.mirrors.topics_of(mirror)
            for index in self.topics_by_id[topic_id].partitions
        ]

    def set_partition(self, topic_id: bytes, index: int, state: PartitionState) -> None:
        """Set the state of a partition, as applying its record would. Raises ImageInconsistent."""
        self._topic(topic_id).partitions[index] = state
        self.offset += 1

    def become(self, other: ClusterImage) -> None:
        """Take over the whole content of `other`, which must not be used afterwards."""
        vars(self).update(vars(other))

    def frozen(self) -> ClusterImage:
        """Return a snapshot of the image that remains unchanged while this one changes. Only dictionaries are
        copied."""
        copy = ClusterImage()
        vars(copy).update(vars(self))
        copy.brokers = dict(self.brokers)
        copy.topics = {
            name: TopicState(topic.id, topic.name, dict(topic.partitions))
            for name, topic in self.topics.items()
        }
        copy.topics_by_id = {topic.id: topic for topic in copy.topics.values()}
        copy.configs = {key: dict(settings) for key, settings in self.configs.items()}
        copy.client_quotas = dict(self.client_quotas)
        copy.features = dict(self.features)
        copy.acls = set(self.acls)
        copy.scram_credentials = dict(self.scram_credentials)
        copy.delegation_tokens = dict(self.delegation_tokens)
        copy.transactions = self.transactions.copy()
        copy.mirrors = self.mirrors.copy()
        copy.mirror_cuts = self.mirror_cuts.copy()
        copy.mirror_offsets = self.mirror_offsets.copy()
        return copy

    def _topic(self, topic_id: bytes) -> TopicState:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise ImageInconsistent(f"a record is about topic {topic_id.hex()}, which does not exist")
        return topic

    def _configure(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = self.configs.setdefault(key, {})
        if record.value is None:
            values.pop(record.config_name, None)
        else:
            values[record.config_name] = record.value
        if not values:
            del self.configs[key]

    def _limit(self, record: ClientQuotaRecord) -> None:
        entity = tuple((part.entity_type, part.entity_name) for part in record.entity)
        self.client_quotas.pop(entity, None)
        if record.values:
            self.client_quotas[entity] = {quota.key: quota.value for quota in record.values}

    def _set_credential(self, record: ScramCredentialRecord) -> None:
        key = (record.name, record.mechanism)
        self.scram_credentials.pop(key, None)
        if record.sealed_keys:
            self.scram_credentials[key] = SealedCredential(record.salt, record.sealed_keys, record.iterations)

    def records(self) -> Iterator[Record]:
        """Yield the records that rebuild this image, in a fixed order. They do not restore the offset."""
        if self.cluster_id:
            yield ClusterRecord(cluster_id=self.cluster_id)
        for _, broker in sorted(self.brokers.items()):
            yield broker_record(broker)
        for _, topic in sorted(self.topics.items()):
            yield TopicRecord(topic_id=topic.id, name=topic.name)
            for index, state in sorted(topic.partitions.items()):
                yield partition_record(topic.id, index, state)
        for (kind, name), values in sorted(self.configs.items()):
            for key, value in sorted(values.items()):
                yield ConfigRecord(resource_type=kind, resource_name=name, config_name=key, value=value)
        if self.next_producer_id:
            yield ProducerIdsRecord(next_producer_id=self.next_producer_id)
        for entity in sorted(self.client_quotas, key=_by_type_and_name):
            yield client_quota_record(entity, self.client_quotas[entity])
        for feature, level in sorted(self.features.items()):
            yield FeatureLevelRecord(feature=feature, level=level)
        for acl in sorted(self.acls):
            yield AclRecord(**acl._asdict())
        for scram_key, credential in sorted(self.scram_credentials.items(), key=lambda item: item[0]):
            yield scram_credential_record(scram_key, credential)
        for _, token in sorted(self.delegation_tokens.items()):
            yield delegation_token_record(token)
        yield from self.transactions.records()
        yield from self.mirrors.records()
        yield from self.mirror_cuts.records()
        yield from self.mirror_offsets.records()

    def check(self) -> None:
        """Check the invariants. Raises ImageInconsistent if one is broken."""
        for broker_id, broker in self.brokers.items():
            if broker.broker_id != broker_id or broker.broker_epoch > self.offset:
                raise ImageInconsistent(f"broker {broker_id}, at offset {self.offset}, is {broker}")
        if self.topics.keys() != {topic.name for topic in self.topics_by_id.values()}:
            raise ImageInconsistent("topics by name and by id differ")
        for name, topic in self.topics.items():
            if topic.name != name or self.topics_by_id.get(topic.id) is not topic:
                raise ImageInconsistent(f"topic {topic.name} ({topic.id.hex()}) is filed under {name}")
            if sorted(topic.partitions) != list(range(len(topic.partitions))):
                raise ImageInconsistent(f"{topic.name}: partitions {sorted(topic.partitions)} have gaps")
            for index, state in topic.partitions.items():
                broken = self._broken(state)
                if broken:
                    raise ImageInconsistent(f"{topic.name}-{index}: {broken}: {state}")
        self.transactions.check()
        if broken := self.mirrors.broken() or self.mirror_cuts.broken() or self.mirror_offsets.broken():
            raise ImageInconsistent(broken)

    def _broken(self, state: PartitionState) -> str:
        if not state.replicas or len(set(state.replicas)) != len(state.replicas):
            return "replicas are missing or repeat"
        if not {*state.isr, *state.elr, *state.last_known_elr} <= {*state.replicas}:
            return "ISR or ELR is not among the replicas"
        if not {*state.offline_replicas} <= {*state.replicas}:
            return "an offline replica is not among the replicas"
        if not {*state.adding_replicas, *state.removing_replicas} <= {*state.replicas}:
            return "added or removed replicas are not among the replicas"
        if {*state.adding_replicas} & {*state.removing_replicas}:
            return "a replica is both added and removed"
        if len(set(state.isr)) != len(state.isr) or {*state.isr} & {*state.elr}:
            return "ISR repeats or overlaps the ELR"
        if len(set(state.last_known_elr)) != len(state.last_known_elr):
            return "the last known ELR repeats"
        if {*state.isr, *state.elr} & {*state.last_known_elr}:
            return "ISR or ELR and the last known ELR overlap"
        if not 0 <= state.leader_epoch <= state.partition_epoch:
            return "the leader epoch is above the partition epoch"
        if state.leader == NO_LEADER:
            return ""
        leader = self.brokers.get(state.leader)
        if state.leader not in state.isr:
            return "the leader is not in the ISR"
        if state.leader in state.offline_replicas:
            return "the leader's replica is offline"
        return "" if leader is not None and leader.usable else "the leader is fenced or shutting down"


def _by_type_and_name(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]


def client_quota_record(entity: QuotaEntity, values: Mapping[str, float]) -> ClientQuotaRecord:
    """Return the metadata record that sets all quotas of an entity (user, client id or address)."""
    return ClientQuotaRecord(
        entity=[QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[QuotaValue(key=key, value=value) for key, value in sorted(values.items())],
    )


def scram_credential_record(key: ScramKey, credential: SealedCredential | None) -> ScramCredentialRecord:
    """Return the record that sets a user's credential; None removes it."""
    name, mechanism = key
    if credential is None:
        return ScramCredentialRecord(name=name, mechanism=mechanism)
    return ScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=credential.salt,
        sealed_keys=credential.sealed_keys,
        iterations=credential.iterations,
    )


def delegation_token_record(state: TokenState) -> DelegationTokenRecord:
    """Return the metadata record that sets a delegation token to this state."""
    return DelegationTokenRecord(
        token_id=state.token_id,
        owner=state.owner,
        requester=state.requester,
        renewers=list(state.renewers),
        issued_at_ms=state.issued_at_ms,
        expires_at_ms=state.expires_at_ms,
        ends_at_ms=state.ends_at_ms,
        key_id=state.key_id,
    )


def _token_state(record: DelegationTokenRecord) -> TokenState:
    return TokenState(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issued_at_ms,
        record.expires_at_ms,
        record.ends_at_ms,
        record.key_id,
    )


def broker_record(state: BrokerState) -> BrokerRecord:
    """Return the metadata record that sets a broker's registration to this state."""
    return BrokerRecord(
        broker_id=state.broker_id,
        broker_epoch=state.broker_epoch,
        incarnation=state.incarnation,
        listeners=list(state.listeners),
        rack=state.rack,
        fenced=state.fenced,
        shutting_down=state.shutting_down,
        log_dirs=list(state.log_dirs),
        features=list(state.features),
        host=state.host,
        fenced_since_ms=state.fenced_since_ms,
    )


def _broker_state(record: BrokerRecord) -> BrokerState:
    return BrokerState(
        record.broker_id,
        record.broker_epoch,
        record.incarnation,
        tuple(record.listeners),
        record.rack,
        record.fenced,
        record.shutting_down,
        tuple(record.log_dirs),
        tuple(record.features),
        record.host,
        record.fenced_since_ms,
    )


def partition_record(topic_id: bytes, index: int, state: PartitionState) -> PartitionRecord:
    """Return the metadata record that sets a partition to this state."""
    return PartitionRecord(
        topic_id=topic_id,
        partition=index,
        replicas=list(state.replicas),
        isr=list(state.isr),
        elr=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        unclean=state.unclean,
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
        offline_replicas=list(state.offline_replicas),
    )


def _partition_state(record: PartitionRecord) -> PartitionState:
    return PartitionState(
        broker_list(record.replicas),
        broker_list(record.isr),
        tuple(record.elr),
        tuple(record.last_known_elr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.unclean,
        tuple(record.adding_replicas),
        tuple(record.removing_replicas),
        offline_replicas=tuple(record.offline_replicas),
    )
