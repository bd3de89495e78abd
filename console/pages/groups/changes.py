"""Changes of groups: moves of committed offsets or of a share group's start offsets, and deletion of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ....client.admin import Admin
from ....client.admin.group_seek import (
    CannotSeek,
    Offsets,
    Target,
    check_has_no_members,
    kept_offsets,
    move_offsets,
    offsets_after,
)
from ....client.connections.metadata import TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ....protocol.iso_times import iso_time_ms
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, NotThere, Visit, check_as_shown
from ...commands import command, offset_words, option
from ...formats import UNKNOWN, link

WHERE: Mapping[str, str] = {
    "start": "start",
    "end": "end",
    "offset": "offset",
    "forward by": "shift",
    "back by": "shift",
    "time": "timestamp",
}
"""The choices of the form, each with the kind of its target."""


# ------------------------------------------------------------ seek


async def seek_form(visit: Visit) -> Form:
    """Return the form that asks where a group's committed offsets, or a share group's start offsets, shall move."""
    name = visit.exact("name")
    return Form(
        f"Move the offsets of {name}",
        (
            FormField(name="to", label="to", kind="choice", choices=tuple(WHERE), value="start"),
            FormField(
                name="value",
                label="offset, number of records, or time",
                value=visit.text("value"),
                hint="a number, or a time such as 2026-01-31T12:00:00Z (UTC without a zone); empty for start and end",
            ),
            FormField(
                name="topic",
                label="topic",
                value=visit.text("topic"),
                hint="empty: all topics with offsets of the group",
            ),
            FormField(
                name="partition",
                label="partition",
                kind="number",
                value=visit.text("partition"),
                hint="empty: all of the topic",
            ),
        ),
        "The group must have no members. A share group delivers all records from the new offsets on again.",
    )


def target_of(visit: Visit) -> Target:
    """Return the target of committed offsets that the form names: start, end, an offset, a shift or a time.

    Raises BadQuestion.
    """
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


async def chosen_partitions(visit: Visit, known: Offsets) -> list[TopicPartition]:
    """Return the partitions whose committed offsets the form moves.

    These are the partition of the form, else all of the topic, else all for which the group has offsets (`known`).
    `kafka-consumer-groups.sh` has the same rule. Raises BadQuestion, and NotThere for a topic.
    """
    topic = visit.text("topic")
    if topic and visit.text("partition"):
        return [TopicPartition(topic, visit.number("partition"))]
    if visit.text("partition"):
        raise BadQuestion("a partition needs a topic")
    if topic:
        return [TopicPartition(topic, index) for index in sorted((await visit.topic(topic)).partitions)]
    if not known:
        raise BadQuestion("the group has no offsets: name a topic")
    return sorted(known)


async def _no_members(admin: Admin, group: str) -> None:
    """Raise BadQuestion if the group has members, which would overwrite moved offsets."""
    try:
        await check_has_no_members(admin, group)
    except CannotSeek as error:
        raise BadQuestion(str(error)) from None


def seek_differences(before: Offsets, after: Offsets) -> list[Difference]:
    """Return the preview of a move of committed offsets: each partition's offset before and after."""
    return [
        Difference(
            f"{partition.topic}-{partition.partition}",
            f"{before[partition]:,}" if partition in before else None,
            f"{offset:,}" + (f" ({offset - before[partition]:+,})" if partition in before else ""),
        )
        for partition, offset in sorted(after.items())
    ]


def seek_command(group: str, after: Offsets) -> str:
    """Return the `ottla group seek` command that commits these offsets for the group."""
    topics = [word for offset in offset_words(after) for word in option("--topic", offset)]
    return command("group", "seek", names=[group], options=topics)


async def plan_seek(visit: Visit) -> Change:
    """Plan new committed offsets of a group, without committing them."""
    group, target = visit.exact("name"), target_of(visit)
    before = await kept_offsets(visit.admin, group)
    await _no_members(visit.admin, group)
    try:
        partitions = await chosen_partitions(visit, before)
        after = await offsets_after(visit.admin, target, partitions, before)
    except CannotSeek as error:
        raise BadQuestion(str(error)) from None
    differences = seek_differences(before, after)
    topics = await visit.admin.describe_topics(sorted({partition.topic for partition in after}))
    return Change(
        title=f"Move the offsets of {group}",
        differences=differences,
        carry_out=partial(_seek, group, topics, after, differences),
        command=seek_command(group, after),
    )


async def _seek(
    group: str, topics: Sequence[TopicInfo], after: Offsets, shown: Sequence[Difference], visit: Visit
) -> Done:
    """Commit the planned offsets for the group.

    Raises Outdated if the preview no longer holds, and KafkaError for a partition that was refused.
    """
    await _no_members(visit.admin, group)
    await visit.topics_as_shown(*topics)
    check_as_shown(shown, seek_differences(await kept_offsets(visit.admin, group), after))
    settled = await move_offsets(visit.admin, group, after)
    for refused in settled.values():
        if isinstance(refused, KafkaError):
            raise refused
    return Done(f"{len(after)} offsets of {group} were moved", link("/groups/group", name=group))


# ------------------------------------------------------------ delete


async def deletion_form(visit: Visit) -> Form:
    """Return the form that asks the user to repeat the name of the group to delete."""
    name = visit.exact("name")
    return Form(
        f"Delete {name}",
        (FormField(name="again", label="repeat the group's name", is_required=True),),
        "Deletes the group with all its offsets. Groups with members cannot be deleted.",
    )


async def plan_deletion(visit: Visit) -> Change:
    """Plan the deletion of a group."""
    name = visit.exact("name")
    visit.confirm(name)
    differences = await _deletion(visit.admin, name)
    return Change(
        title=f"Delete {name}",
        differences=differences,
        carry_out=partial(_delete, name, differences),
        command=command("group", "delete", names=[name]),
        warning="The group's offsets are deleted. A consumer that returns starts without offsets.",
    )


async def _deletion(admin: Admin, name: str) -> list[Difference]:
    """Return the preview of a group's deletion. Raises NotThere, BadQuestion for a group with members, and
    KafkaError."""
    if name not in {group.group_id for group in await admin.list_groups()}:
        raise NotThere(f"there is no group {name!r}")
    await _no_members(admin, name)
    offsets = await kept_offsets(admin, name)
    return [
        Difference("group", name, None),
        Difference("offsets", f"{len(offsets):,}" if offsets else UNKNOWN, None),
    ]


async def _delete(name: str, shown: Sequence[Difference], visit: Visit) -> Done:
    """Delete the group. Raises KafkaError if the cluster refuses."""
    check_as_shown(shown, await _deletion(visit.admin, name))
    for refused in (await visit.admin.delete_groups([name])).values():
        if isinstance(refused, KafkaError):
            raise refused
    return Done(f"group {name} was deleted", "/groups")
