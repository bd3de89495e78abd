"""The options of consumers of share groups, in groups, and the parts that they configure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Required

from ...protocol.messages.share_fetch import AcquireMode
from ..connections.options import CLIENT_ID_MEANING, ConnectionOptions
from ..consuming.deserialization import Deserialization, Deserializer, deserialization
from ..consuming.large_messages.assembly import LargeMessageStats
from ..consuming.large_messages.referenced import ReferencedValues
from ..declared_options import declared_options, optional, required
from ..large_message_options import LargeMessages, check_large_messages
from ..objects.opening import open_store
from ..options import group_of
from ..security.options import SecurityKeywords, SecurityOptions
from ..tracing.options import TracingOptions
from .leader import LeaderOptions
from .membership import ShareGroupOptions

ACQUIRE_MODES: Final = {
    "record_limit": AcquireMode.RECORD_LIMIT,
    "batch_optimized": AcquireMode.BATCH_OPTIMIZED,
}
UNREADABLE: Final = ("raise", "reject")


class ShareConsumerOptions(SecurityKeywords, total=False):
    """The options of a ShareConsumer, for type checkers. The groups below have the defaults and meanings."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    group_id: Required[str]
    client_rack: str
    max_in_flight: int
    acquire_mode: Literal["record_limit", "batch_optimized"]
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    check_crcs: bool
    drain_s: float
    max_poll_records: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    unreadable: Literal["raise", "reject"]
    large_messages: LargeMessages
    large_message_store: str | None
    large_message_buffer_bytes: int
    tracing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConnection(ConnectionOptions):
    """Options of connections."""

    client_id: str = optional("ottla-share-consumer", CLIENT_ID_MEANING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingOptions:
    """Options of the share group."""

    group_id: str = required(
        "Share group, whose members work on the records of the topics together. The broker keeps the state of each "
        "record. Where a group begins is a setting of the group, `share.auto.offset.reset`."
    )
    client_rack: str = optional("", "Rack of the program, which the group's assignor may use.")
    max_in_flight: int = optional(
        100,
        "Tasks that the program has and has not acknowledged, and records fetched ahead of it. A read waits while it "
        "has as many tasks.",
        unit="records",
    )
    drain_s: float = optional(
        20.0,
        "Time for which the blocks of tasks may go on when the consumer stops. Then their records are released.",
        unit="s",
    )

    def of_member(self, topics: Sequence[str], connection: ConnectionOptions) -> ShareGroupOptions:
        """Return the options of the member."""
        return ShareGroupOptions(
            group_id=self.group_id,
            topics=topics,
            rack=self.client_rack or None,
            request_timeout_ms=connection.request_timeout_ms,
            retry_backoff_max_ms=connection.retry_backoff_max_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquiringOptions:
    """Options of fetches."""

    acquire_mode: Literal["record_limit", "batch_optimized"] = optional(
        "record_limit",
        'Way to count fetched records (KIP-1206): exactly, or with `"batch_optimized"` up to the end of a batch. '
        "Brokers before Kafka 4.2 always take whole batches.",
    )
    fetch_max_wait_ms: int = optional(
        500,
        "Time for which a broker may wait for records before it answers. While the program has tasks it is 100 ms at "
        "most, since acknowledgements wait for the answer.",
    )
    fetch_min_bytes: int = optional(1, "Records that an answer should have.", unit="bytes")
    fetch_max_bytes: int = optional(
        50 * 1024 * 1024,
        "Records that an answer may have. A first batch that is larger still comes.",
        unit="bytes",
    )
    check_crcs: bool = optional(True, "Whether the consumer compares the records with their checksums.")

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown mode."""
        if self.acquire_mode not in ACQUIRE_MODES:
            raise ValueError(f"acquire_mode is record_limit or batch_optimized, not {self.acquire_mode!r}")

    def of_leaders(self, group_id: str, connection: ConnectionOptions) -> LeaderOptions:
        """Return the options of the share sessions."""
        return LeaderOptions(
            group_id=group_id,
            acquire_mode=ACQUIRE_MODES[self.acquire_mode],
            min_bytes=self.fetch_min_bytes,
            max_bytes=self.fetch_max_bytes,
            request_timeout_ms=connection.request_timeout_ms,
            retry_backoff_max_ms=connection.retry_backoff_max_ms,
            check_crcs=self.check_crcs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options of the tasks that the program gets."""

    max_poll_records: int = optional(
        500, "Tasks that `getmany` returns unless it is given `max_records`.", unit="records"
    )
    key_deserializer: Deserializer | None = optional(
        None, "Function that gets the bytes of a key; the task has its result. None stays None."
    )
    value_deserializer: Deserializer | None = optional(
        None, "Function that gets the bytes of a value; the task has its result. None stays None."
    )
    unreadable: Literal["raise", "reject"] = optional(
        "raise",
        "Treatment of a record that cannot be read: its batch is damaged, a deserializer raises, or it is a part of a "
        'large message. The read raises the error and releases the record. With `"reject"` the record is rejected, '
        "with a warning in the log, and the read goes on. A value that cannot be fetched from its store always raises.",
    )

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown treatment."""
        if self.unreadable not in UNREADABLE:
            raise ValueError(f"unreadable is raise or reject, not {self.unreadable!r}")

    def deserialization(self) -> Deserialization | None:
        """Return the conversion of records by the given deserializers; None without deserializers."""
        return deserialization(self.key_deserializer, self.value_deserializer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOptions:
    """Options of large messages."""

    large_messages: LargeMessages = optional(
        True,
        "Whether the consumer fetches a value that a Producer has kept as an object. A value that was split into "
        "several records is unreadable, as different members may get its parts. False: records as they are in the log. "
        '`"reference"` is the same as True, and needs the store.',
    )
    large_message_store: str | None = optional(
        None,
        "Store of the values that records refer to, as for a Producer. None: the read of such a record is an error.",
    )
    large_message_buffer_bytes: int = optional(
        64 * 1024 * 1024, "Fetched values in memory. A value that is larger is an error.", unit="bytes"
    )

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for an invalid value or combination."""
        check_large_messages(self.large_messages, self.large_message_store)

    def referenced_values(self, patience_s: float, arrived: Callable[[], None]) -> ReferencedValues | None:
        """Return the values that records refer to; None if references are read as they are.

        `patience_s`: the time in seconds for a value to come. Raises ValueError for an invalid store, and
        ModuleNotFoundError if a package is missing for it.
        """
        if not self.large_messages:
            return None
        url = self.large_message_store
        store = None if url is None else open_store(url, patience_s)
        values = ReferencedValues(store, self.large_message_buffer_bytes, LargeMessageStats(), arrived)
        # Tasks are taken in the order of their arrival: the next task may need the room of the values after it.
        values.begin_read(lambda _: True, lambda _: False)
        return values


SHARE_GROUPS = (
    ShareConnection,
    SharingOptions,
    AcquiringOptions,
    TaskOptions,
    ReferenceOptions,
    TracingOptions,
    SecurityOptions,
)
SHARE_OPTIONS = declared_options(*SHARE_GROUPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerSettings:
    """The values of all option groups of one consumer of a share group."""

    connection: ShareConnection
    sharing: SharingOptions
    acquiring: AcquiringOptions
    tasks: TaskOptions
    references: ReferenceOptions
    tracing: TracingOptions
    security: SecurityOptions

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ShareConsumerSettings:
        """Return the settings for a consumer's keyword arguments. Raises TypeError and ValueError."""
        return cls(
            connection=group_of(ShareConnection, options),
            sharing=group_of(SharingOptions, options),
            acquiring=group_of(AcquiringOptions, options),
            tasks=group_of(TaskOptions, options),
            references=group_of(ReferenceOptions, options),
            tracing=group_of(TracingOptions, options),
            security=group_of(SecurityOptions, options),
        )
