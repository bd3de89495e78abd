"""`ottla mirror pause`, `resume`, `limit`, `promote` and `delete`: change a mirror."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from ....client.admin import Admin, MirrorDescription
from ....protocol.cluster.mirror_table import MirrorPhase, is_offsets_copy
from ....protocol.errors import KafkaError
from ...arguments.selection import missing
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...missing_names import refusal_of_names
from ...run_client import run_client
from ...terminal.confirmation import confirm, is_asked
from ...terminal.output import bytes_text, print_json, print_table
from ...terminal.progress import ProgressLine
from ...terminal.text import counted, note
from .create import bandwidth_of
from .report import Stopped, cut_as_json, fault_as_json, stopped, why_no_cut
from .show import describe

NAMED_MAX = 20
"""The most losses listed before the confirmation; `ottla mirror status` lists all."""


def pause(arguments: argparse.Namespace) -> None:
    """Pause the mirror."""
    _do(arguments, lambda admin: admin.pause_mirror(arguments.name))
    _print_result(arguments, "paused")


def resume(arguments: argparse.Namespace) -> None:
    """Resume a paused mirror; with `--accept-gap`, also continue partitions that a fault has stopped, without the lost
    records."""
    if arguments.topic and not arguments.accept_gap:
        raise UsageError("a mirror is resumed as a whole: --topic goes with --accept-gap")
    accepted: list[Stopped] = []
    if arguments.accept_gap:
        accepted = _to_accept(arguments)
    if accepted:
        # Only the listed faults are accepted: a later fault in another topic needs its own confirmation.
        topics = sorted({partition.topic for partition in accepted})
        _do(arguments, lambda admin: admin.resume_mirror(arguments.name, accept_gap=True, topics=topics))
    else:
        _do(arguments, lambda admin: admin.resume_mirror(arguments.name))
    if arguments.output == "json":
        losses = [
            {"topic": partition.topic, "partition": partition.partition, **fault_as_json(partition.fault)}
            for partition in accepted
        ]
        print_json({"name": arguments.name, "result": "resumed", "accepted": losses})
    else:
        word = f"resumed, {counted(len(accepted), 'fault')} accepted" if arguments.accept_gap else "resumed"
        print_table(("MIRROR", "RESULT"), [(arguments.name, word)])


def limit(arguments: argparse.Namespace) -> None:
    """Limit the bytes per second that each broker copies from the mirror's source; `none` removes the limit."""
    bandwidth = bandwidth_of(arguments.bandwidth)
    _do(arguments, lambda admin: admin.limit_mirror(arguments.name, bandwidth))
    _print_result(arguments, "limited" if bandwidth else "unlimited")


def promote(arguments: argparse.Namespace) -> None:
    """Promote a mirror: copying stops, and its topics accept records from producers."""
    before = _one(arguments)
    # The copy of the source's committed offsets is deleted, so it does not count.
    topics = [topic for topic in before.topics if not is_offsets_copy(topic.name)]
    partitions = sum(len(topic.partitions) for topic in topics)
    if before.phase is not MirrorPhase.PROMOTED:
        left = _left_behind_cut(before) if arguments.at_cut else _left_behind(before)
        confirm(
            f"Promote {before.name}? Copying stops, and {counted(len(topics), 'topic')} will accept records from then "
            f"on; it cannot be undone. {left}",
            yes=arguments.yes,
        )

    def show(mirror: MirrorDescription) -> None:
        what = (
            "groups that get their committed offsets" if mirror.takes_offsets else "leaders that take records"
        )
        line.show(f"{mirror.name}: waiting for {what}")

    with ProgressLine() as line:
        after = run_client(_promote(arguments, show), waits_for=None)
        line.end(f"{after.name}: every partition takes records")
    if arguments.output == "json":
        print_json(
            {
                "name": after.name,
                "result": "promoted",
                "topics": len(topics),
                "partitions": partitions,
                "lag_before": before.lag,
                "faults": len(stopped(before)),
                "cut": cut_as_json(after.cut) if after.is_promoted_at_cut else None,
            }
        )
    else:
        at = f" at cut {after.cut.commit_index}" if after.is_promoted_at_cut and after.cut else ""
        rows = [(after.name, len(topics), partitions, f"promoted{at}")]
        print_table(("MIRROR", "TOPICS", "PARTITIONS", "RESULT"), rows)


