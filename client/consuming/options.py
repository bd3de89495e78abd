"""A consumer's options, and what their values may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from ..arguments import topic_name
from .deserialization import Deserializer
from .fetcher import EARLIEST, LATEST

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
"""The values of `auto_offset_reset`."""
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class ReadingOptions(TypedDict, total=False):
    """Those that concern reading alone, whoever decides what counts. See Consumer for the meaning of each."""

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


def check_topics(topics: Sequence[object]) -> None:
    """What stands before the options. Raises TypeError and ValueError."""
    for one in topics:
        if isinstance(one, list | tuple | set | frozenset):
            right = ", ".join(map(repr, one))
            raise TypeError(f"topics are given one by one: Consumer({right}), not Consumer({one!r})")
        topic_name(one)


def check_choices(*, auto_offset_reset: str, isolation_level: str) -> None:
    """Raises ValueError."""
    if auto_offset_reset not in RESETS:
        raise ValueError(f"auto_offset_reset is earliest, latest or none, not {auto_offset_reset!r}")
    if isolation_level not in ISOLATION_LEVELS:
        raise ValueError(f"isolation_level is read_uncommitted or read_committed, not {isolation_level!r}")
