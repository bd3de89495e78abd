"""The options of producers and writers, in groups, and their translation for the parts that use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..auditing.settings import AuditOptions
from ..connections.options import ConnectionOptions
from ..options import group_of
from ..security.options import SecurityKeywords, SecurityOptions
from .batches import compression_named
from .large_messages.splitter import Splitter
from .partitioner import Partitioner, murmur2_partition
from .sender_options import SenderOptions
from .serialization import Intake, Serializer

Acks = Literal[0, 1, -1, "all"]


class WriterOptions(SecurityKeywords, total=False):
    """The keyword arguments of the groups below, for type checkers. The groups have the defaults; see Producer for the
    meaning of each."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    acks: Acks
    enable_idempotence: bool | None
    compression_type: str | None
    linger_ms: float
    batch_size: int
    max_request_size: int
    buffer_memory: int
    max_in_flight: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_block_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    busy_poll_us: int
    partitioner: Partitioner
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    large_message_segment_size: int | None
    large_message_max_size: int
    audit_topic: str | None
    audit_tier: str
    audit_bucket_ms: int
    audit_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterConnection(ConnectionOptions):
    """The options of a producer's connections to the cluster."""

    client_id: str = "ottla-producer"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingOptions:
    """The options for making and sending batches."""

    acks: Acks = "all"
    enable_idempotence: bool | None = None
    compression_type: str | None = None
    linger_ms: float = 0
    batch_size: int = 256 * 1024
    max_request_size: int = 1024 * 1024
    max_in_flight: int = 5
    delivery_timeout_ms: int = 120_000
    busy_poll_us: int = 300

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value or combination."""
        if self.required_acks not in (0, 1, -1):
            raise ValueError(f"acks is 0, 1, -1 or 'all', not {self.acks!r}")
        if self.enable_idempotence and self.required_acks != -1:
            raise ValueError(f"idempotence needs acks='all', not {self.acks!r}")
        if self.enable_idempotence is not False and not 1 <= self.max_in_flight <= 5:
            raise ValueError(f"idempotence allows 1 to 5 requests in flight, not {self.max_in_flight}")
        if not 0 < self.batch_size <= self.max_request_size:
            raise ValueError(
                f"batch_size is 1 to max_request_size ({self.max_request_size}), not {self.batch_size}"
            )

    @property
    def required_acks(self) -> int:
        """The required acknowledgements as a number: -1 for all in-sync replicas."""
        return -1 if self.acks == "all" else self.acks

    @property
    def fit_transactions(self) -> bool:
        """True if these options allow transactions, and a spool."""
        return self.required_acks == -1 and self.enable_idempotence is not False

    def of_sender(self, connection: ConnectionOptions) -> SenderOptions:
        """Return the options of the sender. Raises ValueError for an unknown compression."""
        idempotent = self.required_acks == -1 if self.enable_idempotence is None else self.enable_idempotence
        return SenderOptions(
            acks=self.required_acks,
            idempotent=idempotent,
            compression=compression_named(self.compression_type),
            linger_s=self.linger_ms / 1000,
            batch_bytes=self.batch_size,
            request_bytes=self.max_request_size,
            max_in_flight=self.max_in_flight,
            delivery_timeout_s=self.delivery_timeout_ms / 1000,
            request_timeout_ms=connection.request_timeout_ms,
            retry_backoff_max_ms=connection.retry_backoff_max_ms,
            busy_poll_s=self.busy_poll_us / 1e6,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferOptions:
    """The limit of buffered records in bytes, and the limit in ms for which `send` waits."""

    buffer_memory: int = 32 * 1024 * 1024
    max_block_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """The options for making records from the arguments of `send`, and for their partitions."""

    partitioner: Partitioner = murmur2_partition
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None

    def intake(self) -> Intake:
        """Return the converter that makes records from the arguments of `send`."""
        return Intake(self.key_serializer, self.value_serializer)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplittingOptions:
    """The options for splitting large values into the records of a large message."""

    large_message_segment_size: int | None = None
    large_message_max_size: int = 32 * 1024 * 1024

    def splitter(self, max_request_size: int) -> Splitter | None:
        """Return the splitter of large values; None if no value is split. Raises ValueError."""
        if self.large_message_segment_size is None:
            return None
        return Splitter(self.large_message_segment_size, self.large_message_max_size, max_request_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterAudit(AuditOptions):
    """The options of a producer's audit."""

    audit_tier: str = "producer"


WRITER_GROUPS = (
    WriterConnection,
    SecurityOptions,
    SendingOptions,
    BufferOptions,
    RecordOptions,
    SplittingOptions,
    WriterAudit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """All option groups of a producer."""

    connection: WriterConnection
    security: SecurityOptions
    sending: SendingOptions
    buffer: BufferOptions
    records: RecordOptions
    splitting: SplittingOptions
    audit: WriterAudit

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> WriterSettings:
        """Return the settings for a producer's keyword arguments. Raises TypeError and ValueError."""
        return cls(
            connection=group_of(WriterConnection, options),
            security=group_of(SecurityOptions, options),
            sending=group_of(SendingOptions, options),
            buffer=group_of(BufferOptions, options),
            records=group_of(RecordOptions, options),
            splitting=group_of(SplittingOptions, options),
            audit=group_of(WriterAudit, options),
        )

    @property
    def max_block_s(self) -> float:
        """The time in seconds for which calls wait for a topic, for room, and for the cluster's answers about
        transactions."""
        return self.buffer.max_block_ms / 1000
