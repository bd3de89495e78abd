"""Parameters and results of the admin client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

from ...protocol.errors import KafkaError
from ..bounds import INT16_MAX, INT32_MAX, BrokerId, Finite, Name, NamedNumbers, PartitionNumber, Within
from ..connections.metadata import BrokerAddress
from ..options import names_nearest_field
from ..records import TopicPartition

TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE = 2, 4, 8
CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 16, 32
ResourceType = Annotated[
    int,
    NamedNumbers(
        (
            (TOPIC_RESOURCE, "TOPIC_RESOURCE"),
            (BROKER_RESOURCE, "BROKER_RESOURCE"),
            (BROKER_LOGGER_RESOURCE, "BROKER_LOGGER_RESOURCE"),
            (CLIENT_METRICS_RESOURCE, "CLIENT_METRICS_RESOURCE"),
            (GROUP_RESOURCE, "GROUP_RESOURCE"),
        )
    ),
]
ConfigValue = str | bool | Annotated[float, Finite()]
"""A value of a config; an int is also a float. Requests carry texts: see `config_text`."""
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


_CLUSTERS: Final = ((-1, "the cluster's default"),)


def config_text(value: ConfigValue) -> str:
    """Return the text of a config's value: `true` and `false`, and numbers without an unneeded fraction."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


@names_nearest_field
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's defaults. `assignments` has the replicas of each
    partition.

        NewTopic("invoices", num_partitions=3, configs={"retention.ms": 3_600_000})
    """

    name: Name
    num_partitions: Annotated[int, Within(1, INT32_MAX, _CLUSTERS)] = -1
    replication_factor: Annotated[int, Within(1, INT16_MAX, _CLUSTERS)] = -1
    assignments: Mapping[PartitionNumber, Sequence[BrokerId]] = field(default_factory=dict)
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config of a topic, broker, group or other resource; `source` names the origin of the value."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_sensitive: bool
    read_only: bool
    synonyms: tuple[tuple[str, str | None, str], ...] = ()
    """Triples (name, value, source) of this value and of the values that it overrides."""


@dataclass(frozen=True, slots=True)
class FencedBroker:
    """A broker that is registered and may not lead, because it is dead, cut off or not ready.

    `since_ms` is the time at which it was fenced, in ms since 1970; None if the cluster does not report it.
    """

    address: BrokerAddress
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The live brokers, and the broker that answers for the controller.

    `fenced_brokers` is empty if brokers do not report fenced brokers. `hosts` has the machines of the brokers that have
    a `broker.host`.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerAddress, ...]
    fenced_brokers: tuple[FencedBroker, ...] = ()
    hosts: Mapping[int, str] = field(default_factory=dict)

    @property
    def fenced(self) -> tuple[int, ...]:
        """The ids of the fenced brokers."""
        return tuple(broker.address.id for broker in self.fenced_brokers)


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum: its leader (None without one), the leader's term, and the addresses of the voters.

    `voters` maps node ids to (host, port); the address is None if the broker does not report it. `abstaining` are the
    voters that do not vote before they have caught up; Apache Kafka does not report them. `silent` are the voters that
    the leader has not heard from for three seconds, or never: they are down, cut off, or not in the quorum.
    """

    leader_id: int | None
    term: int
    voters: Mapping[int, tuple[str, int] | None]
    abstaining: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()

    def state_of(self, voter: int) -> str:
        """Return the current state of a voter, for display: `leader`, `voter`, `silent` or `catching up, does not
        vote`."""
        if voter == self.leader_id:
            return "leader"
        if voter in self.silent:
            return "silent"
        return "catching up, does not vote" if voter in self.abstaining else "voter"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; `type` is classic, consumer, share or streams, `coordinator` is a broker id."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group and the partitions that it owns; `epoch` is -1 in classic groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, classic, consumer (KIP-848) or share (KIP-932), as its coordinator describes it. The members of a share
    group may have partitions in common."""

    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: BrokerAddress
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The place of a share group in a partition. `start` is the first offset whose record is not finished; None if the
    group has not begun. `lag` is the number of records that are not finished; None if it is unknown."""

    start: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A data folder of a broker.

    Sizes are in bytes, -1 if not reported. `replicas` has the size of each replica. A cordoned folder gets no new
    replicas.
    """

    path: str
    error: KafkaError | None
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, int]
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list; `coordinator` is the broker that reported it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its newest transaction; times in ms since 1970.

    `started_ms` is -1 if there never was a transaction. `partitions` are those without a marker yet. `app_version` is
    that of the last commit that had one, -1 without (an extension of Ottla).
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
        """The producer id, its epoch and the start time; they differ between all transactions of the transactional
        id."""
        return self.producer_id, self.producer_epoch, self.started_ms


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer that a partition remembers; unknown numbers are -1.

    `last_ms` is the time of its last batch; `transaction_start` is the first offset of its open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_ms: int
    coordinator_epoch: int
    transaction_start: int


class Cut(NamedTuple):
    """A consistent cut through all partitions.

    A transaction that was decided up to this commit index lies below the cut; any other transaction does not. -1 means
    that no transaction was ever decided.
    """

    commit_index: Annotated[int, Within(-1)]
    metadata_offset: Annotated[int, Within(-1)] = -1
    """Offset of the quorum's metadata at which the cut was found; -1 makes the leaders ask for it."""


class CutOffset(NamedTuple):
    """The position of a consistent cut in a partition: its offset, and the beginning of the transactions that are open
    there."""

    offset: int
    open_from: int
    """First offset of the oldest transaction that is open at `offset`; equal to `offset` if no transaction is open. A
    reader that resumes from the cut and needs such transactions whole reads from here."""
    least_offset: int
    """Lowest equivalent offset: no transaction ends between it and `offset`, so any offset between them is a position
    of the cut."""


class AppVersions(NamedTuple):
    """Application versions (numbers that programs pass with their commits) by transactional id, at a consistent cut."""

    versions: dict[str, int]
    """The versions; -1 for an id that had a version before and has none now."""
    is_whole: bool
    """True if these are all versions; False if they are those that have changed since the given offset."""
    next_offset: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition while no transactional id has it open there: readers wait for its end
    in vain."""

    partition: TopicPartition
    producer: ProducerDescription
