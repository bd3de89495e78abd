"""`ottla backup --to URL`: makes one cut, or a cut at each interval."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import suppress
from typing import Any

from ....client.admin import Admin
from ....client.admin.backups.backup import Backup
from ....client.backup.values import BackupCut, BackupProgress
from ....client.failures import BackupRefused, BackupUnusable, ObjectStoreFailed
from ....client.worker.signals import stopping_on_signals
from ....protocol.errors import KafkaError
from ...arguments.selection import milliseconds_of, pattern, second_text
from ...connection.precedence import connection_of
from ...failures import UsageError
from ...run_client import refusal, run_client
from ...terminal.output import bytes_text, print_json, print_table
from ...terminal.progress import ProgressLine, renewed_line
from ...terminal.text import counted, json_escaped, note, say
from .stores import opened

EVERY_MS_LEAST = 1_000


def make(arguments: argparse.Namespace) -> None:
    """Make one cut, or with `--every` a cut at each interval until a signal ends the command."""
    if arguments.to is None:
        raise UsageError(
            "backup: --to URL is missing, the store of the backup; 'ottla backup --help' shows examples"
        )
    for regex in (arguments.topics, arguments.groups):
        pattern(regex)
    every_ms = None if arguments.every is None else milliseconds_of(arguments.every, "--every")
    if every_ms is not None and every_ms < EVERY_MS_LEAST:
        raise UsageError(f"--every is at least {EVERY_MS_LEAST // 1000}s, not {arguments.every}")
    opened(arguments.to, "--to")  # An error about the URL comes before an attempt to reach the cluster.
    run_client(_run(arguments, every_ms), waits_for=None)


async def _run(arguments: argparse.Namespace, every_ms: int | None) -> None:
    async with Admin(**connection_of(arguments)) as admin:
        with ProgressLine() as line:
            backup = await admin.open_backup(
                arguments.to,
                topics=arguments.topics,
                groups=arguments.groups,
                progress=lambda told: line.show(told.waits_for),
            )
        try:
            if every_ms is None:
                _print(arguments, await _cut(backup), is_only=True)
            else:
                await _until_a_signal(arguments, backup, every_ms)
        finally:
            await backup.close()


async def _until_a_signal(arguments: argparse.Namespace, backup: Backup, every_ms: int) -> None:
    """Make a cut at each interval. A signal ends it at once: what is not whole then belongs to no cut."""
    task = asyncio.ensure_future(_repeat(arguments, backup, every_ms))

    def stop(*, at_once: bool = False) -> None:
        task.cancel()

    with stopping_on_signals(stop), suppress(asyncio.CancelledError):
        await task


async def _repeat(arguments: argparse.Namespace, backup: Backup, every_ms: int) -> None:
    while True:
        began_s = time.monotonic()
        try:
            _print(arguments, await _cut(backup), is_only=False)
        except (BackupRefused, BackupUnusable):
            raise
        except (KafkaError, ObjectStoreFailed) as error:
            note(f"no cut this time: {refusal(error)}; the next attempt is in {every_ms / 1000:g} s")
        await asyncio.sleep(max(0.0, began_s + every_ms / 1000 - time.monotonic()))


async def _cut(backup: Backup) -> BackupCut:
    told = BackupProgress()

    def progress(now: BackupProgress) -> None:
        nonlocal told
        told = now

    # The line has the seconds, since a slow store may take most of a minute for an object.
    def text(passed_s: float) -> str:
        return (
            f"copying: {told.partitions_done:,} of {counted(told.partitions, 'partition')}, "
            f"{bytes_text(told.size)} of {counted(told.offsets, 'offset')}, {passed_s:.0f} s"
        )

    async with renewed_line(text):
        return await backup.cut(progress=progress)


def _print(arguments: argparse.Namespace, cut: BackupCut, *, is_only: bool) -> None:
    for missed in cut.missed:
        note(
            f"{missed.topic}-{missed.partition}: {missed.end - missed.first:,} offsets, {missed.first} to "
            f"{missed.end - 1}, were deleted before they were copied"
        )
    if is_only:
        for reason in cut.left_out:
            note(f"not in the backup: {reason}")
    row = _row(cut)
    if arguments.output == "json":
        if is_only:
            print_json(row)
        else:
            say(json_escaped(json.dumps(row, ensure_ascii=False)), flush=True)
    elif is_only:
        print_table(
            ("CUT", "TIME", "TOPICS", "PARTITIONS", "NEW", "CONSISTENT"),
            [
                (
                    row["cut"],
                    row["time"],
                    row["topics"],
                    row["partitions"],
                    bytes_text(row["new_bytes"]),
                    consistent(is_consistent=cut.is_consistent),
                )
            ],
        )
    else:
        say(
            f"{row['time']} cut {row['cut']}: {counted(row['topics'], 'topic')}, "
            f"{counted(row['partitions'], 'partition')}, {bytes_text(row['new_bytes'])} new",
            flush=True,
        )


def consistent(*, is_consistent: bool) -> str:
    """Return whether a cut is consistent, for a table."""
    return "yes" if is_consistent else "per partition"


def _row(cut: BackupCut) -> dict[str, Any]:
    return {
        "cut": cut.cut,
        "time": second_text(cut.time_ms),
        "time_ms": cut.time_ms,
        "topics": len(cut.topics),
        "partitions": cut.partitions,
        "new_bytes": cut.copied,
        "consistent": cut.is_consistent,
        "missed": [
            {"topic": each.topic, "partition": each.partition, "first": each.first, "end": each.end}
            for each in cut.missed
        ],
        "left_out": list(cut.left_out),
    }
