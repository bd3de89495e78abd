"""The options of consumers, in groups, and the parts of a consumer that they configure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ..arguments import topic_name
from ..auditing.settings import AuditOptions, AuditSettings, tier_of_readers
from ..connections.options import ConnectionOptions
from ..options import group_of
from ..security.options import SecurityKeywords, SecurityOptions
from .assigned import FetchOptions
from .deserialization import Deserialization, Deserializer, deserialization
from .large_messages.assemblies import Assemblies

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
"""The values of `auto_offset_reset`, with their ListOffsets timestamps."""
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class ReadingOptions(TypedDict, total=False):
    """The options that concern reading alone, and not the commits. `Consumer` documents the meaning of each."""

    client_rack: str
    group_instance_id: str | None
    auto_offset_reset: Literal["earliest", "latest", "none"]
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    max_poll_interval_ms: int
    partition_assignment_strategy: Sequence[str] | None
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    large_messages: bool
    large_message_buffer_bytes: int
    large_message_expiry_offsets: int


class ConsumerOptions(ReadingOptions, SecurityKeywords, total=False):
    """The options of a Consumer, for type checkers. The groups below have the defaults; `Consumer` documents the
    meaning of each.
    """

    bootstrap_servers: str | Sequence[str]
    client_id: str
    group_id: str | None
    isolation_level: Literal["read_uncommitted", "read_committed"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    audit_topic: str | None
    audit_tier: str | None
    audit_bucket_ms: int
    audit_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnection(ConnectionOptions):
    """Options of a consumer's connections to the cluster."""

    client_id: str = "ottla-consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchingOptions:
    """Options of fetches: the start, the isolation level, and the amounts."""

    client_rack: str = ""
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    check_crcs: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown reset or isolation level."""
        if self.auto_offset_reset not in RESETS:
            raise ValueError(f"auto_offset_reset is earliest, latest or none, not {self.auto_offset_reset!r}")
        if self.isolation_level not in ISOLATION_LEVELS:
            raise ValueError(
                f"isolation_level is read_uncommitted or read_committed, not {self.isolation_level!r}"
            )

    @property
    def read_committed(self) -> bool:
        """True if records of transactions are read only once these are committed."""
        return self.isolation_level == "read_committed"

    @property
    def reset_timestamp(self) -> int | None:
        """The ListOffsets timestamp of the place to begin without a committed offset; None: no such place."""
        return RESETS[self.auto_offset_reset]

    def of_fetcher(self, connection: ConnectionOptions) -> FetchOptions:
        """Return the options of the consumer's fetcher, derived from these options."""
        return FetchOptions(
            read_committed=self.read_committed,
            reset_timestamp=self.reset_timestamp,
            max_wait_ms=self.fetch_max_wait_ms,
            min_bytes=self.fetch_min_bytes,
            max_bytes=self.fetch_max_bytes,
            max_partition_bytes=self.max_partition_fetch_bytes,
            request_timeout_ms=connection.request_timeout_ms,
            retry_backoff_max_ms=connection.retry_backoff_max_ms,
            check_crcs=self.check_crcs,
            rack=self.client_rack,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipOptions:
    """Options of the consumer's group, and of its protocol."""

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: Literal["classic", "consumer"] = "classic"
    group_remote_assignor: str | None = None
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    max_poll_interval_ms: int = 300_000
    partition_assignment_strategy: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandingOutOptions:
    """Options of handing out records, and of automatic commits."""

    max_poll_records: int = 500
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    def deserialization(self) -> Deserialization | None:
        """Return the conversion of records by the given deserializers; None without deserializers."""
        return deserialization(self.key_deserializer, self.value_deserializer)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblingOptions:
    """Options of the assembly of large messages, and its limits."""

    large_messages: bool = True
    large_message_buffer_bytes: int = 64 * 1024 * 1024
    large_message_expiry_offsets: int = 1_000_000

    def assemblies(self) -> Assemblies:
        """Return the factory of the consumer's assemblers of large messages. Raises ValueError."""
        return Assemblies(
            enabled=self.large_messages,
            buffer_bytes=self.large_message_buffer_bytes,
            expiry_offsets=self.large_message_expiry_offsets,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAudit(AuditOptions):
    """Options of a consumer's audit."""

    audit_tier: str | None = None

    def settings_of(self, group_id: str | None) -> AuditSettings | None:
        """Return the settings of the audit, None without a topic. Raises ValueError for invalid values."""
        return self.settings(tier_of_readers(self.audit_tier, group_id))


CONSUMER_GROUPS = (
    ConsumerConnection,
    SecurityOptions,
    FetchingOptions,
    MembershipOptions,
    HandingOutOptions,
    AssemblingOptions,
    ConsumerAudit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The values of all option groups of one consumer."""

    connection: ConsumerConnection
    security: SecurityOptions
    fetching: FetchingOptions
    membership: MembershipOptions
    handing_out: HandingOutOptions
    assembling: AssemblingOptions
    audit: ConsumerAudit

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ConsumerSettings:
        """Return the settings for a consumer's keyword arguments. Raises TypeError and ValueError."""
        return cls(
            connection=group_of(ConsumerConnection, options),
            security=group_of(SecurityOptions, options),
            fetching=group_of(FetchingOptions, options),
            membership=group_of(MembershipOptions, options),
            handing_out=group_of(HandingOutOptions, options),
            assembling=group_of(AssemblingOptions, options),
            audit=group_of(ConsumerAudit, options),
        )


def check_topics(topics: Sequence[object]) -> None:
    """Check the topics, a consumer's positional arguments. Raises TypeError and ValueError."""
    for topic in topics:
        if isinstance(topic, list | tuple | set | frozenset):
            right = ", ".join(map(repr, topic))
            raise TypeError(f"topics are given one by one: Consumer({right}), not Consumer({topic!r})")
        topic_name(topic)
