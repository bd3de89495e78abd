"""Forms that cancel reassignments in progress, and that lift the limits of copying which reassignments left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ....client.admin import TOPIC_RESOURCE, Admin, ConfigEntry, OngoingReassignment
from ....client.admin.throttles import FOLLOWERS, LEADERS
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Change, Difference, Done, Form, Outdated, Visit, check_as_shown
from ...bounds import MOVES_MAX, TOPICS_UNTHROTTLED_MAX
from ...commands import command, option, ranges
from ...formats import byte_rate, counted, numbers
from ...live.throttles import Throttles, read_throttles
from .moving import ADDRESS, raise_refusals

ASKED_AT_ONCE: Final = 16
"""The number of topics whose settings are read at a time."""
Moving = Mapping[TopicPartition, OngoingReassignment]


# ------------------------------------------------------------ cancel


async def cancelling_form(visit: Visit) -> Form:
    """Return the form that cancels the reassignment of a partition, or all reassignments."""
    found = await _asked(visit)
    what = "all reassignments" if len(found) > 1 else "the reassignment"
    return Form(
        f"Cancel {what}",
        (),
        f"Returns {counted(len(found), 'partition')} to the replicas before the reassignment. Bytes that new replicas "
        "have copied are deleted.",
    )


async def _asked(visit: Visit) -> Moving:
    """Return the reassignments in progress that the page's query names: of a partition, of a topic, or all.

    Raises BadQuestion if there is none, and KafkaError.
    """
    topic = visit.query.get("topic", "")
    found = await visit.admin.list_partition_reassignments()
    chosen = {name: moving for name, moving in sorted(found.items()) if not topic or name.topic == topic}
    if topic and visit.query.get("partition"):
        index = visit.number("partition")
        chosen = {name: moving for name, moving in chosen.items() if name.partition == index}
    if not chosen:
        raise BadQuestion("no such partition is being reassigned")
    if len(chosen) > MOVES_MAX:
        raise BadQuestion(
            f"{len(chosen):,} partitions are being reassigned, and the console cancels {MOVES_MAX:,} at a time: use "
            "the command `ottla cluster reassign --cancel`"
        )
    return chosen


async def plan_cancelling(visit: Visit) -> Change:
    """Plan to cancel reassignments in progress."""
    found = await _asked(visit)
    topic = visit.query.get("topic")
    words = option("--topic", f"{topic}:{ranges(name.partition for name in found)}") if topic else []
    return Change(
        title=f"Cancel {counted(len(found), 'reassignment')}",
        differences=_cancelled(found),
        carry_out=partial(_cancel, found),
        command=command("cluster", "reassign", options=["--cancel", *words]),
    )


def _cancelled(found: Moving) -> list[Difference]:
    return [
        Difference(
            f"{name.topic}-{name.partition}",
            f"{numbers(moving.replicas)} (adding {numbers(moving.adding)}, removing {numbers(moving.removing)})",
            numbers(broker for broker in moving.replicas if broker not in moving.adding),
        )
        for name, moving in found.items()
    ]


async def _cancel(shown: Moving, visit: Visit) -> Done:
    """Cancel the reassignments. Raises Outdated if one of them has ended or was replaced, and KafkaError."""
    now = await visit.admin.list_partition_reassignments()
    for name in shown:
        if name not in now:
            raise Outdated(f"the reassignment of {name.topic}-{name.partition} has ended")
    check_as_shown(_cancelled(shown), _cancelled({name: now[name] for name in shown}))
    raise_refusals(await visit.admin.alter_partition_reassignments(dict.fromkeys(shown)))
    return Done(f"cancelled: {counted(len(shown), 'reassignment')}", ADDRESS)


# ------------------------------------------------------------ limits


async def lifting_form(visit: Visit) -> Form:
    """Return the form that lifts the limits of copying."""
    return Form(
        "Lift the limits of copying",
        (),
        "Removes the limits that reassignments have set, from all active brokers and from their topics. While they "
        "hold, replicas that fall behind catch up slowly.",
    )


async def plan_lifting(visit: Visit) -> Change:
    """Plan to remove the limits of copying of all brokers and topics."""
    throttles, topics = await _limited(visit)
    lines = _lifted(throttles, topics)
    if not lines:
        raise BadQuestion("no broker has a limit of copying")
    ongoing = await visit.admin.list_partition_reassignments()
    warning = (
        f"{len(ongoing):,} partitions are being reassigned, and will copy without a limit." if ongoing else ""
    )
    return Change(
        title="Lift the limits of copying",
        differences=lines,
        carry_out=partial(_lift, lines),
        command=command("cluster", "reassign", options=["--unthrottle"]),
        warning=warning,
    )


async def _limited(visit: Visit) -> tuple[Throttles, list[str]]:
    """Return the limits of brokers, and the topics with limited replicas. Raises BadQuestion, and KafkaError."""
    names = await visit.admin.list_topics()
    if len(names) > TOPICS_UNTHROTTLED_MAX:
        raise BadQuestion(
            f"the cluster has {len(names):,} topics, and the console reads the settings of {TOPICS_UNTHROTTLED_MAX:,} "
            "at most: use the command `ottla cluster reassign --unthrottle`"
        )
    throttles = await read_throttles(visit.admin)
    if throttles.trouble:
        raise BadQuestion(f"the limits of a broker are unknown: {throttles.trouble}")
    return throttles, await _topics_with_limits(visit.admin, sorted(names))


async def _topics_with_limits(admin: Admin, names: Sequence[str]) -> list[str]:
    gate = asyncio.Semaphore(ASKED_AT_ONCE)

    async def is_limited(name: str) -> bool:
        async with gate:
            try:
                return _has_limits(await admin.describe_configs(TOPIC_RESOURCE, name))
            except KafkaError:  # The topic may be gone.
                return False

    found = await asyncio.gather(*map(is_limited, names))
    return [name for name, limited in zip(names, found, strict=True) if limited]


def _has_limits(entries: Sequence[ConfigEntry]) -> bool:
    return any(entry.name in (LEADERS, FOLLOWERS) and entry.source == "topic" for entry in entries)


def _lifted(throttles: Throttles, topics: Sequence[str]) -> list[Difference]:
    lines = [
        Difference(
            f"limits of broker {broker}",
            f"sends {byte_rate(throttle.leader)}, copies {byte_rate(throttle.follower)}",
            None,
        )
        for broker, throttle in sorted(throttles.brokers.items())
    ]
    return [*lines, *(Difference(f"limited replicas of {topic}", "set", None) for topic in topics)]


async def _lift(shown: Sequence[Difference], visit: Visit) -> Done:
    throttles, topics = await _limited(visit)
    check_as_shown(shown, _lifted(throttles, topics))
    await visit.admin.lift_throttles(topics, throttles.brokers)
    visit.readings.expire_throttles()
    return Done("the limits of copying were lifted", ADDRESS)
