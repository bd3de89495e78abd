"""`ottla dlq replay`: letters are counted, and after a confirmation sent back to their topics of origin."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ....client.dead_letters.places import Places, is_at, places_of
from ....client.dead_letters.replay import (
    LetterReplay,
    ReplayCounts,
    ReplayPlan,
    ReplayRequest,
)
from ....client.dead_letters.settled import CannotReplay
from ....client.failures import ProducerFenced
from ....client.record_filters import RecordTest
from ....client.records import ConsumerRecord
from ...arguments.record_filters import filters_of
from ...connection.precedence import connection_of
from ...failures import CommandFailed, UsageError
from ...run_client import run_client
from ...terminal.confirmation import confirm
from ...terminal.output import print_json, print_table
from ...terminal.progress import ProgressLine
from ...terminal.text import counted, note
from .show import chosen_partitions

_NONE_LEFT: Final = "There are no letters to send that were not sent before: --from-start sends all."
ResultT = TypeVar("ResultT")


def replay(arguments: argparse.Namespace) -> None:
    """Count the letters, ask for confirmation, send them, and print the number of letters for each topic."""
    try:
        places = places_of(arguments.at)
    except ValueError as error:
        raise UsageError(f"--at: {error}") from None
    indexes = chosen_partitions(arguments)
    if places and indexes:
        raise UsageError("--at names partitions itself: leave -p out")
    request = ReplayRequest(
        arguments.topic,
        to=arguments.to,
        group_id=arguments.group or "",
        partitions=sorted(places) if places else indexes or None,
        chooses=_choice(filters_of(arguments), places),
        from_start=arguments.from_start,
        skips_others=arguments.skip_others,
    )
    work = LetterReplay(request, connection_of(arguments))
    plan = _carried_out(lambda: run_client(_planned(work), waits_for=None))
    counts = plan.counts
    if not arguments.dry_run:
        if counts.chosen:
            confirm(_question(counts), yes=arguments.yes)
        if counts.chosen or arguments.skip_others:
            counts = _carried_out(lambda: run_client(_sent(work, plan), waits_for=None))
    _print(counts, arguments)


def _choice(tests: Sequence[RecordTest], places: Places) -> Callable[[ConsumerRecord], bool]:
    def chooses(record: ConsumerRecord) -> bool:
        return is_at(record, places) and all(test(record, None) for test in tests)

    return chooses


def _question(counts: ReplayCounts) -> str:
    targets = ", ".join(f"{topic} ({number:,})" for topic, number in sorted(counts.targets.items()))
    return f"Send {counted(counts.chosen, 'letter')} to {targets}?"


def _carried_out(step: Callable[[], ResultT]) -> ResultT:
    try:
        return step()
    except CannotReplay as error:
        raise CommandFailed(str(error)) from None
    except ProducerFenced:
        raise CommandFailed(
            "another replay with this group has begun, and goes on; this one has left whole batches sent"
        ) from None


async def _planned(work: LetterReplay) -> ReplayPlan:
    with ProgressLine() as progress:
        return await work.plan(
            lambda counts: progress.show(f"looked at {counts.looked_at:,} letters, {counts.chosen:,} to send")
        )


async def _sent(work: LetterReplay, plan: ReplayPlan) -> ReplayCounts:
    total, sent = plan.counts.chosen, 0

    with ProgressLine() as progress:

        def show(counts: ReplayCounts) -> None:
            nonlocal sent
            sent = counts.chosen
            progress.show(f"sent {sent:,} of {total:,} letters")

        try:
            return await work.run(plan, show)
        except asyncio.CancelledError:
            note(f"{sent:,} of {total:,} letters are sent; the next replay continues after them")
            raise


def _print(counts: ReplayCounts, arguments: argparse.Namespace) -> None:
    result = "to send" if arguments.dry_run else "sent"
    targets = sorted(counts.targets.items())
    if arguments.output == "json":
        print_json(
            {
                "dry_run": arguments.dry_run,
                "letters": counts.chosen,
                "sent_before": counts.sent_before,
                "looked_at": counts.looked_at,
                "topics": dict(targets),
            }
        )
        return
    print_table(
        ("TOPIC", "LETTERS", "RESULT"),
        [(topic, number, result) for topic, number in targets],
        empty="There are no letters to send." if arguments.from_start else _NONE_LEFT,
        wide=arguments.output == "wide",
    )
    if counts.sent_before and counts.chosen:
        note(
            f"{counted(counts.sent_before, 'letter')} left out, as an earlier replay has sent them: "
            "--from-start sends all"
        )
