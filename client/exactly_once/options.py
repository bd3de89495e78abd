"""The options of a consumer and a producer that work together: which of them go to whom."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..consumer import Consumer
from ..consuming.deserialization import Deserializer
from ..producing.record_writer import WriterOptions


class ExactlyOnceOptions(WriterOptions, total=False):
    """Options of `ottla.Consumer` besides those of `ottla.Producer`; what both have goes to both."""

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
    large_messages: bool
    large_message_buffer_bytes: int
    large_message_expiry_offsets: int


def of_consumer(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a consumer takes. The audit's tier is the producer's: what is read is another one."""
    known = inspect.signature(Consumer.__init__).parameters.keys() - {"audit_tier"}
    return {name: value for name, value in options.items() if name in known}


def of_producer(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a producer takes."""
    return {name: value for name, value in options.items() if name in WriterOptions.__annotations__}
