"""Changes of topics: their forms, previews and execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ....client.admin import TOPIC_RESOURCE, NewTopic
from ....client.admin.records import EARLIEST, LATEST, TO_THE_END
from ....client.admin.trim import CannotTrim, check_within_ends
from ....client.admin.values import config_text
from ....client.connections.metadata import TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Visit, check_as_shown
from ...commands import command, offset_words, option
from ...formats import link
from ...setting_forms import (
    created_settings,
    creation_settings,
    other_form,
    settings_asked,
    settings_form_of,
)
from ...settings import TOPIC, SettingsChange
from .partitions import known
from .topic import topic_named

PARTITIONS_MAX = 100_000


# ------------------------------------------------------------ create


async def creation_form(visit: Visit) -> Form:
    """Return the form for a new topic."""
    as_lines, as_rows = await creation_settings(visit)
    return Form(
        "Create a topic",
        (
            FormField(name="topic", label="name", is_required=True),
            FormField(
                name="partitions", label="partitions", kind="number", hint="empty: the cluster's default"
            ),
            FormField(name="replicas", label="replicas", kind="number", hint="empty: the cluster's default"),
            *as_lines,
        ),
        tables=as_rows,
        links=other_form(visit),
    )


def new_topic(visit: Visit) -> NewTopic:
    """Return the topic that the form asks to create; -1 partitions or replicas stand for the cluster's default.

    Raises BadQuestion.
    """
    partitions = (
        visit.number("partitions", -1, least=1, most=PARTITIONS_MAX) if visit.text("partitions") else -1
    )
    replicas = visit.number("replicas", -1, least=1, most=1000) if visit.text("replicas") else -1
    return NewTopic(visit.required("topic"), partitions, replicas, configs=created_settings(visit.form))


async def plan_creation(visit: Visit) -> Change:
    """Plan the creation of the topic in the form. The cluster checks whether it can be created."""
    topic = new_topic(visit)
    await visit.admin.create_topics([topic], validate_only=True)
    words: list[str] = []
    differences = [Difference("topic", None, topic.name)]
    for what, flag, number in (
        ("partitions", "-p", topic.num_partitions),
        ("replicas", "-r", topic.replication_factor),
    ):
        differences.append(Difference(what, None, "the cluster's default" if number < 0 else str(number)))
        words += [] if number < 0 else [flag, str(number)]
    for key, value in topic.configs.items():
        text = config_text(value)
        differences.append(Difference(key, None, text))
        words += option("--config", f"{key}={text}")
    return Change(
        title=f"Create topic {topic.name}",
        differences=differences,
        carry_out=partial(_create, topic),
        command=command("topic", "create", names=[topic.name], options=words),
        is_validated=True,
    )


async def _create(topic: NewTopic, visit: Visit) -> Done:
    await visit.admin.create_topics([topic])
    return Done(f"topic {topic.name} was created", _address(topic.name))


# ------------------------------------------------------------ settings


async def settings_form(visit: Visit) -> Form:
    """Return the form with a row for each setting that the topic may have."""
    topic = await topic_named(visit, age_max_s=0)
    return await settings_form_of(visit, f"Settings of {topic.name}", TOPIC_RESOURCE, topic.name, TOPIC)


async def plan_settings(visit: Visit) -> Change:
    """Plan a change of a topic's settings. The cluster checks the new values."""
    topic = await topic_named(visit, age_max_s=0)
    change = await settings_asked(visit.admin, TOPIC_RESOURCE, topic.name, TOPIC, visit.form)
    await change.check(visit.admin)
    differences = await change.differences(visit.admin)
    words: list[str] = []
    for key, value in change.changes.items():
        words += option("--unset", key) if value is None else option("--set", f"{key}={value}")
    return Change(
        title=f"Change settings of {topic.name}",
        differences=differences,
        carry_out=partial(_alter_settings, topic, change, differences),
        command=command("topic", "alter", names=[topic.name], options=words),
        is_validated=True,
    )


async def _alter_settings(
    topic: TopicInfo, change: SettingsChange, shown: Sequence[Difference], visit: Visit
) -> Done:
    await visit.topics_as_shown(topic)
    await change.carry_out(visit.admin, shown)
    return Done(f"changed for {topic.name}: {', '.join(change.changes)}", _address(topic.name))


# ------------------------------------------------------------ partitions


async def partitions_form(visit: Visit) -> Form:
    """Return the form for a larger number of partitions of a topic."""
    topic = await topic_named(visit, age_max_s=0)
    return Form(
        f"More partitions for {topic.name}",
        (
            FormField(
                name="total",
                label="total number of partitions",
                kind="number",
                value=str(len(topic.partitions)),
                is_required=True,
            ),
        ),
        "Keys will map to other partitions, and partitions cannot be removed again.",
    )


async def plan_partitions(visit: Visit) -> Change:
    """Plan to add partitions to a topic. The cluster checks the new number."""
    topic, total = await topic_named(visit, age_max_s=0), visit.number("total", least=1, most=PARTITIONS_MAX)
    await visit.admin.create_partitions(topic.name, total, validate_only=True)
    return Change(
        title=f"More partitions for {topic.name}",
        differences=_more_partitions(topic, total),
        carry_out=partial(_add_partitions, topic, total),
        command=command("topic", "add-partitions", names=[topic.name], options=["--to", str(total)]),
        warning="Keys will map to other partitions. This cannot be undone.",
        is_validated=True,
    )


