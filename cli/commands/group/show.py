"""`ottla group list` and `ottla group describe`: print groups, their members and lag."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ....client.admin import Admin, GroupListing, GroupMember
from ....client.admin.by_broker import split
from ....client.admin.group_lag import GroupReport, PartitionLag, report
from ....client.admin.group_seek import SHARE_TYPE
from ....protocol.errors import KafkaError
from ...arguments.selection import select
from ...connection.precedence import connection_of
from ...failures import CommandFailed
from ...missing_names import refusal_of_names
from ...run_client import raise_refusals, run_client
from ...terminal.output import none_of, print_fields, print_json, print_table, separate
from ...terminal.shades import Shade, Shaded, lag, state
from ...terminal.text import note, say
from .share_settings import Settings, print_settings, settings_of
from .share_settings import as_json as settings_as_json

PATIENCE_MS = 5_000
"""Milliseconds for which a broker that cannot list its groups yet is asked again."""
_SUMMARY = ("GROUP", "COORDINATOR", "STATE", "TYPE", "ASSIGNOR", "MEMBERS", "TOTAL-LAG")
_COLUMNS = (
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "MEMBER-ID",
    "CLIENT-ID",
    "HOST",
)
_SHARE_COLUMNS = ("TOPIC", "PARTITION", "START-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBERS")
_MEMBER_COLUMNS = ("MEMBER-ID", "CLIENT-ID", "HOST", "EPOCH", "PARTITIONS")
DESCRIBED_TYPES = ("classic", "consumer", SHARE_TYPE)
"""The types of groups whose offsets are shown. Streams groups are only listed."""


def list_groups(arguments: argparse.Namespace) -> None:
    """Print the groups of the cluster, with members and lag if an option needs them.

    Raises CommandFailed with the errors of brokers that listed no groups.
    """
    rows, failures = run_client(_listed(arguments))
    if failures and not rows:
        raise_refusals(failures)
    if arguments.output == "json":
        print_json(rows)
    else:
        columns = ["group", "state", "type", "protocol", "coordinator"]
        columns += ["members", "lag"] if rows and "lag" in rows[0] else []
        for row in rows:
            row["state"] = state(row["state"])
            if "lag" in row:
                row["lag"] = _lag(row["lag"], row["partitions_of_unknown_lag"])
        shown = [[_shown(row[column]) for column in columns] for row in rows]
        print_table(
            [column.upper() for column in columns],
            shown,
            spare=("PROTOCOL", "COORDINATOR", "TYPE"),
            empty="" if failures else none_of("groups", asked=_narrows(arguments)),
            wide=arguments.output == "wide",
        )
    raise_refusals(failures)


def describe(arguments: argparse.Namespace) -> None:
    """Print groups with their members, and the offset and lag of each partition."""
    reports, settings = run_client(_reports(arguments))
    if arguments.output == "json":
        print_json([_as_json(group_report, arguments, settings) for group_report in reports])
        return
    if arguments.summary:
        print_table(
            _SUMMARY,
            [_summary(group_report) for group_report in reports],
            spare=("COORDINATOR", "ASSIGNOR", "TYPE"),
            empty=none_of("groups"),
            wide=arguments.output == "wide",
        )
        return
    if not reports:
        note(none_of("groups"))
    for number, group_report in enumerate(reports):
        if number:
            say()
        _print(group_report, arguments, settings)


def wanted(group: GroupListing, arguments: argparse.Namespace) -> bool:
    """Return whether a listed group passes the filters on state, type and protocol."""
    states = [state.lower() for state in arguments.state]
    types = [kind.lower() for kind in arguments.type]
    return (
        (not states or group.state.lower() in states)
        and (not types or group.type in types)
        and (arguments.protocol is None or group.protocol_type == arguments.protocol)
    )


def _narrows(arguments: argparse.Namespace) -> bool:
    """Return whether the options list some groups only."""
    numbers = (arguments.protocol, arguments.min_lag, arguments.min_members)
    return bool(arguments.state or arguments.type) or any(number is not None for number in numbers)


def may_lag(group_report: GroupReport, least: int) -> bool:
    """Return whether a group's lag is at least `least` or may be, because the lag of a partition is unknown."""
    return group_report.unknown_lags > 0 or (group_report.total_lag or 0) >= least


async def _listed(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, KafkaError]]:
    """Return the groups as rows by column name, and the errors of brokers that listed no groups."""
    async with Admin(**connection_of(arguments)) as admin:
        listed, silent = split(await admin.list_groups_by_broker(patience_ms=PATIENCE_MS))
        failures = {f"broker {broker}": error for broker, error in silent.items()}
        raise_refusals(failures if arguments.names else {})  # A named group may be on one of these brokers.
        known = {group.group_id: group for group in listed}
        names = select(known, arguments.names, "group", regex=arguments.regex)
        groups = [known[name] for name in names if wanted(known[name], arguments)]
        rows: list[dict[str, Any]] = [
            {
                "group": group.group_id,
                "state": group.state,
                "type": group.type,
                "protocol": group.protocol_type,
                "coordinator": group.coordinator,
            }
            for group in groups
        ]
        if arguments.lag or arguments.min_lag is not None or arguments.min_members is not None:
            asked = [group.group_id for group in groups if group.type in DESCRIBED_TYPES]
            reports = {answer.group.group_id: answer for answer in await report(admin, asked)}
            rows = [
                row
                | {
                    "members": len(group_report.group.members),
                    "lag": group_report.total_lag,
                    "partitions_of_unknown_lag": group_report.unknown_lags,
                }
                for row in rows
                if (group_report := reports.get(row["group"])) is not None
                and (arguments.min_lag is None or may_lag(group_report, arguments.min_lag))
                and len(group_report.group.members) >= (arguments.min_members or 0)
            ]
    return rows, failures


