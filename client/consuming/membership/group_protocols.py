"""The two protocols of group membership, and the options that belong to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...connections.options import ConnectionOptions
from ..options import MembershipOptions
from .assignors import ASSIGNORS
from .consumer_group import ConsumerGroupOptions
from .group import GroupOptions

DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")
DEFAULT_SESSION_TIMEOUT_MS = 45_000
DEFAULT_HEARTBEAT_INTERVAL_MS = 3_000


def member_options(
    options: MembershipOptions, connection: ConnectionOptions, *, rack: str | None
) -> GroupOptions | ConsumerGroupOptions | None:
    """Return the options of a member for the chosen protocol; None without a group.

    Raises ValueError for unknown values, and for options that only the other protocol has.
    """
    if options.group_protocol not in ("classic", "consumer"):
        raise ValueError(f"group_protocol is 'classic' or 'consumer', not {options.group_protocol!r}")
    _check_assignors(options.partition_assignment_strategy)
    if options.group_protocol == "classic":
        return _classic(options, connection, rack)
    return _consumer(options, connection, rack)


def _classic(
    options: MembershipOptions, connection: ConnectionOptions, rack: str | None
) -> GroupOptions | None:
    _refuse(
        {"group_remote_assignor": options.group_remote_assignor},
        options.group_protocol,
        "partition_assignment_strategy is",
    )
    session_ms = options.session_timeout_ms or DEFAULT_SESSION_TIMEOUT_MS
    heartbeat_ms = options.heartbeat_interval_ms or min(
        DEFAULT_HEARTBEAT_INTERVAL_MS, max(1, session_ms // 3)
    )
    if heartbeat_ms >= session_ms:
        raise ValueError(
            f"heartbeat_interval_ms is less than session_timeout_ms ({session_ms}), a third of it at most to be "
            f"safe, not {heartbeat_ms}"
        )
    if not options.group_id:
        return None
    assignors = options.partition_assignment_strategy
    return GroupOptions(
        group_id=options.group_id,
        group_instance_id=options.group_instance_id,
        assignors=DEFAULT_ASSIGNORS if assignors is None else tuple(assignors),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        rebalance_timeout_ms=options.max_poll_interval_ms,
        request_timeout_ms=connection.request_timeout_ms,
        retry_backoff_max_ms=connection.retry_backoff_max_ms,
        rack=rack,
    )


def _consumer(
    options: MembershipOptions, connection: ConnectionOptions, rack: str | None
) -> ConsumerGroupOptions:
    given = {
        "session_timeout_ms": options.session_timeout_ms,
        "heartbeat_interval_ms": options.heartbeat_interval_ms,
        "partition_assignment_strategy": options.partition_assignment_strategy,
    }
    _refuse(given, options.group_protocol, "brokers and group_remote_assignor are")
    if not options.group_id:
        raise ValueError("group_protocol='consumer' needs a group_id")
    return ConsumerGroupOptions(
        group_id=options.group_id,
        group_instance_id=options.group_instance_id,
        remote_assignor=options.group_remote_assignor,
        rebalance_timeout_ms=options.max_poll_interval_ms,
        request_timeout_ms=connection.request_timeout_ms,
        retry_backoff_max_ms=connection.retry_backoff_max_ms,
        rack=rack,
    )


def _check_assignors(assignors: Sequence[str] | None) -> None:
    if assignors is None:
        return
    if isinstance(assignors, str | bytes):
        raise TypeError(f"partition_assignment_strategy is a list, as in [{assignors!r}], not {assignors!r}")
    if unknown := [name for name in assignors if name not in ASSIGNORS]:
        raise ValueError(f"there is no assignor {unknown[0]!r}; there are {', '.join(ASSIGNORS)}")
    if not assignors:
        raise ValueError(f"partition_assignment_strategy needs at least one of {', '.join(ASSIGNORS)}")


def _refuse(given: Mapping[str, object], protocol: str, instead: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} cannot be set with group_protocol={protocol!r}: {instead} for that there"
            )
