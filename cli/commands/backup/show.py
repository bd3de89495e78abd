"""`ottla backup list`: the cuts of a backup, or the topics of one cut."""

from __future__ import annotations

import argparse

from ....client.backup.catalog import chosen_cut
from ....client.backup.names import cut_id
from ....client.backup.reading import list_cuts as cuts_of
from ....client.backup.reading import read_catalog, read_cut
from ....client.backup.values import BackupCut
from ....client.objects.store import ObjectStore
from ...arguments.selection import second_text
from ...failures import UsageError
from ...run_client import run_client
from ...terminal.output import none_of, print_json, print_table
from .making import consistent
from .stores import opened

NEWEST = "newest"


def list_cuts(arguments: argparse.Namespace) -> None:
    """Print a line for each cut, or for each topic of a cut."""
    store = opened(arguments.url, "URL")
    if arguments.topics_of is not None:
        _print_topics(arguments, run_client(_one(store, arguments.topics_of), waits_for="the store"))
    else:
        _print_cuts(arguments, run_client(cuts_of(store), waits_for="the store"))


async def _one(store: ObjectStore, text: str) -> BackupCut:
    wanted = None if text == NEWEST else cut_id(text)
    if wanted is None and text != NEWEST:
        raise UsageError(f"--topics-of takes a cut such as 3-17, or {NEWEST!r}, not {text!r}")
    catalog = await read_catalog(store)
    return (await read_cut(store, chosen_cut(catalog.cuts, wanted))).described()


def _print_cuts(arguments: argparse.Namespace, cuts: list[BackupCut]) -> None:
    if arguments.output == "json":
        print_json(
            [
                {
                    "cut": cut.cut,
                    "time": second_text(cut.time_ms),
                    "time_ms": cut.time_ms,
                    "cluster_id": cut.cluster_id,
                    "topics": len(cut.topics),
                    "partitions": cut.partitions,
                    "offsets": cut.offsets,
                    "consistent": cut.is_consistent,
                    "missed_offsets": sum(missed.end - missed.first for missed in cut.missed),
                    "left_out": list(cut.left_out),
                }
                for cut in cuts
            ]
        )
        return
    print_table(
        ("CUT", "TIME", "TOPICS", "PARTITIONS", "OFFSETS", "MISSED", "CONSISTENT"),
        [
            (
                cut.cut,
                second_text(cut.time_ms),
                len(cut.topics),
                cut.partitions,
                cut.offsets,
                sum(missed.end - missed.first for missed in cut.missed),
                consistent(is_consistent=cut.is_consistent),
            )
            for cut in cuts
        ],
        empty=none_of("cuts"),
    )


def _print_topics(arguments: argparse.Namespace, cut: BackupCut) -> None:
    rows = [
        {
            "topic": topic.name,
            "id": topic.id.hex(),
            "partitions": topic.partitions,
            "offsets": topic.offsets,
            "settings": dict(topic.settings),
        }
        for topic in cut.topics
    ]
    if arguments.output == "json":
        print_json({"cut": cut.cut, "topics": rows})
        return
    print_table(
        ("TOPIC", "PARTITIONS", "OFFSETS", "ID"),
        [(row["topic"], row["partitions"], row["offsets"], row["id"]) for row in rows],
        empty=none_of("topics"),
    )
