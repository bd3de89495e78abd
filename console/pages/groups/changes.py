"""What may be done to groups: their offsets moved, and groups deleted."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from ....client.admin.group_seek import CannotSeek, Offsets, Target, check_has_no_members, offsets_after
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, NotThere, Visit
from ...formats import UNKNOWN, link
from ...times import iso_time_ms

WHERE: Mapping[str, str] = {
    "start": "start",
    "end": "end",
    "offset": "offset",
    "forward by": "shift",
    "back by": "shift",
    "time": "timestamp",
}
"""What a person chooses, and the kind of the target."""


# ------------------------------------------------------------ seek


async def seek_form(visit: Visit) -> Form:
    """Where to."""
    name = visit.exact("name")
    return Form(
        f"Move the offsets of {name}",
        (
            FormField(name="to", label="to", kind="choice", choices=tuple(WHERE), value="start"),
            FormField(
                name="value",
                label="which offset, how many records, or which time",
                value=visit.text("value"),
                hint="a number; a time as 2026-01-31T12:00:00Z. Nothing for start and end",
            ),
            FormField(
                name="topic",
                label="topic",
                value=visit.text("topic"),
                hint="empty: all that it has offsets of",
            ),
            FormField(
                name="partition",
                label="partition",
                kind="number",
                value=visit.text("partition"),
                hint="empty: all of the topic",
            ),
        ),
        "Only a group without members can be moved: members would commit over it.",
    )


def target_of(visit: Visit) -> Target:
    """What the form says. Raises BadQuestion."""
    chosen = visit.text("to", "start")
    kind = WHERE.get(chosen)
    if kind is None:
        raise BadQuestion(f"'to' is one of {', '.join(WHERE)}, not {chosen[:40]!r}")
    if kind in ("start", "end"):
        return Target(kind)
    if kind == "timestamp":
        return Target(kind, _time_ms(visit.required("value")))
    number = visit.number("value")
    return Target(kind, -number if chosen == "back by" else number)


def _time_ms(text: str) -> int:
    try:
        return iso_time_ms(text)
    except ValueError:
        raise BadQuestion(f"'value' is a time as 2026-01-31T12:00:00Z, not {text[:40]!r}") from None


def chosen_partitions(visit: Visit, known: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of the form among the group's. A partition that it has no offset of can be named. Raises BadQuestion."""
    topic = visit.text("topic")
    if topic and visit.text("partition"):
        return [TopicPartition(topic, visit.number("partition"))]
    if visit.text("partition"):
        raise BadQuestion("a partition needs a topic")
    found = sorted(one for one in known if not topic or one.topic == topic)
    if not found:
        raise BadQuestion(f"the group has no offsets{f' of topic {topic!r}' if topic else ''}")
    return found


async def _sought(visit: Visit) -> tuple[Offsets, Offsets]:
    """The offsets as they are, and as they would be."""
    name = visit.exact("name")
    target, before = target_of(visit), await visit.admin.committed_offsets(name)
    try:
        await check_has_no_members(visit.admin, name)
        after = await offsets_after(visit.admin, target, chosen_partitions(visit, before), before)
    except CannotSeek as error:
        raise BadQuestion(str(error)) from None
    return before, after


def seek_command(visit: Visit) -> str:
    """The same on the command line."""
    target = target_of(visit)
    to = {
        "offset": str(target.number),
        "shift": f"{target.number:+d}",
        "timestamp": f"@{visit.text('value')}",
    }.get(target.kind, target.kind)
    words = ["ottla", "group", "seek", visit.exact("name"), f"--to={to}"]
    if topic := visit.text("topic"):
        words += ["--topic", topic + (f":{index}" if (index := visit.text("partition")) else "")]
    return shlex.join(words)


async def plan_seek(visit: Visit) -> Change:
    """A dry run."""
    before, after = await _sought(visit)
    return Change(
        title=f"Move the offsets of {visit.exact('name')}",
        differences=[
            Difference(
                f"{one.topic}-{one.partition}",
                f"{before[one]:,}" if one in before else None,
                f"{offset:,}" + (f" ({offset - before[one]:+,})" if one in before else ""),
            )
            for one, offset in sorted(after.items())
        ],
        command=seek_command(visit),
    )


async def seek(visit: Visit) -> Done:
    """Commit them. Raises KafkaError for a partition that was refused."""
    name = visit.exact("name")
    _, after = await _sought(visit)
    settled = await visit.admin.alter_offsets(name, after)
    for refused in settled.values():
        if isinstance(refused, KafkaError):
            raise refused
    return Done(f"{len(after)} offsets of {name} were moved", link("/groups/group", name=name))


# ------------------------------------------------------------ delete


async def deletion_form(visit: Visit) -> Form:
    """Its name once more."""
    name = visit.exact("name")
    return Form(
        f"Delete {name}",
        (FormField(name="again", label="the group's name once more", is_required=True),),
        "Deletes the group with all its offsets. Groups with members cannot be deleted.",
    )


async def plan_deletion(visit: Visit) -> Change:
    """What goes."""
    name = visit.exact("name")
    visit.confirm(name)
    if name not in {one.group_id for one in await visit.admin.list_groups()}:
        raise NotThere(f"there is no group {name!r}")
    try:
        await check_has_no_members(visit.admin, name)
    except CannotSeek as error:
        raise BadQuestion(str(error)) from None
    offsets = await visit.admin.committed_offsets(name)
    return Change(
        title=f"Delete {name}",
        differences=[
            Difference("group", name, None),
            Difference("offsets", f"{len(offsets):,}" if offsets else UNKNOWN, None),
        ],
        command=shlex.join(["ottla", "group", "delete", name]),
        warning="The group's offsets are deleted. A consumer that comes back begins anew.",
    )


async def delete(visit: Visit) -> Done:
    """Delete it. Raises KafkaError where the cluster refused."""
    name = visit.exact("name")
    await plan_deletion(visit)
    for refused in (await visit.admin.delete_groups([name])).values():
        if isinstance(refused, KafkaError):
            raise refused
    return Done(f"group {name} was deleted", "/groups")
