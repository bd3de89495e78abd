"""The options of producers and writers, in groups, and their translation for the parts that use them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from ..auditing.settings import AuditOptions
from ..connections.options import CLIENT_ID_MEANING, ConnectionOptions
from ..declared_options import declared_options, optional
from ..large_message_options import LargeMessages, check_large_messages
from ..objects.opening import open_store
from ..options import group_of
from ..security.options import SecurityKeywords, SecurityOptions
from ..tracing.options import TracingOptions
from .batches import compression_named
from .large_messages.referrer import Referrer
from .large_messages.splitter import Splitter
from .partitioner import Partitioner, murmur2_partition
from .sender_options import SenderOptions
from .serialization import Intake, Serializer

Acks = Literal[0, 1, -1, "all"]


class WriterOptions(SecurityKeywords, total=False):
    """The keyword arguments of the groups below, for type checkers. The groups have the defaults and meanings."""

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
    large_messages: LargeMessages
    large_message_store: str | None
    large_message_segment_size: int | None
    large_message_max_size: int
    audit_topic: str | None
    audit_tier: str
    audit_bucket_ms: int
    audit_interval_ms: int
    tracing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterConnection(ConnectionOptions):
    """Options of connections."""

    client_id: str = optional("ottla-producer", CLIENT_ID_MEANING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingOptions:
    """Options of batches and requests."""

    acks: Acks = optional(
        "all",
        'Acknowledgement of a record: by all in-sync replicas (`"all"` or -1), by the leader (1), or none (0).',
    )
    enable_idempotence: bool | None = optional(
        None,
        "Whether brokers drop the duplicates of repeated requests, and keep the order of records (KIP-98). None: True "
        'if `acks` is `"all"`.',
    )
    compression_type: str | None = optional(
        None, "Compression of batches: `gzip`, `snappy`, `lz4` or `zstd`; None for no compression."
    )
    linger_ms: float = optional(0, "Time for which a batch may wait for more records.")
    batch_size: int = optional(
        256 * 1024, "Largest batch, before compression. It is at most `max_request_size`.", unit="bytes"
    )
    max_request_size: int = optional(
        1024 * 1024, "Largest record and largest request, before compression.", unit="bytes"
    )
    max_in_flight: int = optional(
        5, "Requests to one broker that wait for an answer; with idempotence at most 5.", unit="requests"
    )
    delivery_timeout_ms: int = optional(
        120_000, "Time after `send` within which a record is acknowledged, or fails."
    )
    busy_poll_us: int = optional(
        300,
        "Time for which `send_and_wait` may poll for an answer, if the previous answer came as quickly. Polling saves "
        "the time in which a sleeping processor wakes. 0: no polling.",
    )

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
    """Options of the buffer and of waiting calls."""

    buffer_memory: int = optional(
        32 * 1024 * 1024,
        "Records in memory, before compression. `send` waits while they are more.",
        unit="bytes",
    )
    max_block_ms: int = optional(
        60_000,
        "Time for which a call waits until a topic, or a partition that `send` names, exists. Also the time for which "
        "a call waits for the cluster's answers about transactions.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Options of records and their partitions."""

    partitioner: Partitioner = optional(
        murmur2_partition,
        "Function of a key and the number of partitions that returns a partition. The default chooses as Kafka's "
        "clients in Java do.",
    )
    key_serializer: Serializer | None = optional(
        None, "Function that turns keys into bytes. None as a key stays None: a record without key."
    )
    value_serializer: Serializer | None = optional(
        None, "Function that turns values into bytes. None as a value stays None: a tombstone."
    )

    def intake(self) -> Intake:
        """Return the converter that makes records from the arguments of `send`."""
        return Intake(self.key_serializer, self.value_serializer)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplittingOptions:
    """Options of large messages that are sent."""

    large_messages: LargeMessages = optional(
        True,
        'Form of large values. True: records of `large_message_segment_size`, if it is given. `"reference"`: each is '
        "an object of the store, and its record refers to the object. False: large values are refused.",
    )
    large_message_store: str | None = optional(
        None,
        "Store of the values that records refer to: `file:///FOLDER`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, "
        "`az://CONTAINER/PREFIX` or `memory://NAME`. Credentials come from the environment.",
    )
    large_message_segment_size: int | None = optional(
        None,
        "Size above which a value is split into records of this size, which a Consumer joins, or is kept as an object. "
        "None: no value is split, and only a value that does not fit into a request is an object, or else is refused.",
        unit="bytes",
    )
    large_message_max_size: int = optional(
        32 * 1024 * 1024,
        "Largest value that is split or kept as an object. `send` refuses a larger one.",
        unit="bytes",
    )

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for an invalid value or combination."""
        check_large_messages(self.large_messages, self.large_message_store)
        if self.large_messages is True and self.large_message_store is not None:
            raise ValueError("a producer's large_message_store needs large_messages='reference'")
        if self.large_messages is False and self.large_message_segment_size is not None:
            raise ValueError("large_messages=False and large_message_segment_size exclude each other")

    def splitter(self, max_request_size: int) -> Splitter | None:
        """Return the splitter of large values; None if no value is split. Raises ValueError."""
        if self.large_message_segment_size is None or self.large_messages is not True:
            return None
        return Splitter(self.large_message_segment_size, self.large_message_max_size, max_request_size)

    def referrer(
        self, max_request_size: int, patience_s: float, clock: Callable[[], float]
    ) -> Referrer | None:
        """Return the writer of large values to the store; None if no value is an object.

        `patience_s`: the time in seconds for an object to be created; `clock` returns seconds since 1970. Raises
        ValueError for an invalid store, and ModuleNotFoundError if a package is missing for it.
        """
        if self.large_messages != "reference" or self.large_message_store is None:
            return None
        return Referrer(
            open_store(self.large_message_store, patience_s),
            self.large_message_segment_size,
            self.large_message_max_size,
            max_request_size,
            clock,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterAudit(AuditOptions):
    """Options of the audit of records."""

    audit_tier: str = optional(
        "producer", "Name under which the counts are reported, and compared with other tiers."
    )


WRITER_GROUPS = (
    WriterConnection,
    SendingOptions,
    BufferOptions,
    RecordOptions,
    SplittingOptions,
    WriterAudit,
    TracingOptions,
    SecurityOptions,
)


class ProducerOptions(WriterOptions, total=False):
    """The keyword arguments of a Producer, for type checkers."""

    transactional_id: str | None
    transaction_timeout_ms: int
    spool_dir: str | os.PathLike[str] | None
    spool_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalOptions:
    """Options of transactions."""

    transactional_id: str | None = optional(
        None,
        "Name under which all records are sent in transactions (KIP-98). A producer that starts fences an earlier "
        "producer with the same name.",
    )
    transaction_timeout_ms: int = optional(
        60_000, "Time after which the cluster aborts a transaction that is still open."
    )

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value."""
        if self.transactional_id == "":
            raise ValueError("transactional_id is a text that is not empty, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolOptions:
    """Options of the spool."""

    spool_dir: str | os.PathLike[str] | None = optional(
        None,
        "Folder for records before their delivery. From there they arrive in order and each exactly once, despite "
        "failures of the cluster and of the program.",
    )
    spool_bytes_max: int = optional(
        1 << 30,
        "Files in the folder; at least four times `max_request_size`. While it is full `send` waits for up to "
        "`max_block_ms`, and then raises SpoolFull.",
        unit="bytes",
    )


WRITER_OPTIONS = declared_options(*WRITER_GROUPS)
PRODUCER_OPTIONS = declared_options(*WRITER_GROUPS[:-1], TransactionalOptions, SpoolOptions, SecurityOptions)


def of_writer(options: ProducerOptions) -> WriterOptions:
    """Return a producer's options without those of its transactions and its spool."""
    given: Mapping[str, object] = options
    writing = {option.name: given[option.name] for option in WRITER_OPTIONS if option.name in given}
    return cast(WriterOptions, writing)


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
    tracing: TracingOptions

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
            tracing=group_of(TracingOptions, options),
        )

    def intake(self) -> Intake:
        """Return the converter that makes records from the arguments of `send`. Raises ModuleNotFoundError for traces
        without their package."""
        creation = self.tracing.creation(self.connection.client_id)
        if creation is None:
            return self.records.intake()
        from .traced_intake import TracedIntake  # It imports OpenTelemetry.

        return TracedIntake(self.records.key_serializer, self.records.value_serializer, creation)

    @property
    def max_block_s(self) -> float:
        """The time in seconds for which calls wait for a topic, for room, and for the cluster's answers about
        transactions."""
        return self.buffer.max_block_ms / 1000
