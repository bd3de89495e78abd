"""The options of consumers, in groups, and the parts of a consumer that they configure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ..arguments import topic_name
from ..auditing.settings import AuditOptions, AuditSettings, tier_of_readers
from ..connections.options import CLIENT_ID_MEANING, ConnectionOptions
from ..declared_options import declared_options, optional
from ..large_message_options import LargeMessages, check_large_messages
from ..objects.opening import open_store
from ..options import group_of
from ..security.options import SecurityKeywords, SecurityOptions
from ..tracing.options import TracingOptions
from .assigned import FetchOptions
from .deserialization import Deserialization, Deserializer, deserialization
from .large_messages.assemblies import Assemblies
from .large_messages.assembly import LargeMessageStats
from .large_messages.referenced import ReferencedValues

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
"""The values of `auto_offset_reset`, with their ListOffsets timestamps."""
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class ReadingOptions(TypedDict, total=False):
    """The options that concern reading alone, and not the commits, for type checkers."""

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
    large_messages: LargeMessages
    large_message_store: str | None
    large_message_buffer_bytes: int
    large_message_expiry_offsets: int


class ConsumerOptions(ReadingOptions, SecurityKeywords, total=False):
    """The options of a Consumer, for type checkers. The groups below have the defaults and meanings."""

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
    tracing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnection(ConnectionOptions):
    """Options of connections."""

    client_id: str = optional("ottla-consumer", CLIENT_ID_MEANING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchingOptions:
    """Options of fetches."""

    client_rack: str = optional(
        "",
        "Rack of the program. The consumer reads from a replica in this rack, where brokers select replicas by rack "
        "(KIP-392).",
    )
    auto_offset_reset: Literal["earliest", "latest", "none"] = optional(
        "latest", 'Place to begin without a committed offset. With `"none"` reads raise an error there.'
    )
    isolation_level: Literal["read_uncommitted", "read_committed"] = optional(
        "read_uncommitted",
        "Records of transactions to read: all of them, or the committed ones. A reader of committed records waits at "
        "the first open transaction of a partition.",
    )
    fetch_max_wait_ms: int = optional(
        500, "Time for which a broker may wait for `fetch_min_bytes` before it answers."
    )
    fetch_min_bytes: int = optional(1, "Records that an answer should have.", unit="bytes")
    fetch_max_bytes: int = optional(
        50 * 1024 * 1024,
        "Records that an answer may have. A first batch that is larger still comes.",
        unit="bytes",
    )
    max_partition_fetch_bytes: int = optional(
        1024 * 1024,
        "Records of one partition that an answer may have. A first batch that is larger still comes.",
        unit="bytes",
    )
    check_crcs: bool = optional(True, "Whether the consumer compares the records with their checksums.")

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
    """Options of the group."""

    group_id: str | None = optional(
        None, "Group whose members share the partitions, and which keeps committed offsets. None: no group."
    )
    group_instance_id: str | None = optional(
        None,
        "Name of this member across restarts (KIP-345): within the session timeout it gets its partitions back without "
        "a rebalance.",
    )
    group_protocol: Literal["classic", "consumer"] = optional(
        "classic",
        'Protocol of the group. With `"consumer"` the broker assigns partitions, and sets session and heartbeats '
        "(KIP-848).",
    )
    group_remote_assignor: str | None = optional(
        None, 'Assignor of the broker, for `group_protocol="consumer"`. None: the broker\'s first.'
    )
    session_timeout_ms: int | None = optional(
        None,
        "Time without a heartbeat after which the group removes the member. None: 45,000 ms. For the classic protocol "
        "only.",
    )
    heartbeat_interval_ms: int | None = optional(
        None,
        "Interval of heartbeats. None: 3,000 ms, or a third of the session timeout if that is less. For the classic "
        "protocol only.",
    )
    max_poll_interval_ms: int = optional(
        300_000,
        "Time without a read after which the member leaves its group. A read that waits counts as one.",
    )
    partition_assignment_strategy: Sequence[str] | None = optional(
        None,
        "Strategies of assignment by name: range, roundrobin, sticky, cooperative-sticky. The members use the first "
        "one that all support. None: range and cooperative-sticky. For the classic protocol only.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HandingOutOptions:
    """Options of returned records and automatic commits."""

    max_poll_records: int = optional(
        500, "Records that `getmany` returns unless it is given `max_records`.", unit="records"
    )
    enable_auto_commit: bool = optional(
        False,
        "Whether the consumer commits finished records by itself. A record is finished once the program asks for the "
        "next.",
    )
    auto_commit_interval_ms: int = optional(5_000, "Interval of automatic commits.")
    key_deserializer: Deserializer | None = optional(
        None, "Function that gets the bytes of a key; the record has its result. None stays None."
    )
    value_deserializer: Deserializer | None = optional(
        None, "Function that gets the bytes of a value; the record has its result. None stays None."
    )

    def deserialization(self) -> Deserialization | None:
        """Return the conversion of records by the given deserializers; None without deserializers."""
        return deserialization(self.key_deserializer, self.value_deserializer)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblingOptions:
    """Options of large messages that are read."""

    large_messages: LargeMessages = optional(
        True,
        "Whether the consumer joins the records of a value that a Producer has split, and fetches a value that a "
        'Producer has kept as an object. `"reference"` is the same as True, and needs the store.',
    )
    large_message_store: str | None = optional(
        None,
        "Store of the values that records refer to, as for a Producer. None: the read of such a record is an error.",
    )
    large_message_buffer_bytes: int = optional(
        64 * 1024 * 1024,
        "Incomplete messages in memory, and beside them fetched values. The consumer drops the oldest message when "
        "they are more. A value that is larger is an error.",
        unit="bytes",
    )
    large_message_expiry_offsets: int = optional(
        1_000_000,
        "Number of offsets after its first record at which an incomplete message is dropped.",
        unit="offsets",
    )

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for an invalid value or combination."""
        check_large_messages(self.large_messages, self.large_message_store)

    def assemblies(self) -> Assemblies:
        """Return the factory of the consumer's assemblers of large messages. Raises ValueError."""
        return Assemblies(
            enabled=bool(self.large_messages),
            buffer_bytes=self.large_message_buffer_bytes,
            expiry_offsets=self.large_message_expiry_offsets,
        )

    def referenced_values(
        self, counts: LargeMessageStats, patience_s: float, arrived: Callable[[], None]
    ) -> ReferencedValues | None:
        """Return the values that records refer to; None if references are read as they are.

        `patience_s`: the time in seconds for a value to come. Raises ValueError for an invalid store, and
        ModuleNotFoundError if a package is missing for it.
        """
        if not self.large_messages:
            return None
        url = self.large_message_store
        store = None if url is None else open_store(url, patience_s)
        return ReferencedValues(store, self.large_message_buffer_bytes, counts, arrived)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAudit(AuditOptions):
    """Options of the audit of records."""

    audit_tier: str | None = optional(
        None,
        "Name under which the counts are reported, and compared with other tiers. None: `consumer:` and the group, or "
        "`consumer` without a group.",
    )

    def settings_of(self, group_id: str | None) -> AuditSettings | None:
        """Return the settings of the audit, None without a topic. Raises ValueError for invalid values."""
        return self.settings(tier_of_readers(self.audit_tier, group_id))


CONSUMER_GROUPS = (
    ConsumerConnection,
    FetchingOptions,
    MembershipOptions,
    HandingOutOptions,
    AssemblingOptions,
    ConsumerAudit,
    TracingOptions,
    SecurityOptions,
)
CONSUMER_OPTIONS = declared_options(*CONSUMER_GROUPS)


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
    tracing: TracingOptions

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
            tracing=group_of(TracingOptions, options),
        )


def check_topics(topics: Sequence[object], client: str = "Consumer") -> None:
    """Check the topics, the positional arguments of a `client`. Raises TypeError and ValueError."""
    for topic in topics:
        if isinstance(topic, list | tuple | set | frozenset):
            right = ", ".join(map(repr, topic))
            raise TypeError(f"topics are given one by one: {client}({right}), not {client}({topic!r})")
        topic_name(topic)
