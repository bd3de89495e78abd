"""The form with which users send letters back to their topics of origin, or to another topic."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ....client.dead_letters.places import is_at, places_of
from ....client.dead_letters.replay import LetterReplay, ReplayCounts, ReplayPlan, ReplayRequest
from ....client.dead_letters.settled import CannotReplay
from ....client.record_filters import RecordTest
from ....client.records import ConsumerRecord
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Outdated, Visit
from ...commands import command, option
from ...formats import counted, link
from ..messages.filters import FILTERS, filters_of
from ..messages.question import OPTIONS

PLAN_S: Final = 8.0
"""Seconds for counting the letters of a preview."""


@dataclass(frozen=True, slots=True)
class LetterSelection:
    """The letters that a form chooses, as the request of a replay and as words of the command line."""

    request: ReplayRequest
    words: Sequence[str]
    described: str


async def replay_form(visit: Visit) -> Form:
    """Return the form with the topic, the filters and the places of the letters to send back."""
    return Form(
        "Send letters back",
        (
            FormField(name="topic", label="topic of letters", value=visit.text("topic"), is_required=True),
            FormField(
                name="at",
                label="letters",
                value=visit.text("at"),
                placeholder="0:17,20-25",
                hint="PARTITION:OFFSET,... with spaces between partitions; empty: all that pass the filters",
            ),
            FormField(name="partition", label="partition", value=visit.text("partition"), placeholder="all"),
            FormField(name="key", label="key matches", value=visit.text("key"), placeholder="RE2"),
            FormField(name="value", label="value matches", value=visit.text("value"), placeholder="RE2"),
            FormField(
                name="json", label="JSON path", value=visit.text("json"), placeholder="$.order.sku = 4711"
            ),
            FormField(
                name="header",
                label="header",
                value=visit.text("header"),
                placeholder="ottla.error.type = Timeout",
            ),
            FormField(name="to", label="to the topic", placeholder="the topic of origin of each letter"),
            FormField(
                name="from_start", label="also letters that were sent back before", kind="check", value=""
            ),
        ),
        "Each letter goes to its topic and partition of origin, with its key, value and own headers, in a transaction. "
        "The topic of letters keeps all letters. A consumer group remembers the letters that were sent back.",
    )


def selection_of(visit: Visit) -> LetterSelection:
    """Return the letters that the fields of a form choose. Raises BadQuestion."""
    texts = {name: visit.text(name) for name in FILTERS}
    tests = filters_of(texts)
    places_text = visit.text("at").split()
    try:
        places = places_of(places_text)
    except ValueError as error:
        raise BadQuestion(str(error)) from None
    index = visit.number("partition", most=2**31 - 1) if visit.text("partition") else None
    if places and index is not None:
        raise BadQuestion("letters name their partitions themselves: leave the partition empty")
    to = visit.text("to") or None
    from_start = visit.text("from_start") == "yes"
    words = [word for text in places_text for word in ("--at", text)]
    words += [] if index is None else ["-p", str(index)]
    for name, flag in OPTIONS.items():
        if texts[name]:
            words += option(flag, texts[name])
    words += [] if to is None else option("--to", to)
    words += ["--from-start"] if from_start else []

    def chooses(record: ConsumerRecord) -> bool:
        return is_at(record, places) and all(_passes(test, record) for test in tests)

    request = ReplayRequest(
        visit.required("topic"),
        to=to,
        partitions=sorted(places) if places else None if index is None else [index],
        chooses=chooses,
        from_start=from_start,
    )
    named = [*places_text, *(f"{name}: {text}" for name, text in texts.items() if text)]
    return LetterSelection(request, words, "; ".join(named) or "all")


def _passes(test: RecordTest, record: ConsumerRecord) -> bool:
    return test(record, None)


async def plan_replay(visit: Visit) -> Change:
    """Plan to send the letters of a form. Raises BadQuestion, and NotThere for an unknown topic."""
    selection = selection_of(visit)
    topic = await visit.topic(selection.request.topic, age_max_s=0)
    replay = LetterReplay(selection.request, visit.connection)
    plan = await _planned(replay)
    counts = plan.counts
    if not counts.chosen:
        raise BadQuestion(
            "no letter is chosen that was not sent back before"
            if not selection.request.from_start
            else "no letter is chosen"
        )
    return Change(
        title=f"Send {counted(counts.chosen, 'letter')} of {topic.name} back",
        differences=[
            Difference("letters", None, selection.described),
            *_targets(counts),
            Difference("progress is kept by", None, f"group {replay.group_id}"),
        ],
        carry_out=partial(_replay, selection.request, plan),
        command=command("dlq", "replay", names=[topic.name], options=[*selection.words, "--yes"]),
        warning="The readers of these topics get the records again.",
    )


def _targets(counts: ReplayCounts) -> list[Difference]:
    return [
        Difference(f"records sent to {target}", None, f"{number:,}")
        for target, number in sorted(counts.targets.items())
    ]


async def _planned(replay: LetterReplay, shown: ReplayPlan | None = None) -> ReplayPlan:
    try:
        async with asyncio.timeout(PLAN_S):
            return await replay.plan(before=None if shown is None else shown.ends)
    except CannotReplay as error:
        raise BadQuestion(str(error)) from None
    except TimeoutError:
        raise BadQuestion(
            f"the letters were not counted within {PLAN_S:g} s: choose a partition, or use the command line"
        ) from None


async def _replay(request: ReplayRequest, shown: ReplayPlan, visit: Visit) -> Done:
    """Send the letters that were shown. Raises Outdated if some of them were sent or deleted meanwhile."""
    replay = LetterReplay(request, visit.connection)
    now = await _planned(replay, shown)
    if now.counts.targets != shown.counts.targets:
        raise Outdated(
            f"the preview showed {counted(shown.counts.chosen, 'letter')}, and there are {now.counts.chosen:,} now"
        )
    try:
        counts = await replay.run(now)
    except CannotReplay as error:
        raise BadQuestion(str(error)) from None
    return Done(f"{counted(counts.chosen, 'letter')} sent back", link("/letters", topic=request.topic))
