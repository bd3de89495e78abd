"""The options that a worker of a share group refuses, each with the reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..sharing.acknowledgements import DELAY_MAX
from .rates import Rate
from .retries import Retry

_NO_ORDER: Final = "the records of a share group have no order"
_NO_COMMITS: Final = (
    "without transactional=True each record is acknowledged by itself, and there are no commits"
)
_NO_MEMBERSHIP: Final = "share groups have no such setting of a member"
_NO_LIMIT: Final = "max_records limits the records in memory"
REFUSED: Final[Mapping[str, str]] = {
    "ordering": _NO_ORDER,
    "lane": _NO_ORDER,
    "null_keys": _NO_ORDER,
    "retry_topic": "the group itself delivers a released record again",
    "dead_letter": "rejected records are those of the group, whose setting is errors.deadletterqueue.topic.name",
    "auto_offset_reset": "it is a setting of the group, share.auto.offset.reset",
    "isolation_level": "it is a setting of the group, share.isolation.level",
    "group_protocol": _NO_MEMBERSHIP,
    "group_instance_id": _NO_MEMBERSHIP,
    "group_remote_assignor": _NO_MEMBERSHIP,
    "partition_assignment_strategy": _NO_MEMBERSHIP,
    "session_timeout_ms": "it is a setting of the group, share.session.timeout.ms",
    "heartbeat_interval_ms": "it is a setting of the group, share.heartbeat.interval.ms",
    "max_poll_interval_ms": "the worker renews the locks of its records, however long the work",
    "max_bytes": _NO_LIMIT,
    "max_partition_fetch_bytes": "fetch_max_bytes limits the answers",
    "large_message_expiry_offsets": "a share group may give the parts of a large message to different members",
}


OF_TRANSACTIONS: Final = ("transaction_timeout_ms", "commit_every_s", "max_batch_records")
"""Options that only a worker with transactions has."""


def check_share_options(options: Mapping[str, Any]) -> None:
    """Check the options of a worker with `source="share"`. Raises ValueError for an option that it does not have."""
    for name in options:
        if name in REFUSED and not (name == "ordering" and options[name] == "none"):
            raise ValueError(f"{name} is no option of a worker with source='share': {REFUSED[name]}")
        if name in OF_TRANSACTIONS and not options.get("transactional"):
            raise ValueError(f"{name} is no option of a worker with source='share': {_NO_COMMITS}")
    if any(rate.per_key for rate in _rates(options.get("rate"))):
        raise ValueError(f"rate has no per_key=True with source='share': {_NO_ORDER}")


def check_delays(retry: Retry) -> None:
    """Check that brokers can keep all delays of a schedule. Raises ValueError."""
    longest_s, most_s = retry.longest_s * (1 + retry.jitter), DELAY_MAX.total_seconds()
    if longest_s > most_s:
        raise ValueError(
            f"retry has delays of up to {longest_s:g} s with source='share', where {most_s:.0f} s (7 days) are allowed"
        )


def _rates(given: object) -> Iterable[Rate]:
    several = given if isinstance(given, list | tuple) else (given,)
    return (rate for rate in several if isinstance(rate, Rate))
