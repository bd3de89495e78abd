"""What may be done to topics: the forms, what would change, and the change."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ....client.admin import TOPIC_RESOURCE, ConfigEntry, NewTopic
from ....client.admin.records import EARLIEST, LATEST, TO_THE_END
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Visit
from ...formats import link
from ...settings import (
    FIELD,
    HINT,
    changes_asked,
    own_settings,
    setting_differences,
    settings_field,
    settings_of,
)
from .topic import known, topic_named

PARTITIONS_MAX = 100_000
SOURCE = "topic"
"""Of a setting that the topic has of its own."""


# ------------------------------------------------------------ create


async def creation_form(visit: Visit) -> Form:
    """What a new topic needs."""
    return Form(
        "Create a topic",
        (
            FormField(name="topic", label="name", is_required=True),
            FormField(
                name="partitions", label="partitions", kind="number", hint="empty: the cluster's default"
            ),
            FormField(name="replicas", label="replicas", kind="number", hint="empty: the cluster's default"),
            FormField(name=FIELD, label="settings", kind="lines", hint=HINT),
        ),
    )


def new_topic(visit: Visit) -> NewTopic:
    """What the form describes. Raises BadQuestion."""
    partitions = (
        visit.number("partitions", -1, least=1, most=PARTITIONS_MAX) if visit.text("partitions") else -1
    )
    replicas = visit.number("replicas", -1, least=1, most=1000) if visit.text("replicas") else -1
    return NewTopic(
        visit.required("topic"), partitions, replicas, configs=settings_of(visit.form.get(FIELD, ""))
    )


async def plan_creation(visit: Visit) -> Change:
    """The cluster checks it."""
    topic = new_topic(visit)
    await visit.admin.create_topics([topic], validate_only=True)
    words = ["ottla", "topic", "create", topic.name]
    differences = [Difference("topic", None, topic.name)]
    for what, flag, number in (
        ("partitions", "-p", topic.num_partitions),
        ("replicas", "-r", topic.replication_factor),
    ):
        differences.append(Difference(what, None, "the cluster's default" if number < 0 else str(number)))
        words += [] if number < 0 else [flag, str(number)]
    for key, value in topic.configs.items():
        differences.append(Difference(key, None, value))
        words += ["--config", f"{key}={value}"]
    return Change(title=f"Create topic {topic.name}", differences=differences, command=shlex.join(words))


async def create(visit: Visit) -> Done:
    """Create it."""
    topic = new_topic(visit)
    await visit.admin.create_topics([topic])
    return Done(f"topic {topic.name} was created", _address(topic.name))


# ------------------------------------------------------------ settings


async def settings_form(visit: Visit) -> Form:
    """The settings that the topic has of its own, as text."""
    topic = await topic_named(visit, age_max_s=0)
    own = own_settings(await visit.admin.describe_configs(TOPIC_RESOURCE, topic.name), SOURCE)
    return Form(f"Settings of {topic.name}", (settings_field("settings of this topic", own),))


async def _altered(visit: Visit) -> tuple[str, Sequence[ConfigEntry], dict[str, str | None]]:
    topic = await topic_named(visit, age_max_s=0)
    entries = await visit.admin.describe_configs(TOPIC_RESOURCE, topic.name)
    return topic.name, entries, changes_asked(entries, SOURCE, visit.form.get(FIELD, ""))


async def plan_settings(visit: Visit) -> Change:
    """The cluster checks the new values."""
    name, entries, changes = await _altered(visit)
    await visit.admin.alter_configs(TOPIC_RESOURCE, name, changes, validate_only=True)
    words = ["ottla", "topic", "alter", name]
    for key, value in changes.items():
        words += ["--unset", key] if value is None else ["--set", f"{key}={value}"]
    return Change(
        title=f"Change settings of {name}",
        differences=setting_differences(entries, changes, SOURCE),
        command=shlex.join(words),
    )


async def alter_settings(visit: Visit) -> Done:
    """Change them."""
    name, _, changes = await _altered(visit)
    await visit.admin.alter_configs(TOPIC_RESOURCE, name, changes)
    return Done(f"changed for {name}: {', '.join(changes)}", _address(name))


# ------------------------------------------------------------ partitions


async def partitions_form(visit: Visit) -> Form:
    """How many there shall be."""
    topic = await topic_named(visit, age_max_s=0)
    return Form(
        f"More partitions for {topic.name}",
        (
            FormField(
                name="total",
                label="partitions in the end",
                kind="number",
                value=str(len(topic.partitions)),
                is_required=True,
            ),
        ),
        "Keys go to other partitions from then on, and partitions cannot be taken away again.",
    )


async def plan_partitions(visit: Visit) -> Change:
    """The cluster checks it."""
    topic, total = await topic_named(visit, age_max_s=0), visit.number("total", least=1, most=PARTITIONS_MAX)
    await visit.admin.create_partitions(topic.name, total, validate_only=True)
    return Change(
        title=f"More partitions for {topic.name}",
        differences=[Difference("partitions", str(len(topic.partitions)), str(total))],
        command=shlex.join(["ottla", "topic", "add-partitions", topic.name, "--to", str(total)]),
        warning="Keys go to other partitions from then on. This cannot be undone.",
    )


async def add_partitions(visit: Visit) -> Done:
    """Add them."""
    topic, total = await topic_named(visit, age_max_s=0), visit.number("total", least=1, most=PARTITIONS_MAX)
    await visit.admin.create_partitions(topic.name, total)
    return Done(f"{topic.name} has {total} partitions", _address(topic.name))


# ------------------------------------------------------------ trim


async def trim_form(visit: Visit) -> Form:
    """Where the records shall begin."""
    topic = await topic_named(visit, age_max_s=0)
    return Form(
        f"Trim {topic.name}",
        (
            FormField(name="offset", label="delete below offset", is_required=True, hint="a number, or: end"),
            FormField(name="partition", label="partition", kind="number", hint="empty: all partitions"),
        ),
        "Deletes the oldest records.",
    )


async def _trimmed(visit: Visit) -> tuple[str, dict[TopicPartition, int], list[Difference]]:
    """The topic, the offset for each partition, and what that changes."""
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
    return topic.name, before, differences


def trim_plan(
    names: Sequence[TopicPartition],
    starts: Mapping[TopicPartition, int | KafkaError],
    ends: Mapping[TopicPartition, int | KafkaError],
    below: int,
) -> tuple[dict[TopicPartition, int], list[Difference]]:
    """Where each partition will begin; those that begin there already, or later, are left alone. The end is the one
    that was shown: what is written after it stays. Raises BadQuestion for one that does not tell its offsets."""
    before: dict[TopicPartition, int] = {}
    differences = []
    for name in names:
        start, end = known(starts.get(name)), known(ends.get(name))
        if start is None or end is None:
            raise BadQuestion(f"partition {name.partition} does not tell its offsets now")
        target = end if below == TO_THE_END else min(below, end)
        if target > start:
            before[name] = target
            differences.append(
                Difference(
                    f"start of partition {name.partition}",
                    f"{start:,}",
                    f"{target:,}: up to {target - start:,} records go",
                )
            )
    return before, differences


async def plan_trim(visit: Visit) -> Change:
    """What goes."""
    name, _, differences = await _trimmed(visit)
    where = name + (f":{visit.text('partition')}" if visit.text("partition") else "")
    return Change(
        title=f"Trim {name}",
        differences=differences,
        command=shlex.join(["ottla", "topic", "trim", where, "--offset", visit.text("offset")]),
        warning="Records are deleted. This cannot be undone.",
    )


async def trim(visit: Visit) -> Done:
    """Delete them. Raises KafkaError for a partition that refused."""
    name, before, _ = await _trimmed(visit)
    results = await visit.admin.delete_records(before)
    for refused in results.values():
        if isinstance(refused, KafkaError):
            raise refused
    return Done(f"{len(results)} partitions of {name} were trimmed", _address(name))


# ------------------------------------------------------------ delete


async def deletion_form(visit: Visit) -> Form:
    """Its name once more."""
    topic = await topic_named(visit, age_max_s=0)
    return Form(
        f"Delete {topic.name}",
        (FormField(name="again", label="the topic's name once more", is_required=True),),
        f"Deletes {topic.name} with all its records.",
    )


async def plan_deletion(visit: Visit) -> Change:
    """What goes."""
    topic = await topic_named(visit, age_max_s=0)
    visit.confirm(topic.name)
    return Change(
        title=f"Delete {topic.name}",
        differences=[
            Difference("topic", topic.name, None),
            Difference("partitions", str(len(topic.partitions)), None),
        ],
        command=shlex.join(["ottla", "topic", "delete", topic.name]),
        warning="The topic and all its records are deleted. This cannot be undone.",
    )


async def delete(visit: Visit) -> Done:
    """Delete it."""
    await plan_deletion(visit)
    name = visit.required("name")
    await visit.admin.delete_topics([name])
    return Done(f"topic {name} was deleted", "/topics")


def _address(topic: str) -> str:
    return link("/topics/topic", name=topic)
