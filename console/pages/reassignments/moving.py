"""Forms that move replicas: of a topic to chosen brokers, of partitions to named brokers, and off a broker."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from ....client.admin import LogDirDescription
from ....client.admin.least_in_sync import least_in_sync
from ....client.connections.metadata import NO_LEADER, TopicInfo
from ....client.failures import restated
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Change, Done, Form, FormField, NotThere, Outdated, Visit
from ...bounds import MOVES_MAX
from ...formats import count, counted, link, numbers, size
from ...key_values import edited, lines_fields, pairs_of
from .checks import check, warnings_of
from .placement import PresentPlacement, free_bytes, placement_of
from .plans import ReplicaMove, exact, off, spread
from .preview import move_command, move_lines

ADDRESS: Final = "/reassignments"
LINES: Final = "replicas"
"""The form field with the replicas of partitions, one partition a line."""
LINES_MAX: Final = 1_000
"""The most partitions of a topic that a form shows as lines."""
_MEGABYTE: Final = 1_000_000
_BROKER: Final = "broker"
"""The prefix of the check boxes of brokers."""
_RULE: Final = "a line is PARTITION=BROKER,BROKER, such as 0=1,2,3"
_NUMBERS: Final = re.compile(r"\d{1,9}(-\d{1,9})?(\s*,\s*\d{1,9}(-\d{1,9})?)*", re.ASCII)
_BROKERS: Final = re.compile(r"\d{1,9}(\s*,\s*\d{1,9})*", re.ASCII)


# ------------------------------------------------------------ fields


def _throttle_field() -> FormField:
    return FormField(
        name="limit",
        label="limit of copying, in MB/s",
        kind="number",
        hint="to and from each broker, of 1,000,000 bytes; empty: no limit",
    )


def limit_of(visit: Visit) -> int | None:
    """Return the limit of copying in bytes per second; None without a limit. Raises BadQuestion."""
    text = visit.text("limit")
    if not text:
        return None
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = math.nan
    if not (math.isfinite(megabytes) and 1 <= megabytes * _MEGABYTE < 2**63):
        raise BadQuestion(f"'limit' is a number of MB/s above 0, not {text[:40]!r}")
    return int(megabytes * _MEGABYTE)


async def _broker_boxes(
    visit: Visit,
    placement: PresentPlacement,
    label: str,
    *,
    chosen: Collection[int],
    without: int | None = None,
) -> FormField:
    """Return a check box for each active broker, with its rack, replicas and free space.

    `chosen` are checked, and the broker `without` has no box.
    """
    replicas = dict.fromkeys(placement.live, 0)
    for info in placement.partitions().values():
        for broker in info.replicas:
            if broker in replicas:
                replicas[broker] += 1
    folders = await _folders(visit)
    labels = {}
    for broker, rack in sorted(placement.live.items()):
        if broker == without:
            continue
        free = free_bytes(folders.get(broker, ()))
        facts = [f"rack {rack}"] if rack else []
        facts += [f"{count(replicas[broker])} replicas"]
        facts += [f"{size(free)} free"] if free is not None else []
        labels[str(broker)] = f"broker {broker}: {', '.join(facts)}"
    return FormField(
        name=_BROKER,
        label=label,
        kind="boxes",
        choices=tuple(labels),
        labels=labels,
        value=",".join(map(str, sorted(chosen))),
    )


async def _folders(visit: Visit) -> Mapping[int, Sequence[LogDirDescription]]:
    """Return the data folders of brokers without their replicas; none if the cluster does not report them."""
    try:
        answers = await visit.admin.describe_log_dirs(partitions=())
    except KafkaError:  # Missing sizes must not hide the form.
        return {}
    return {broker: folders for broker, folders in answers.items() if not isinstance(folders, KafkaError)}


def _chosen_brokers(visit: Visit, placement: PresentPlacement) -> list[int]:
    """Return the brokers whose boxes are checked. Raises BadQuestion."""
    chosen = [
        int(name.removeprefix(f"{_BROKER} "))
        for name, text in visit.form.items()
        if text == "yes" and re.fullmatch(rf"{_BROKER} \d{{1,9}}", name, re.ASCII)
    ]
    if not chosen:
        raise BadQuestion("choose a broker")
    if absent := sorted(set(chosen) - placement.live.keys()):
        raise BadQuestion(f"broker {numbers(absent)} is not active any more")
    return sorted(chosen)


def numbers_of(text: str, what: str) -> list[int]:
    """Parse numbers and ranges such as `0,2-4`. Raises BadQuestion, which calls them `what`."""
    if not _NUMBERS.fullmatch(text):
        raise BadQuestion(f"{what} are numbers and ranges such as 0,2-4, not {text[:40]!r}")
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if int(last or first) - int(first) >= MOVES_MAX:
            raise BadQuestion(f"{what} are {MOVES_MAX:,} at most")
        found += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(found))


# ------------------------------------------------------------ a topic


async def topic_form(visit: Visit) -> Form:
    """Return the form that asks over which brokers the replicas of a topic shall be spread."""
    name = visit.required("name")
    placement = await placement_of(visit, with_sizes=False)
    topic = _topic(placement, name)
    holders = {broker for info in topic.partitions.values() for broker in info.replicas}
    last = len(topic.partitions) - 1
    return Form(
        f"Reassign {name}",
        (
            await _broker_boxes(visit, placement, "brokers", chosen=holders),
            FormField(
                name="partitions",
                label="partitions",
                hint=f"numbers and ranges of 0 to {last}, such as 0,2-4; empty: all",
            ),
            FormField(
                name="count", label="replicas of each partition", kind="number", hint="empty: as many as now"
            ),
            _throttle_field(),
        ),
        "Spreads the replicas evenly over the chosen brokers, with as little copying as possible.",
        links={"Name the brokers of each partition": link(f"{ADDRESS}/partitions", name=name)},
    )


def _topic(placement: PresentPlacement, name: str) -> TopicInfo:
    if (topic := placement.topics.get(name)) is None:
        raise NotThere(f"there is no topic {name!r}")
    return topic


async def plan_topic(visit: Visit) -> Change:
    """Plan to spread the replicas of a topic over the chosen brokers."""
    name = visit.required("name")
    placement = await placement_of(visit, [name])
    brokers = _chosen_brokers(visit, placement)
    indexes: Iterable[int] = sorted(placement.topics[name].partitions)
    if text := visit.text("partitions"):
        indexes = numbers_of(text, "partitions")
    wanted = visit.number("count", least=1, most=len(brokers)) if visit.text("count") else None
    partitions = [TopicPartition(name, index) for index in indexes]
    return await _change(visit, f"Reassign {name}", placement, spread(placement, partitions, brokers, wanted))


# ------------------------------------------------------------ partitions


async def partitions_form(visit: Visit) -> Form:
    """Return the form with the replicas of each partition of a topic, as lines."""
    topic = await visit.topic(visit.required("name"), age_max_s=0)
    if len(topic.partitions) > LINES_MAX:
        raise BadQuestion(
            f"{topic.name} has {len(topic.partitions):,} partitions, and the form shows {LINES_MAX:,} at most: "
            "spread them over brokers, or use the command `ottla cluster reassign FILE`"
        )
    pairs = {str(index): _brokers_text(topic, index) for index in sorted(topic.partitions)}
    hint = f"{_RULE}; the preferred leader comes first. Lines that stay as they are move nothing"
    return Form(
        f"Reassign partitions of {topic.name}",
        [*lines_fields(LINES, "brokers of each partition", pairs, hint), _throttle_field()],
        links={"Spread them over brokers": link(f"{ADDRESS}/topic", name=topic.name)},
    )


def _brokers_text(topic: TopicInfo, index: int) -> str:
    return ",".join(map(str, topic.partitions[index].replicas))


def replicas_of(text: str) -> dict[str, tuple[int, ...]]:
    """Parse lines such as `0=1,2,3`: the brokers of each partition. Raises BadQuestion."""
    found = {}
    for partition, brokers in pairs_of(text, _RULE).items():
        if not re.fullmatch(r"\d{1,9}", partition, re.ASCII) or not _BROKERS.fullmatch(brokers):
            raise BadQuestion(f"{_RULE}, not {f'{partition}={brokers}'[:80]!r}")
        found[partition] = tuple(int(broker) for broker in brokers.split(","))
    return found


async def plan_partitions(visit: Visit) -> Change:
    """Plan to move the partitions whose lines were edited. Lines that were removed move nothing."""
    name = visit.required("name")
    placement = await placement_of(visit, [name])
    there = {str(index): info.replicas for index, info in placement.topics[name].partitions.items()}
    asked = edited(visit.form, LINES, replicas_of, there)
    wanted = {
        TopicPartition(name, int(partition)): replicas
        for partition, replicas in asked.items()
        if replicas is not None
    }
    return await _change(visit, f"Reassign partitions of {name}", placement, exact(placement, wanted))


# ------------------------------------------------------------ a broker


async def broker_form(visit: Visit) -> Form:
    """Return the form that asks where the replicas of a broker shall move."""
    broker = visit.number("id", most=2**31 - 1)
    placement = await placement_of(visit, with_sizes=False)
    _check_movable(placement, broker)
    return Form(
        f"Move replicas off broker {broker}",
        (
            await _broker_boxes(visit, placement, "to the brokers", chosen=placement.live, without=broker),
            FormField(name="topics", label="topics", hint="names with commas between; empty: all topics"),
            _throttle_field(),
        ),
        "Each replica moves to a chosen broker that has none of its partition: on a free rack, and with few replicas.",
    )


def _check_movable(placement: PresentPlacement, broker: int) -> None:
    if all(broker not in info.replicas for info in placement.partitions().values()):
        raise BadQuestion(f"broker {broker} has no replicas")
    if not set(placement.live) - {broker}:
        raise BadQuestion(f"no other broker is active, so the replicas of broker {broker} cannot move")


async def plan_broker(visit: Visit) -> Change:
    """Plan to move replicas off a broker."""
    broker = visit.number("id", most=2**31 - 1)
    topics = [name for name in (part.strip() for part in visit.text("topics").split(",")) if name] or None
    placement = await placement_of(visit, topics)
    targets = _chosen_brokers(visit, placement)
    if broker in targets:
        raise BadQuestion(f"broker {broker} is the broker that gives its replicas away")
    moves = off(placement, broker, targets, topics)
    return await _change(visit, f"Move replicas off broker {broker}", placement, moves)


# ------------------------------------------------------------ the change


async def _change(
    visit: Visit, title: str, placement: PresentPlacement, moves: Sequence[ReplicaMove]
) -> Change:
    """Check planned moves, and return the change with its preview. Raises BadQuestion for moves that cannot succeed."""
    if not moves:
        raise BadQuestion("no replica has to move")
    if len(moves) > MOVES_MAX:
        raise BadQuestion(
            f"{len(moves):,} partitions would move, and the console moves {MOVES_MAX:,} at a time: name topics or "
            "partitions, or use the command `ottla cluster reassign FILE`"
        )
    check(placement, moves)
    limit = limit_of(visit)
    topics = [placement.topics[name] for name in dict.fromkeys(move.partition.topic for move in moves)]
    shrinking = (move.partition.topic for move in moves if len(move.after) < len(move.before))
    least = await least_in_sync(visit.admin, shrinking)
    return Change(
        title=title,
        differences=move_lines(placement, moves, limit),
        carry_out=partial(_move, topics, moves, limit),
        command=move_command(moves, limit),
        warning=warnings_of(placement, moves, least),
    )


async def _move(
    topics: Sequence[TopicInfo], moves: Sequence[ReplicaMove], limit: int | None, visit: Visit
) -> Done:
    """Start the planned moves, behind a limit if there is one.

    Raises Outdated if replicas or brokers have changed, and KafkaError for partitions that the cluster refused.
    """
    await visit.topics_as_shown(*topics)
    placement = await placement_of(visit, [topic.name for topic in topics], with_sizes=False)
    _check_as_planned(placement, moves)
    if limit is not None:
        changed = {move.partition: (move.before, move.after) for move in moves}
        await visit.admin.throttle_moves(changed, placement.live, limit)
        visit.readings.expire_throttles()
    settled = await visit.admin.alter_partition_reassignments({move.partition: move.after for move in moves})
    raise_refusals(settled)
    return Done(f"the reassignment of {counted(len(moves), 'partition')} has begun", ADDRESS)


def _check_as_planned(placement: PresentPlacement, moves: Iterable[ReplicaMove]) -> None:
    """Raise Outdated for a move whose replicas, leader, target brokers or reassignment are not as planned."""
    live = placement.live.keys()
    for move in moves:
        info = placement.partition(move.partition)
        now = () if info is None else info.replicas
        if now != move.before:
            raise Outdated(
                f"{move.name}: the preview showed the replicas {numbers(move.before)}, and they are {numbers(now)} now"
            )
        if info is not None and info.leader == NO_LEADER:
            raise Outdated(f"{move.name} has no leader any more, from which its replicas could be copied")
        if absent := sorted(set(move.added) - live):
            raise Outdated(f"broker {numbers(absent)} is not active any more")
        if move.partition in placement.reassigning:
            raise Outdated(f"{move.name} is being reassigned by somebody else")


def raise_refusals(settled: Mapping[TopicPartition, KafkaError | None]) -> None:
    """Raise KafkaError for the partitions whose change the cluster refused; the message counts the others."""
    refused = {name: error for name, error in settled.items() if error is not None}
    if not refused:
        return
    name, error = min(refused.items(), key=lambda item: item[0])
    rest = f"; {len(settled) - len(refused):,} of {len(settled):,} partitions were accepted"
    others = f", as for {len(refused) - 1:,} more" if len(refused) > 1 else ""
    raise restated(error, f"{name.topic}-{name.partition}: {error.message}{others}{rest}")
