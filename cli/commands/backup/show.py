"""`ottla backup list`: the cuts of a backup, or the topics of one cut."""

from __future__ import annotations

import argparse

from ....client.backup.catalog import Catalog, chosen_cut
from ....client.backup.cut_file import CutFile
from ....client.backup.names import cut_id
from ....client.backup.reading import read_catalog, read_cut
from ....client.objects.store import ObjectStore
from ...arguments.selection import second_text
from ...failures import CommandFailed, UsageError
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
        _print_cuts(arguments, run_client(_all(store), waits_for="the store"))


async def _all(store: ObjectStore) -> list[CutFile]:
    catalog = await read_catalog(store)
    return [await read_cut(store, name) for name in catalog.cuts]


async def _one(store: ObjectStore, text: str) -> CutFile:
    catalog = await read_catalog(store)
    wanted = None if text == NEWEST else cut_id(text)
    if wanted is None and text != NEWEST:
        raise UsageError(f"--topics-of takes a cut such as 3-17, or {NEWEST!r}, not {text!r}")
    name = chosen_cut(catalog.cuts, wanted)
    if name is None:
        raise CommandFailed(no_such_cut(catalog, text))
    return await read_cut(store, name)


def no_such_cut(catalog: Catalog, text: str) -> str:
    """Return the error text for a cut or a time that the backup does not have."""
    if not catalog.cuts:
        return "the backup has no whole cut yet"
    first, last = catalog.cuts[0], catalog.cuts[-1]
    return (
        f"the backup has no cut {text}: its cuts are {first.cut} of {second_text(first.time_ms)} to {last.cut} of "
        f"{second_text(last.time_ms)}"
    )


def _print_cuts(arguments: argparse.Namespace, cuts: list[CutFile]) -> None:
    if arguments.output == "json":
        print_json(
            [
                {
                    "cut": str(cut.cut),
                    "time": second_text(cut.time_ms),
                    "time_ms": cut.time_ms,
                    "cluster_id": cut.cluster_id,
                    "topics": len(cut.user_topics),
                    "partitions": sum(len(topic.partitions) for topic in cut.user_topics),
                    "offsets": _offsets(cut),
                    "consistent": cut.is_whole,
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
                str(cut.cut),
                second_text(cut.time_ms),
                len(cut.user_topics),
                sum(len(topic.partitions) for topic in cut.user_topics),
                _offsets(cut),
                sum(missed.end - missed.first for missed in cut.missed),
                consistent(is_whole=cut.is_whole),
            )
            for cut in cuts
        ],
        empty=none_of("cuts"),
    )


def _offsets(cut: CutFile) -> int:
    return sum(part.end - part.start for topic in cut.user_topics for part in topic.partitions)


def _print_topics(arguments: argparse.Namespace, cut: CutFile) -> None:
    rows = [
        {
            "topic": topic.name,
            "id": topic.topic_id.hex(),
            "partitions": len(topic.partitions),
            "offsets": sum(part.end - part.start for part in topic.partitions),
            "settings": dict(topic.settings),
        }
        for topic in cut.user_topics
    ]
    if arguments.output == "json":
        print_json({"cut": str(cut.cut), "topics": rows})
        return
    print_table(
        ("TOPIC", "PARTITIONS", "OFFSETS", "ID"),
        [(row["topic"], row["partitions"], row["offsets"], row["id"]) for row in rows],
        empty=none_of("topics"),
    )