def delete(arguments: argparse.Namespace) -> None:
    """Delete a mirror; its topics stay in the cluster."""
    if is_asked(yes=arguments.yes):
        _one(arguments)
    confirm(f"Delete mirror {arguments.name}? Its topics stay.", yes=arguments.yes)
    _do(arguments, lambda admin: admin.delete_mirror(arguments.name))
    _print_result(arguments, "deleted")


def _to_accept(arguments: argparse.Namespace) -> list[Stopped]:
    """Print the faults that have stopped partitions of the mirror, ask for confirmation, and return the accepted
    faults."""
    mirror = _one(arguments)
    known = {topic.name for topic in mirror.topics}
    for name in arguments.topic:
        if name not in known:
            raise CommandFailed(missing(name, known, "topic"))
    faults = stopped(mirror, arguments.topic)
    for partition in faults[:NAMED_MAX]:
        note(f"{partition.loss} ({partition.fault.reason})")
    if len(faults) > NAMED_MAX:
        note(f"and {len(faults) - NAMED_MAX} more: 'ottla mirror status {mirror.name}' names all")
    if faults:
        confirm(f"Resume {counted(len(faults), 'partition')} without the lost records?", yes=arguments.yes)
    return faults


def _left_behind(mirror: MirrorDescription) -> str:
    """Return a sentence about the records that a promotion of the mirror leaves at the source."""
    faults = len(stopped(mirror))
    stands = f" {_have_stopped(faults, 'miss', 'misses')} later records." if faults else ""
    if mirror.lag is None:
        return f"The number of records that are not copied yet is unknown.{stands}"
    size = "" if mirror.lag_bytes is None else f" ({bytes_text(mirror.lag_bytes)})"
    verb = "is" if mirror.lag == 1 else "are"
    records = f"{counted(mirror.lag, 'record')}{size} of the source"
    return f"{records} {verb} not copied yet, and would stay behind.{stands}"


def _left_behind_cut(mirror: MirrorDescription) -> str:
    """Return a sentence about the records that a promotion at the mirror's newest cut leaves at the source.

    Raises CommandFailed without a cut.
    """
    if mirror.cut is None:
        raise CommandFailed(
            f"mirror {mirror.name!r} has no cut that all copies have reached: {why_no_cut(mirror)}"
        )
    faults = len(stopped(mirror))
    stands = f" {_have_stopped(faults, 'hold', 'holds')} up newer cuts." if faults else ""
    return (
        f"Copies end at a cut that the source reported {mirror.cut.age_ms:,} ms ago, or at a newer one: records that "
        f"it has committed since then stay behind, even if they were copied.{stands}"
    )


def _have_stopped(partitions: int, plural: str, singular: str) -> str:
    """Return the beginning of a sentence about stopped partitions, which ends in the verb given in both numbers."""
    has, verb = ("has", singular) if partitions == 1 else ("have", plural)
    return f"{counted(partitions, 'partition')} {has} stopped before, and {verb}"


def _one(arguments: argparse.Namespace) -> MirrorDescription:
    (mirror,) = run_client(describe(arguments, [arguments.name]))
    return mirror


def _do(arguments: argparse.Namespace, ask: Callable[[Admin], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Admin(**connection_of(arguments)) as admin:
            try:
                await ask(admin)
            except KafkaError as error:
                raise CommandFailed(await refusal_of_names(admin, [arguments.name], error)) from None

    run_client(run())


async def _promote(
    arguments: argparse.Namespace, progress: Callable[[MirrorDescription], None]
) -> MirrorDescription:
    async with Admin(**connection_of(arguments)) as admin:
        return await admin.promote_mirror(arguments.name, at_cut=arguments.at_cut, progress=progress)


def _print_result(arguments: argparse.Namespace, result: str) -> None:
    if arguments.output == "json":
        print_json({"name": arguments.name, "result": result})
    else:
        print_table(("MIRROR", "RESULT"), [(arguments.name, result)])
