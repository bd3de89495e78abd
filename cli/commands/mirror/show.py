"""`ottla mirror list` and `ottla mirror status`: print mirrors."""

from __future__ import annotations

import argparse

from ....client.admin import Admin, MirrorDescription
from ...connection.precedence import connection_of
from ...run_client import run_client
from ...terminal.output import print_json, print_table
from ...terminal.text import say
from .report import KINDS, as_json, cut_line, shown, stopped, summary, topic_row, troubles


def list_mirrors(arguments: argparse.Namespace) -> None:
    """Print a line for each mirror: phase, source, topics, lag and faults."""
    mirrors = run_client(describe(arguments, []))
    if arguments.output == "json":
        keys = ("name", "phase", "bootstrap_servers", "source_cluster_id", "lag", "lag_bytes")
        print_json(
            [
                {key: as_json(mirror)[key] for key in keys}
                | {"topics": len(mirror.topics), "faults": len(stopped(mirror))}
                for mirror in mirrors
            ]
        )
        return
    rows = [
        (
            mirror.name,
            mirror.phase.name.lower(),
            mirror.bootstrap_servers,
            len(mirror.topics),
            shown(mirror.lag),
            len(stopped(mirror)),
        )
        for mirror in mirrors
    ]
    print_table(("MIRROR", "PHASE", "SOURCE", "TOPICS", "LAG", "FAULTS"), rows)


def status(arguments: argparse.Namespace) -> int:
    """Print the details of mirrors: topics, faults and troubles.

    Return 1 if a fault or another problem stops any copy.
    """
    mirrors = run_client(describe(arguments, arguments.names))
    if arguments.output == "json":
        print_json([as_json(mirror) for mirror in mirrors])
    else:
        for index, mirror in enumerate(mirrors):
            if index:
                say()
            _print(mirror)
    return int(any(stopped(mirror) or any(troubles(mirror)) for mirror in mirrors))


async def describe(arguments: argparse.Namespace, names: list[str]) -> list[MirrorDescription]:
    """Return the descriptions of these mirrors, or of all mirrors if no name is given."""
    async with Admin(**connection_of(arguments)) as admin:
        return await admin.describe_mirrors(names or None)


def _print(mirror: MirrorDescription) -> None:
    say(summary(mirror))
    print_table(
        ("TOPIC", "PARTITIONS", "STATE", "LAG", "LAG-BYTES", "BEHIND-MS", "FAULTS"),
        [topic_row(mirror, topic) for topic in mirror.topics],
    )
    if line := cut_line(mirror):
        say(line)
    if faults := stopped(mirror):
        say(f"stopped; 'ottla mirror resume {mirror.name} --accept-gap' resumes without the lost records:")
        rows = [
            (
                partition.topic,
                partition.partition,
                KINDS[partition.fault.kind],
                partition.loss,
                partition.fault.reason,
            )
            for partition in faults
        ]
        print_table(("TOPIC", "PARTITION", "FAULT", "LOSS", "REASON"), rows)
    if found := list(troubles(mirror)):
        say("in trouble:")
        print_table(("WHERE", "WHY"), found)
    if mirror.skipped:
        say("not copied:")
        print_table(("TOPIC", "REASON"), sorted(mirror.skipped.items()))