async def _reports(arguments: argparse.Namespace) -> tuple[list[GroupReport], dict[str, Settings]]:
    """Return the reports of groups, and the settings of share groups unless a summary is wanted."""
    async with Admin(**connection_of(arguments)) as admin:
        names: Sequence[str] = arguments.names
        if arguments.regex or not names:
            known = [group.group_id for group in await admin.list_groups() if group.type in DESCRIBED_TYPES]
            names = select(known, names, "group", regex=arguments.regex)
        wanted_names = list(dict.fromkeys(names))
        try:
            reports = await report(admin, wanted_names)
        except KafkaError as error:
            raise CommandFailed(await refusal_of_names(admin, wanted_names, error)) from None
        if arguments.summary or arguments.lag_per_topic:
            return reports, {}
        shared = [found.group.group_id for found in reports if found.group.type == SHARE_TYPE]
        return reports, {name: await settings_of(admin, name) for name in shared}


def _summary(group_report: GroupReport) -> tuple[object, ...]:
    group = group_report.group
    where = f"{group.coordinator.id} ({group.coordinator.host}:{group.coordinator.port})"
    return (
        group.group_id,
        where,
        state(group.state),
        group.type,
        group.assignor or "-",
        len(group.members),
        _lag(group_report.total_lag, group_report.unknown_lags),
    )


def _print(
    group_report: GroupReport, arguments: argparse.Namespace, settings: Mapping[str, Settings]
) -> None:
    is_wide = arguments.output == "wide"
    print_fields(list(zip(_SUMMARY, _summary(group_report), strict=True)))
    separate()
    if arguments.lag_per_topic:
        topics, unknown = group_report.lag_by_topic(), group_report.unknown_lags_by_topic()
        print_table(
            ("TOPIC", "PARTITIONS", "LAG"),
            [(topic, count, _lag(records, unknown[topic])) for topic, (count, records) in topics.items()],
            wide=is_wide,
        )
        return
    if group_report.group.type == SHARE_TYPE:
        _print_share_group(group_report, is_wide=is_wide)
        separate()
        print_settings(settings[group_report.group.group_id], is_wide=is_wide)
        return
    print_table(
        _COLUMNS,
        [_row(partition) for partition in group_report.partitions],
        spare=("MEMBER-ID", "HOST", "CLIENT-ID"),
        empty="The group has no members and no committed offsets.",
        wide=is_wide,
    )


def _print_share_group(group_report: GroupReport, *, is_wide: bool) -> None:
    """Print the partitions of a share group with the number of their members, and the members."""
    members = group_report.group.members
    shared = Counter(partition for member in members for partition in member.partitions)
    print_table(
        _SHARE_COLUMNS,
        [
            (
                *row.partition,
                _shown(row.current),
                _shown(row.end),
                _shown(lag(row.lag)),
                shared[row.partition],
            )
            for row in group_report.partitions
        ],
        empty="The group has no members, and has begun in no partition.",
        wide=is_wide,
    )
    if members:
        separate()
        print_table(
            _MEMBER_COLUMNS,
            [
                (member.member_id, member.client_id, member.host, member.epoch, _by_topic(member))
                for member in members
            ],
            spare=("EPOCH", "HOST"),
            wide=is_wide,
        )


def _by_topic(member: GroupMember) -> str:
    """Return the partitions of a member, such as `orders:0,1`."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(member.partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items()) or "-"


def _row(partition_lag: PartitionLag) -> tuple[object, ...]:
    member = partition_lag.member
    owner = ("-", "-", "-") if member is None else (member.member_id, member.client_id, member.host)
    return (
        *partition_lag.partition,
        _shown(partition_lag.current),
        _shown(partition_lag.end),
        _shown(lag(partition_lag.lag)),
        *owner,
    )


def _shown(value: object) -> object:
    return "-" if value is None else value


def _lag(known: int | None, unknown: int) -> object:
    """Format a group's lag in records: the sum `known`, or `22+` if the lag of `unknown` partitions is unknown."""
    if known is None:
        return "-"
    return Shaded(f"{known}+", Shade.IMPAIRED) if unknown else lag(known)


def _as_json(
    group_report: GroupReport, arguments: argparse.Namespace, settings: Mapping[str, Settings]
) -> dict[str, Any]:
    group = group_report.group
    fields: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": {
            "id": group.coordinator.id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "total_lag": group_report.total_lag,
        "partitions_of_unknown_lag": group_report.unknown_lags,
        "lag_by_topic": {topic: lag for topic, (_, lag) in group_report.lag_by_topic().items()},
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "partitions": [list(partition) for partition in member.partitions],
            }
            for member in group.members
        ],
    }
    if group.group_id in settings:
        fields |= settings_as_json(settings[group.group_id])
    if not arguments.summary and group.type == SHARE_TYPE:
        fields["partitions"] = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "start_offset": row.current,
                "log_end_offset": row.end,
                "lag": row.lag,
            }
            for row in group_report.partitions
        ]
    elif not arguments.summary:
        fields["partitions"] = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "current_offset": row.current,
                "log_end_offset": row.end,
                "lag": row.lag,
                "member_id": None if row.member is None else row.member.member_id,
            }
            for row in group_report.partitions
        ]
    return fields
