"""What the admin client is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...protocol.errors import KafkaError
from ..connections.metadata import BrokerAddress
from ..records import TopicPartition

TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE = 2, 4, 8
CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 16, 32
CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker file",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's defaults. `assignments`: replicas per
    partition.

        NewTopic("invoices", num_partitions=3, configs={"retention.ms": "3600000"})
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of a topic, broker, group or the like; `source` says where the value comes from."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_sensitive: bool
    read_only: bool
    synonyms: tuple[tuple[str, str | None, str], ...] = ()
    """(name, value, source) of this value and of those that it hides."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers that take part now, and which of them speaks for the controller.

    `fenced`: brokers that are registered and may not lead; empty where brokers do not tell them apart. `hosts`: the
    machines of the brokers that have a `broker.host`.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerAddress, ...]
    fenced: tuple[int, ...] = ()
    hosts: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum: its leader (None without one), the leader's term, and where the voters are.

    `voters` is node id -> (host, port); the address is None where the broker does not tell it. `abstaining` are the
    voters that do not vote before they have caught up; Apache Kafka does not tell of such. `silent` are the voters that
    the leader has not heard for three seconds, or never: they are down, cut off, or take no part.
    """

    leader_id: int | None
    term: int
    voters: Mapping[int, tuple[str, int] | None]
    abstaining: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()

    def state_of(self, voter: int) -> str:
        """What a voter does now, for people to read: `leader`, `voter`, `silent` or `catching up, does not vote`."""
        if voter == self.leader_id:
            return "leader"
        if voter in self.silent:
            return "silent"
        return "catching up, does not vote" if voter in self.abstaining else "voter"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as a list shows it; `type` is classic, consumer, share or streams, `coordinator` a broker id."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and what it owns; `epoch` is -1 in classic groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, classic or consumer (KIP-848), as its coordinator tells it."""

    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: BrokerAddress
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A data folder of a broker; sizes in bytes, -1 where not told. `replicas`: the size of each. New replicas stay out
    of one that is cordoned."""

    path: str
    error: KafkaError | None
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, int]
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as a list shows it; `coordinator` is the broker that tells of it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its newest transaction; times in ms since 1970.

    `started_ms` is -1 if there never was one; `partitions` are those without a marker yet; `app_version` is that of the
    last commit that named one, -1 without (Ottla's own).
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]
    app_version: int
    coordinator: int

    @property
    def identity(self) -> tuple[int, int, int]:
        """The producer id, its epoch and the begin: no other transaction of the transactional id has the same."""
        return self.producer_id, self.producer_epoch, self.started_ms


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer that a partition remembers; -1 where nothing is known.

    `last_ms` is the time of its last batch; `transaction_start` the first offset of its open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_ms: int
    coordinator_epoch: int
    transaction_start: int


class Cut(NamedTuple):
    """A consistent cut through all partitions: a transaction decided up to this commit index lies below it, any other
    does not. -1: no transaction was ever decided.
    """

    commit_index: int
    metadata_offset: int = -1
    """How far the quorum's metadata were when it was found; -1 lets the leaders ask for that."""


class CutOffset(NamedTuple):
    """Where a cut lies in one partition."""

    offset: int
    open_from: int
    """Where the first transaction begins that is open at that offset; the offset itself if none is. Who goes on from
    the cut and wants such transactions whole reads from here."""
    least_offset: int
    """From here to `offset` no transaction ends: any offset between cuts the partition as well."""


class AppVersions(NamedTuple):
    """Application versions by transactional id, as they were at a cut."""

    versions: dict[str, int]
    """-1 for an id that had one before, and has none any more."""
    is_whole: bool
    """Whether these are all; else those that have changed since the offset that was given."""
    next_offset: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in a partition that no transactional id has open there: readers wait for it in vain."""

    partition: TopicPartition
    producer: ProducerDescription
