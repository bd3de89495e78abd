"""Differences between two states of a cluster's image, for components that follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

from ..messages.metadata_records import (
    AclRecord,
    AclRemovedRecord,
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
from ..messages.transaction_records import CommitIndexRecord, TransactionalRecord
from .acls import Acl
from .cluster_image import ClusterImage, ScramKey

_K = TypeVar("_K")


@dataclass(slots=True)
class ImageDelta:
    """The ids of brokers, topics, partitions and other items that differ between two states of the cluster image."""

    brokers: set[int] = field(default_factory=set)
    topics: set[bytes] = field(default_factory=set)
    removed_topics: set[bytes] = field(default_factory=set)
    partitions: set[tuple[bytes, int]] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)
    client_quotas: bool = False
    #: whether each ACL that was created or removed exists now
    acls: dict[Acl, bool] = field(default_factory=dict)
    scram_credentials: set[ScramKey] = field(default_factory=set)
    delegation_tokens: set[str] = field(default_factory=set)
    transactions: set[str] = field(default_factory=set)
    mirrors: bool = False
    """True if a mirror changed, or the state of a copy, or of offsets that are taken over."""

    @property
    def concerns_brokers(self) -> bool:
        """True if a broker, a topic or a partition has changed."""
        return bool(self.brokers or self.partitions or self.topics or self.removed_topics)

    def note(self, record: Record) -> None:
        """Add the changed item of a metadata record that was just applied to the image."""
        # Partition and transaction records are tested first, since they are the most frequent.
        if isinstance(record, PartitionRecord):
            self.partitions.add((record.topic_id, record.partition))
            return
        if isinstance(record, TransactionalRecord):
            if not isinstance(record, CommitIndexRecord):
                self.transactions.add(record.transactional_id)
            return
        match record:
            case BrokerRecord() | BrokerRemovedRecord():
                self.brokers.add(record.broker_id)
            case TopicRecord():
                self.topics.add(record.topic_id)
            case TopicRemovedRecord():
                self.topics.discard(record.topic_id)
                self.removed_topics.add(record.topic_id)
                self.partitions = {key for key in self.partitions if key[0] != record.topic_id}
            case ConfigRecord():
                self.configs.add((record.resource_type, record.resource_name))
            case ClientQuotaRecord():
                self.client_quotas = True
            case AclRecord() | AclRemovedRecord():
                self.acls[Acl.of(record)] = isinstance(record, AclRecord)
            case ScramCredentialRecord():
                self.scram_credentials.add((record.name, record.mechanism))
            case DelegationTokenRecord() | DelegationTokenRemovedRecord():
                self.delegation_tokens.add(record.token_id)
            case ClusterRecord() | ProducerIdsRecord() | FeatureLevelRecord():
                return
            case MirrorRecord() | MirrorRemovedRecord() | MirrorTopicRecord() | MirrorPartitionRecord():
                self.mirrors = True
            case MirrorAclRecord():
                self.mirrors = True
            case (
                MirrorOffsetsDueRecord()
                | MirrorOffsetsToldRecord()
                | MirrorOffsetsTakenRecord()
                | MirrorOffsetsDoneRecord()
            ):
                self.mirrors = True
            case RetiredTopicIdRecord():
                return
            case (
                MirrorCutRecord()
                | MirrorCutReachedRecord()
                | MirrorCutsTrimmedRecord()
                | MirrorVersionsRecord()
            ):
                return
            case _:
                assert_never(record)

    @classmethod
    def between(cls, before: ClusterImage, after: ClusterImage) -> ImageDelta:
        """Return the differences between the image `before` and the image `after` a snapshot was loaded."""
        delta = cls()
        delta.brokers = _differing(before.brokers, after.brokers)
        delta.configs = _differing(before.configs, after.configs)
        delta.client_quotas = before.client_quotas != after.client_quotas
        delta.acls = {acl: acl in after.acls for acl in before.acls ^ after.acls}
        delta.scram_credentials = _differing(before.scram_credentials, after.scram_credentials)
        delta.delegation_tokens = _differing(before.delegation_tokens, after.delegation_tokens)
        delta.transactions = _differing(before.transactions.by_id, after.transactions.by_id)
        delta.mirrors = (before.mirrors, before.mirror_offsets) != (after.mirrors, after.mirror_offsets)
        delta.topics = after.topics_by_id.keys() - before.topics_by_id.keys()
        delta.removed_topics = before.topics_by_id.keys() - after.topics_by_id.keys()
        for topic_id, topic in after.topics_by_id.items():
            old = before.topics_by_id.get(topic_id)
            changed = _differing(old.partitions if old else {}, topic.partitions)
            delta.partitions.update((topic_id, index) for index in changed)
        return delta


def _differing(before: Mapping[_K, object], after: Mapping[_K, object]) -> set[_K]:
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
