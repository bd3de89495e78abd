"""What the admin client is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..metadata import BrokerAddress

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker file",
    5: "default",
    6: "broker logger",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's defaults. `assignments`: replicas per
    partition.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of a topic or broker; `source` says where the value comes from."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_sensitive: bool
    read_only: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers that take part now, and which of them speaks for the controller."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerAddress, ...]


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum: its leader (None without one), the leader's term, and where the voters are.

    `voters` is node id -> (host, port); the address is None where the broker does not tell it.
    """

    leader_id: int | None
    term: int
    voters: Mapping[int, tuple[str, int] | None]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A consumer group as a list shows it."""

    group_id: str
    protocol_type: str
    state: str
