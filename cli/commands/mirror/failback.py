"""`ottla mirror failback`: makes a cluster's topics copies of a cluster that was promoted from them, and reports the
records that would be lost."""

from __future__ import annotations

import argparse
from typing import Any

from ....client.admin import Admin, Failback
from ...connection.precedence import connection_of
from ...run_client import run_client
from ...terminal.confirmation import confirm
from ...terminal.output import print_json, print_table
from ...terminal.text import counted, note
from .create import bandwidth_of, source_asked, source_options


def failback(arguments: argparse.Namespace) -> int:
    """Make topics copies of topics in another cluster that were copies of them before.

    Records that exist only here are lost.

    Return 1 if a dry run finds that the request would be refused.
    """
    options = source_options(arguments.source_option, arguments.source_options_file)
    if arguments.dry_run:
        found = run_client(_fail_back(arguments, options, checks=True), waits_for=source_asked(arguments))
        refused = any(topic.refusal for topic in found.topics)
        _print(arguments, found, "checked")
        return int(refused or not found.topics or (found.needs_discard and not arguments.discard))
    if arguments.discard:
        found = run_client(_fail_back(arguments, options, checks=True), waits_for=source_asked(arguments))
        confirm(
            f"Copy {counted(len(found.topics), 'topic')} from cluster {found.source_cluster_id} from now on? No other "
            f"records are taken, and {_only_here(found.lost)} {_be(found.lost)} deleted for good.",
            yes=arguments.yes,
        )
    done = run_client(_fail_back(arguments, options, checks=False), waits_for=source_asked(arguments))
    _print(arguments, done, "copied from now on")
    return 0


async def _fail_back(arguments: argparse.Namespace, options: dict[str, str], *, checks: bool) -> Failback:
    async with Admin(**connection_of(arguments)) as admin:
        return await admin.failback_mirror(
            arguments.name,
            source=arguments.source,
            topics=arguments.topics,
            groups=arguments.groups,
            options=options,
            bandwidth=bandwidth_of(arguments.bandwidth),
            acls=arguments.acls,
            discard=arguments.discard,
            validate_only=checks,
        )


def _print(arguments: argparse.Namespace, found: Failback, result: str) -> None:
    if arguments.output == "json":
        print_json(_as_json(arguments.name, found, result))
        return
    rows = [
        (
            topic.name,
            partition.partition,
            partition.common_offset,
            partition.log_end_offset,
            f"{partition.lost:,}",
        )
        for topic in found.topics
        for partition in topic.partitions
    ]
    columns = ("TOPIC", "PARTITION", "COMMON-OFFSET", "LOG-END-OFFSET", "LOST")
    print_table(columns, rows, wide=arguments.output == "wide")
    for topic in found.topics:
        if topic.refusal is not None:
            note(f"{topic.name}: {topic.refusal.message}")
    if not found.topics:
        note("no topic here matches")
    is_done = arguments.discard and not arguments.dry_run
    if found.lost:
        note(f"{_only_here(found.lost)} {_be(found.lost) if is_done else 'would be'} lost")


def _only_here(records: int) -> str:
    return f"{counted(records, 'record')} that {_be(records)} only here"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _as_json(name: str, found: Failback, result: str) -> dict[str, Any]:
    return {
        "name": name,
        "source_cluster_id": found.source_cluster_id,
        "result": result,
        "lost": found.lost,
        "topics": [
            {
                "name": topic.name,
                "refusal": None if topic.refusal is None else topic.refusal.message,
                "partitions": [
                    {
                        "partition": partition.partition,
                        "common_offset": partition.common_offset,
                        "log_end_offset": partition.log_end_offset,
                        "lost": partition.lost,
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in found.topics
        ],
    }
