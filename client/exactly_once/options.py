"""The options of a consumer and a producer that work together, and their division between the two."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Required

from ..connections.options import CLIENT_ID_MEANING
from ..consuming.options import CONSUMER_GROUPS, CONSUMER_OPTIONS, ReadingOptions
from ..declared_options import declared_options, optional, required
from ..producing.options import WRITER_GROUPS, WRITER_OPTIONS, WriterOptions
from ..security.options import SecurityOptions


class ExactlyOnceOptions(WriterOptions, ReadingOptions, total=False):
    """Options of `ottla.Consumer` besides those of `ottla.Producer`, and the processor's. Options that both clients
    have are passed to both."""

    group_id: Required[str]
    pattern: str | re.Pattern[str] | None
    transactional_id: str | None
    transaction_timeout_ms: int
    max_batch_records: int
    max_batch_ms: int
    idle_timeout_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingOptions:
    """Options of the processor."""

    group_id: str = required("Group whose members share the work. The group keeps the offsets to go on at.")
    pattern: str | re.Pattern[str] | None = optional(
        None, "Pattern that selects all topics whose whole name matches, in place of topics by name."
    )
    transactional_id: str | None = optional(
        None,
        "Transactional id of the processor's producer, which no other process may have. None: unique to this "
        "processor, or made of `group_id` and `group_instance_id` if the latter is given.",
    )
    transaction_timeout_ms: int = optional(
        10_000,
        "Time after which the cluster aborts a transaction. A member that takes over from a killed process may wait as "
        "long.",
    )
    max_batch_records: int = optional(500, "Largest batch, which is one transaction.", unit="records")
    max_batch_ms: int = optional(
        100,
        "Time for which a batch is gathered. `run` works on a batch for the same time, and leaves the rest to the next "
        "batch.",
    )
    idle_timeout_ms: int | None = optional(
        None, "Time without new records in its partitions after which the work ends. None: the work goes on."
    )
    client_id: str = optional("ottla-exactly-once", CLIENT_ID_MEANING)
    auto_offset_reset: Literal["earliest", "latest", "none"] = optional(
        "earliest", 'Place to begin without a committed offset. With `"none"` the work raises an error there.'
    )

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value or combination."""
        if not self.group_id:
            raise ValueError("group_id is a text that is not empty: the group keeps where to go on")
        if self.max_batch_ms >= self.transaction_timeout_ms:
            raise ValueError(
                f"max_batch_ms is below transaction_timeout_ms ({self.transaction_timeout_ms}), not {self.max_batch_ms}"
            )


EXACTLY_ONCE_OPTIONS = tuple(
    option
    for option in declared_options(
        ProcessingOptions, *WRITER_GROUPS[:-1], *CONSUMER_GROUPS[:-1], SecurityOptions
    )
    if option.name in ExactlyOnceOptions.__required_keys__ | ExactlyOnceOptions.__optional_keys__
)


def of_consumer(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the consumer. `audit_tier` is the producer's alone, since the records read belong to
    another tier."""
    known = {option.name for option in CONSUMER_OPTIONS} - {"audit_tier"}
    return {name: value for name, value in options.items() if name in known}


def of_producer(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that belong to the producer, from those of a processor."""
    known = {option.name for option in WRITER_OPTIONS}
    return {name: value for name, value in options.items() if name in known}
