"""`ottla mirror list` and `ottla mirror status`: print mirrors."""

from __future__ import annotations

import argparse

from ....client.admin import Admin, MirrorDescription
from ....protocol.errors import KafkaError
from ...connection.precedence import connection_of
from ...failures import CommandFailed
from ...missing_names import refusal_of_names
from ...run_client import run_client
from ...terminal.output import none_of, print_json, print_table, separate
from ...terminal.shades import faults, lag, state
from ...terminal.text import note, say
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
            state(mirror.phase.name.lower()),
            mirror.bootstrap_servers,
            len(mirror.topics),
            lag(shown(mirror.lag)),
            faults(len(stopped(mirror))),
        )
        for mirror in mirrors
    ]
    print_table(
        ("MIRROR", "PHASE", "SOURCE", "TOPICS", "LAG", "FAULTS"),
        rows,
        spare=("SOURCE",),
        empty=none_of("mirrors"),
        wide=arguments.output == "wide",
    )


def status(arguments: argparse.Namespace) -> int:
    """Print the details of mirrors: topics, faults and troubles.

    Return 1 if a fault or another problem stops any copy.
    """
    mirrors = run_client(describe(arguments, arguments.names))
    if arguments.output == "json":
        print_json([as_json(mirror) for mirror in mirrors])
    else:
        if not mirrors:
            note(none_of("mirrors"))
        for index, mirror in enumerate(mirrors):
            if index:
                say()
            _print(mirror, is_wide=arguments.output == "wide")
    return int(any(stopped(mirror) or any(troubles(mirror)) for mirror in mirrors))


async def describe(arguments: argparse.Namespace, names: list[str]) -> list[MirrorDescription]:
    """Return the descriptions of these mirrors, or of all mirrors if no name is given."""
    async with Admin(**connection_of(arguments)) as admin:
        try:
            return await admin.describe_mirrors(names or None)
        except KafkaError as error:
            raise CommandFailed(await refusal_of_names(admin, names, error)) from None


def _print(mirror: MirrorDescription, *, is_wide: bool) -> None:
    say(summary(mirror))
    print_table(
        ("TOPIC", "PARTITIONS", "STATE", "LAG", "LAG-BYTES", "BEHIND-MS", "FAULTS"),
        [topic_row(mirror, topic) for topic in mirror.topics],
        spare=("LAG-BYTES", "PARTITIONS", "BEHIND-MS"),
        empty="The mirror has no topics.",
        wide=is_wide,
    )
    if line := cut_line(mirror):
        say(line)
    if found_faults := stopped(mirror):
        separate()
        say(f"stopped; 'ottla mirror resume {mirror.name} --accept-gap' resumes without the lost records:")
        rows = [
            (
                partition.topic,
                partition.partition,
                KINDS[partition.fault.kind],
                partition.loss,
                partition.fault.reason,
            )
            for partition in found_faults
        ]
        print_table(("TOPIC", "PARTITION", "FAULT", "LOSS", "REASON"), rows, wide=is_wide)
    if found := list(troubles(mirror)):
        separate()
        say("in trouble:")
        print_table(("WHERE", "WHY"), found, wide=is_wide)
    if mirror.skipped:
        separate()
        say("not copied:")
        print_table(("TOPIC", "REASON"), sorted(mirror.skipped.items()), wide=is_wide)
