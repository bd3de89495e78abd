"""`ottla cluster restore`: brings a cut of a backup back into a cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from ....client.admin import Admin
from ....client.backup.catalog import chosen_cut
from ....client.backup.names import CutId, cut_id
from ....client.backup.plans import restore_plan
from ....client.backup.reading import read_catalog, read_cut
from ....client.backup.restore import PreparedRestore, Restore, RestoreProgress, RestoreResult, prepare
from ....client.failures import BackupUnusable, ConnectionLost
from ....client.objects.store import ObjectStore
from ....dataplane.runtime.allocator import return_large_blocks
from ...arguments.options import key_value_pairs
from ...arguments.selection import duration_text, pattern, second_text, timestamp_ms
from ...connection.precedence import connection_of
from ...run_client import run_client
from ...terminal.output import bytes_text, print_json, print_table
from ...terminal.progress import ProgressLine
from ...terminal.text import counted, note
from ..backup.show import no_such_cut
from ..backup.stores import opened
from .restore_endpoint import endpoint_for


def restore(arguments: argparse.Namespace) -> None:
    """Restore a cut, or with `--dry-run` show what would be restored."""
    for regex in (arguments.topics, arguments.groups):
        if regex:
            pattern(regex)
    renames = key_value_pairs(arguments.rename, "--rename")
    as_of = _as_of(arguments.as_of)
    store = opened(arguments.source, "--from")
    return_large_blocks()
    run_client(_restore(arguments, store, as_of, renames), waits_for=None)


def _as_of(text: str | None) -> CutId | int | None:
    if text is None:
        return None
    named = cut_id(text)
    return timestamp_ms(text, int(time.time() * 1000)) if named is None else named


async def _restore(
    arguments: argparse.Namespace,
    store: ObjectStore,
    as_of: CutId | int | None,
    renames: Sequence[tuple[str, str]],
) -> None:
    catalog = await read_catalog(store)
    name = chosen_cut(catalog.cuts, as_of)
    if name is None:
        raise BackupUnusable(no_such_cut(catalog, arguments.as_of or "at all"))
    plan = restore_plan(await read_cut(store, name), arguments.topics, arguments.groups, renames)
    with ProgressLine() as line:
        line.show("listing the segments")
        prepared = await prepare(store, catalog, plan)
    if not plan.cut.is_whole:
        note("the backup is of Apache Kafka: each partition ends by itself, and transactions may be torn")
    async with Admin(**connection_of(arguments)) as admin:
        restoring = Restore(admin, store, prepared, acls=arguments.acls, quotas=arguments.quotas)
        await restoring.check()
        if arguments.dry_run:
            _print_plan(arguments, prepared)
            return
        began_s = time.monotonic()
        with endpoint_for(arguments.listen, await _way_to(admin)) as endpoint, ProgressLine() as line:
            result = await restoring.run(endpoint, lambda told: line.show(_text(told, began_s)))
    _print(arguments, prepared, result, time.monotonic() - began_s)


async def _way_to(admin: Admin) -> str:
    """Return the host of a broker. The address of this machine on the way to it is the address for the brokers."""
    brokers = (await admin.describe_cluster()).brokers
    if not brokers:
        raise ConnectionLost("the cluster has no broker that is not fenced")
    return brokers[0].host


def _text(told: RestoreProgress, began_s: float) -> str:
    if told.state != "copying":
        return {"creating": "creating the topics", "checking": "checking the segments"}.get(
            told.state, "opening the topics"
        )
    passed_s = max(0.001, time.monotonic() - began_s)
    rate = told.done / passed_s
    left = (
        f", {duration_text((told.total - told.done) / rate)} left" if rate and told.done < told.total else ""
    )
    return (
        f"restored {bytes_text(told.done)} of {bytes_text(told.total)}, {bytes_text(int(rate))}/s{left}; "
        f"{counted(told.partitions_left, 'partition')} not whole yet{told.trouble and ': '}{told.trouble}"
    )


def _print_plan(arguments: argparse.Namespace, prepared: PreparedRestore) -> None:
    cut = prepared.plan.cut
    sizes: dict[str, int] = {}
    for part in prepared.partitions:
        sizes[part.topic.name] = sizes.get(part.topic.name, 0) + part.size
    rows: list[dict[str, Any]] = [
        {
            "topic": topic.name,
            "from": prepared.plan.renamed.get(topic.name, topic.name),
            "partitions": len(topic.partitions),
            "offsets": sum(part.end - part.start for part in topic.partitions),
            "bytes": sizes[topic.name],
        }
        for topic in prepared.plan.topics
    ]
    about = {
        "cut": str(cut.cut),
        "time": second_text(cut.time_ms),
        "consistent": cut.is_whole,
        "groups": prepared.plan.groups,
        "acls": len(cut.acls or ()),
        "quotas": len(cut.quotas or ()),
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
    groups = f"offsets of groups that match {prepared.plan.groups}" if prepared.plan.groups else "no groups"
    note(
        f"cut {about['cut']} of {about['time']}, with {groups}; it has {counted(len(cut.acls or ()), 'ACL')} "
        f"({'restored' if arguments.acls else 'restored with --acls'}) and {counted(len(cut.quotas or ()), 'quota')} "
        f"({'restored' if arguments.quotas else 'restored with --quotas'}). Nothing was done"
    )


def _print(
    arguments: argparse.Namespace, prepared: PreparedRestore, result: RestoreResult, took_s: float
) -> None:
    cut = prepared.plan.cut
    for refused in result.refused:
        note(f"the cluster has refused the {refused}")
    row = {
        "cut": str(cut.cut),
        "time": second_text(cut.time_ms),
        "topics": result.topics,
        "partitions": result.partitions,
        "bytes": result.size,
        "acls": result.acls,
        "quotas": result.quotas,
        "seconds": round(took_s, 3),
        "refused": result.refused,
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
                result.topics,
                result.partitions,
                bytes_text(result.size),
                result.acls,
                result.quotas,
                duration_text(took_s),
            )
        ],
    )
