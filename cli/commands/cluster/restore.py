"""`ottla cluster restore`: brings a cut of a backup back into a cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any, Final

from ....client.admin import Admin
from ....client.admin.backups.restore_endpoint import listen_address
from ....client.backup.names import cut_id
from ....client.backup.values import Restoration, RestoreProgress
from ....dataplane.runtime.allocator import return_large_blocks
from ...arguments.options import key_value_pairs
from ...arguments.selection import duration_text, pattern, second_text, timestamp_ms
from ...connection.precedence import connection_of
from ...failures import UsageError
from ...run_client import run_client
from ...terminal.output import bytes_text, print_json, print_table
from ...terminal.progress import ProgressLine
from ...terminal.text import counted, note
from ..backup.stores import opened

_STEPS: Final = {
    "listing": "listing the segments",
    "creating": "creating the topics",
    "checking": "checking the segments",
    "opening": "opening the topics",
}


def restore(arguments: argparse.Namespace) -> None:
    """Restore a cut, or with `--dry-run` show what would be restored."""
    for regex in (arguments.topics, arguments.groups):
        if regex:
            pattern(regex)
    renames = _renames(arguments)
    as_of = _as_of(arguments.as_of)
    opened(arguments.source, "--from")  # An error about the URL comes before an attempt to reach the cluster.
    if arguments.listen is not None:
        try:
            listen_address(arguments.listen)
        except ValueError as error:
            raise UsageError(f"--{error}") from None
    return_large_blocks()
    run_client(_restore(arguments, as_of, renames), waits_for=None)


def _renames(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the new names of topics, by their names in the backup. Raises UsageError."""
    renames: dict[str, str] = {}
    for old, new in key_value_pairs(arguments.rename, "--rename"):
        if old in renames:
            raise UsageError(f"--rename names {old!r} twice")
        renames[old] = new
    return renames


def _as_of(text: str | None) -> str | int | None:
    """Return the id of a cut, or a time in ms since 1970."""
    if text is None or cut_id(text) is not None:
        return text
    return timestamp_ms(text, int(time.time() * 1000))


async def _restore(
    arguments: argparse.Namespace, as_of: str | int | None, renames: Mapping[str, str]
) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        began_s = time.monotonic()
        with ProgressLine() as line:
            restored = await admin.restore_backup(
                arguments.source,
                as_of=as_of,
                topics=arguments.topics,
                groups=arguments.groups,
                renames=renames,
                acls=arguments.acls,
                quotas=arguments.quotas,
                listen=arguments.listen,
                validate_only=arguments.dry_run,
                progress=lambda told: line.show(_text(told, began_s)),
            )
    if not restored.cut.is_consistent:
        note("the backup is of Apache Kafka: each partition ends by itself, and transactions may be torn")
    if arguments.dry_run:
        _print_plan(arguments, restored)
    else:
        _print(arguments, restored, time.monotonic() - began_s)


def _text(told: RestoreProgress, began_s: float) -> str:
    if told.state != "copying":
        return _STEPS[told.state]
    passed_s = max(0.001, time.monotonic() - began_s)
    rate = told.done / passed_s
    left = (
        f", {duration_text((told.total - told.done) / rate)} left" if rate and told.done < told.total else ""
    )
    return (
        f"restored {bytes_text(told.done)} of {bytes_text(told.total)}, {bytes_text(int(rate))}/s{left}; "
        f"{counted(told.partitions_left, 'partition')} not whole yet{told.trouble and ': '}{told.trouble}"
    )


def _print_plan(arguments: argparse.Namespace, planned: Restoration) -> None:
    cut = planned.cut
    rows: list[dict[str, Any]] = [
        {
            "topic": topic.name,
            "from": topic.source,
            "partitions": topic.partitions,
            "offsets": topic.offsets,
            "bytes": topic.size,
        }
        for topic in planned.topics
    ]
    about = {
        "cut": cut.cut,
        "time": second_text(cut.time_ms),
        "consistent": cut.is_consistent,
        "groups": planned.groups,
        "acls": cut.acls or 0,
        "quotas": cut.quotas or 0,
    }
    if arguments.output == "json":
        print_json({**about, "topics": rows})
        return
    print_table(
        ("TOPIC", "FROM", "PARTITIONS", "OFFSETS", "BYTES"),
        [
            (row["topic"], row["from"], row["partitions"], row["offsets"], bytes_text(row["bytes"]))
            for row in rows
        ],
    )
    groups = f"offsets of groups that match {planned.groups}" if planned.groups else "no groups"
    note(
        f"cut {about['cut']} of {about['time']}, with {groups}; it has {counted(cut.acls or 0, 'ACL')} "
        f"({'restored' if arguments.acls else 'restored with --acls'}) and {counted(cut.quotas or 0, 'quota')} "
        f"({'restored' if arguments.quotas else 'restored with --quotas'}). Nothing was done"
    )


def _print(arguments: argparse.Namespace, result: Restoration, took_s: float) -> None:
    cut = result.cut
    for refused in result.refused:
        note(f"the cluster has refused the {refused}")
    row = {
        "cut": cut.cut,
        "time": second_text(cut.time_ms),
        "topics": len(result.topics),
        "partitions": result.partitions,
        "bytes": result.size,
        "acls": result.acls,
        "quotas": result.quotas,
        "seconds": round(took_s, 3),
        "refused": list(result.refused),
    }
    if arguments.output == "json":
        print_json(row)
        return
    print_table(
        ("CUT", "TIME", "TOPICS", "PARTITIONS", "BYTES", "ACLS", "QUOTAS", "TOOK"),
        [
            (
                row["cut"],
                row["time"],
                len(result.topics),
                result.partitions,
                bytes_text(result.size),
                result.acls,
                result.quotas,
                duration_text(took_s),
            )
        ],
    )
