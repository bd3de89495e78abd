"""The two protocols by which a consumer is a member of a group, and which options belong to which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .assignors import ASSIGNORS
from .consumer_group import ConsumerGroupOptions
from .group import GroupOptions

DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")
DEFAULT_SESSION_TIMEOUT_MS = 45_000
DEFAULT_HEARTBEAT_INTERVAL_MS = 3_000


def membership_options(
    protocol: str,
    *,
    group_id: str | None,
    group_instance_id: str | None,
    remote_assignor: str | None,
    assignors: Sequence[str] | None,
    session_timeout_ms: int | None,
    heartbeat_interval_ms: int | None,
    rebalance_timeout_ms: int,
    request_timeout_ms: int,
    retry_backoff_max_ms: int,
    rack: str | None,
) -> GroupOptions | ConsumerGroupOptions | None:
    """See Consumer for the meaning of each; None without a group. Raises ValueError for what is not there, and for what
    the other protocol alone has."""
    if protocol not in ("classic", "consumer"):
        raise ValueError(f"group_protocol is 'classic' or 'consumer', not {protocol!r}")
    if assignors is not None:
        if isinstance(assignors, str):
            raise TypeError(
                f"partition_assignment_strategy is a list, as in [{assignors!r}], not {assignors!r}"
            )
        if unknown := [name for name in assignors if name not in ASSIGNORS]:
            raise ValueError(f"there is no assignor {unknown[0]!r}; there are {', '.join(ASSIGNORS)}")
        if not assignors:
            raise ValueError(f"partition_assignment_strategy needs at least one of {', '.join(ASSIGNORS)}")
    if protocol == "classic":
        _refuse({"group_remote_assignor": remote_assignor}, protocol, "partition_assignment_strategy is")
        session_ms = session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS
        heartbeat_ms = heartbeat_interval_ms or min(DEFAULT_HEARTBEAT_INTERVAL_MS, max(1, session_ms // 3))
        if heartbeat_ms >= session_ms:
            raise ValueError(
                f"heartbeat_interval_ms is less than session_timeout_ms ({session_ms}), a third of it at most to be "
                f"safe, not {heartbeat_ms}"
            )
        if not group_id:
            return None
        return GroupOptions(
            group_id=group_id,
            group_instance_id=group_instance_id,
            assignors=DEFAULT_ASSIGNORS if assignors is None else tuple(assignors),
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            rack=rack,
        )
    given = {
        "session_timeout_ms": session_timeout_ms,
        "heartbeat_interval_ms": heartbeat_interval_ms,
        "partition_assignment_strategy": assignors,
    }
    _refuse(given, protocol, "brokers and group_remote_assignor are")
    if not group_id:
        raise ValueError("group_protocol='consumer' needs a group_id")
    return ConsumerGroupOptions(
        group_id=group_id,
        group_instance_id=group_instance_id,
        remote_assignor=remote_assignor,
        rebalance_timeout_ms=rebalance_timeout_ms,
        request_timeout_ms=request_timeout_ms,
        retry_backoff_max_ms=retry_backoff_max_ms,
        rack=rack,
    )


def _refuse(given: Mapping[str, object], protocol: str, instead: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} cannot be set with group_protocol={protocol!r}: {instead} for that there"
            )