def _more_partitions(topic: TopicInfo, total: int) -> list[Difference]:
    return [Difference("partitions", str(len(topic.partitions)), str(total))]


async def _add_partitions(topic: TopicInfo, total: int, visit: Visit) -> Done:
    (now,) = await visit.topics_as_shown(topic)
    check_as_shown(_more_partitions(topic, total), _more_partitions(now, total))
    await visit.admin.create_partitions(topic.name, total)
    return Done(f"{topic.name} has {total} partitions", _address(topic.name))


# ------------------------------------------------------------ trim


async def trim_form(visit: Visit) -> Form:
    """Return the form that asks below which offset a topic's records are deleted."""
    topic = await topic_named(visit, age_max_s=0)
    return Form(
        f"Trim {topic.name}",
        (
            FormField(name="offset", label="delete below offset", is_required=True, hint="a number, or: end"),
            FormField(name="partition", label="partition", kind="number", hint="empty: all partitions"),
        ),
        "Deletes the oldest records.",
    )


async def _trimmed(visit: Visit) -> tuple[TopicInfo, dict[TopicPartition, int], list[Difference]]:
    """Return the topic of a trim form, the offset below which each partition's records are deleted, and the preview."""
    topic = await topic_named(visit, age_max_s=0)
    indexes = sorted(topic.partitions)
    if visit.text("partition"):
        indexes = [visit.number("partition", most=indexes[-1] if indexes else 0)]
    below = TO_THE_END if visit.required("offset") == "end" else visit.number("offset")
    names = [TopicPartition(topic.name, index) for index in indexes]
    starts = await visit.admin.list_offsets(dict.fromkeys(names, EARLIEST))
    ends = await visit.admin.list_offsets(dict.fromkeys(names, LATEST))
    before, differences = trim_plan(names, starts, ends, below)
    if not before:
        raise BadQuestion("no partition has records below that offset")
    return topic, before, differences


def trim_plan(
    names: Sequence[TopicPartition],
    starts: Mapping[TopicPartition, int | KafkaError],
    ends: Mapping[TopicPartition, int | KafkaError],
    below: int,
) -> tuple[dict[TopicPartition, int], list[Difference]]:
    """Return the new start offset of each partition to trim, and the preview.

    Partitions that start there already, or later, are left out.

    `below` is the offset below which records are deleted, or TO_THE_END. The end is the one that the preview shows:
    records written after it stay. Raises BadQuestion for a partition that does not report its offsets, or that ends
    before the offset.
    """
    before: dict[TopicPartition, int] = {}
    differences = []
    for name in names:
        start, end = known(starts.get(name)), known(ends.get(name))
        if start is None or end is None:
            raise BadQuestion(f"partition {name.partition} does not report its offsets now")
        target = end if below == TO_THE_END else below
        try:
            check_within_ends({name: target}, {name: end})
        except CannotTrim as error:
            raise BadQuestion(str(error)) from None
        if target > start:
            before[name] = target
            differences.append(
                Difference(
                    f"start of partition {name.partition}",
                    f"{start:,}",
                    f"{target:,}: up to {target - start:,} records are deleted",
                )
            )
    return before, differences


async def plan_trim(visit: Visit) -> Change:
    """Plan the deletion of a topic's oldest records."""
    topic, before, differences = await _trimmed(visit)
    return Change(
        title=f"Trim {topic.name}",
        differences=differences,
        carry_out=partial(_trim, topic, before),
        command=command("topic", "trim", names=offset_words(before)),
        warning="Records are deleted. This cannot be undone.",
    )


async def _trim(topic: TopicInfo, before: Mapping[TopicPartition, int], visit: Visit) -> Done:
    """Delete the topic's records below the offset of each partition.

    Raises Outdated for a replaced topic, and KafkaError for a partition that refused.
    """
    await visit.topics_as_shown(topic)
    results = await visit.admin.delete_records(before)
    for refused in results.values():
        if isinstance(refused, KafkaError):
            raise refused
    return Done(f"{len(results)} partitions of {topic.name} were trimmed", _address(topic.name))


# ------------------------------------------------------------ delete


async def deletion_form(visit: Visit) -> Form:
    """Return the form that asks the user to repeat the name of the topic to delete."""
    topic = await topic_named(visit, age_max_s=0)
    return Form(
        f"Delete {topic.name}",
        (FormField(name="again", label="repeat the topic's name", is_required=True),),
        f"Deletes {topic.name} with all its records.",
    )


async def plan_deletion(visit: Visit) -> Change:
    """Plan the deletion of a topic."""
    topic = await topic_named(visit, age_max_s=0)
    visit.confirm(topic.name)
    return Change(
        title=f"Delete {topic.name}",
        differences=_deletion(topic),
        carry_out=partial(_delete, topic),
        command=command("topic", "delete", names=[topic.name]),
        warning="The topic and all its records are deleted. This cannot be undone.",
    )


def _deletion(topic: TopicInfo) -> list[Difference]:
    return [
        Difference("topic", topic.name, None),
        Difference("partitions", str(len(topic.partitions)), None),
    ]


async def _delete(topic: TopicInfo, visit: Visit) -> Done:
    (now,) = await visit.topics_as_shown(topic)
    check_as_shown(_deletion(topic), _deletion(now))
    await visit.admin.delete_topics([topic.name])
    return Done(f"topic {topic.name} was deleted", "/topics")


def _address(topic: str) -> str:
    return link("/topics/topic", name=topic)
