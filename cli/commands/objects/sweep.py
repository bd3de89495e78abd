"""`ottla objects sweep`: deletes old objects of topics to which no record refers, after a confirmation."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ....client.admin import Admin
from ....client.admin.values import TOPIC_RESOURCE
from ....client.failures import ObjectStoreFailed
from ....client.objects.opening import open_store
from ....client.objects.references import folder_of
from ....client.objects.store import ObjectStore
from ....client.records import TopicPartition
from ...arguments.selection import timestamp_ms
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import run_client
from ...terminal.confirmation import confirm
from ...terminal.output import bytes_text, print_json, print_table
from ...terminal.progress import ProgressLine, progress_bar
from ...terminal.text import counted
from .candidates import TopicObjects, cutoff_ms
from .live import find_references

PATIENCE_S: Final = 60.0
"""Seconds after which a call of the store gives up."""
LEAST_AGE_MS: Final = 3_600_000
"""The youngest age of a deleted object: producers create an object before its record."""
DELETED_AT_ONCE: Final = 16


def sweep(arguments: argparse.Namespace) -> None:
    """Delete the old objects of topics to which no record refers, and print a line for each topic."""
    now_ms = int(time.time() * 1000)
    older_than_ms = timestamp_ms(arguments.older_than, now_ms)
    if older_than_ms > now_ms - LEAST_AGE_MS:
        raise UsageError(
            "--older-than is at least 1h, since the records of young objects may still be under way"
        )
    store = _opened(arguments.store)
    found = run_client(_survey(arguments, store, older_than_ms), waits_for=None)
    doomed = {each.topic: each.deleted(earlier_topics=arguments.earlier_topics) for each in found}
    count = sum(map(len, doomed.values()))
    if count and not arguments.dry_run:
        size = bytes_text(sum(sum(sizes.values()) for sizes in doomed.values()))
        confirm(
            f"Delete {counted(count, 'object')}, {size}, of {', '.join(doomed)} from {store.url}?",
            yes=arguments.yes,
        )
        run_client(_delete(store, [key for sizes in doomed.values() for key in sizes]), waits_for=None)
    rows = [_row(each, doomed[each.topic], arguments) for each in found]
    if arguments.output == "json":
        print_json({"store": store.url, "dry_run": arguments.dry_run, "topics": rows})
        return
    print_table(
        [name.upper().replace("_", "-") for name in rows[0]],
        [
            [bytes_text(value) if name.endswith("bytes") else value for name, value in row.items()]
            for row in rows
        ],
        wide=arguments.output == "wide",
    )


def _opened(url: str) -> ObjectStore:
    try:
        return open_store(url, PATIENCE_S)
    except ValueError as error:
        raise UsageError(f"--store: {error}") from None
    except (ModuleNotFoundError, ObjectStoreFailed) as error:
        raise CommandFailed(str(error)) from None


def _row(found: TopicObjects, doomed: Mapping[str, int], arguments: argparse.Namespace) -> dict[str, Any]:
    action = "to_delete" if arguments.dry_run else "deleted"
    return {
        "topic": found.topic,
        "objects": found.objects,
        "bytes": found.object_bytes,
        "referenced_and_old": found.referenced,
        "of_earlier_topics": len(found.earlier),
        action: len(doomed),
        f"{action}_bytes": sum(doomed.values()),
    }


async def _survey(
    arguments: argparse.Namespace, store: ObjectStore, older_than_ms: int
) -> list[TopicObjects]:
    """Return the objects of each topic, with the old ones to which no record refers."""
    connection = connection_of(arguments)
    surveyed: list[TopicObjects] = []
    async with Admin(**connection) as admin:
        existing = {topic.name: topic for topic in await admin.describe_topics()}
        for name in dict.fromkeys(arguments.names):
            topic = existing.get(name)
            if topic is None and not arguments.earlier_topics:
                raise CommandFailed(
                    f"there is no topic {name!r} in this cluster; --earlier-topics deletes objects of deleted topics"
                )
            configs = (
                {}
                if topic is None
                else {entry.name: entry.value for entry in await admin.describe_configs(TOPIC_RESOURCE, name)}
            )
            found = TopicObjects(name, None if topic is None else topic.id, cutoff_ms(configs, older_than_ms))
            await _list(store, found)
            if topic is not None and (found.old or found.earlier):
                partitions = [TopicPartition(name, index) for index in topic.partitions]
                await find_references(connection, partitions, found)
            surveyed.append(found)
    return surveyed


async def _list(store: ObjectStore, found: TopicObjects) -> None:
    with ProgressLine() as line:
        async for stored in store.list(folder_of(found.topic)):
            found.add(stored)
            line.show(f"listing {found.topic}: {counted(found.objects, 'object')}")


async def _delete(store: ObjectStore, keys: Sequence[str]) -> None:
    """Delete objects, some at a time. A deletion that fails ends the others, and the next sweep goes on."""
    waiting = iter(keys)
    done = 0
    with progress_bar("deleting", len(keys)) as progress:

        async def work(mine: Iterator[str]) -> None:
            nonlocal done
            for key in mine:
                await store.delete(key)
                done += 1
                progress(done)

        await asyncio.gather(*(work(waiting) for _ in range(DELETED_AT_ONCE)))
