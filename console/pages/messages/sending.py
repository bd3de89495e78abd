"""The form with which users send one record to a topic."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ....client.connections.metadata import TopicInfo
from ....client.producer import Producer
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Visit
from ...commands import command, option
from ...formats import link

BYTES_AS = ("text", "base64", "nothing")


async def send_form(visit: Visit) -> Form:
    """Return the form with topic, partition, key, value and headers of a record to send."""
    return Form(
        "Send a record",
        (
            FormField(name="topic", label="topic", value=visit.text("topic"), is_required=True),
            FormField(
                name="partition", label="partition", kind="number", hint="empty: chosen by the key, or any"
            ),
            FormField(name="key_as", label="the key is", kind="choice", choices=BYTES_AS, value="text"),
            FormField(name="key", label="key"),
            FormField(name="value_as", label="the value is", kind="choice", choices=BYTES_AS, value="text"),
            FormField(name="value", label="value", kind="lines"),
            FormField(name="headers", label="headers", kind="lines", hint="one a line: name=value"),
        ),
    )


def bytes_of(visit: Visit, name: str) -> bytes | None:
    """Return the bytes of the record's key or value (`name`) in the form: text, base64, or None for null.

    Raises BadQuestion.
    """
    kind, text = visit.text(f"{name}_as", "text"), visit.form.get(name, "")
    if kind not in BYTES_AS:
        raise BadQuestion(f"'{name}_as' is one of {', '.join(BYTES_AS)}, not {kind[:40]!r}")
    if kind == "nothing":
        if text:
            raise BadQuestion(f"the {name} is set to nothing, but has text")
        return None
    if kind == "text":
        return text.encode()
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise BadQuestion(f"the {name} is no base64: {error}") from None


def headers_of(text: str) -> list[tuple[str, bytes]]:
    """Parse the record headers of a form, lines `name=value`. A name may occur several times. Raises BadQuestion."""
    found = []
    for line in filter(None, text.split("\n")):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise BadQuestion(f"a header is name=value, not {line[:80]!r}")
        found.append((name.strip(), value.encode()))
    return found


@dataclass(frozen=True, slots=True)
class OneRecord:
    """A record to send to a topic. Without a partition the producer chooses one by the key."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]

    def command(self, topic: str) -> str:
        """Return the shell command that sends the same record; empty if no command can.

        No word can have a zero byte, and `--null` would also turn an empty key into null.
        """
        has_zero = any(b"\0" in (part or b"") for part in (self.key, self.value))
        if has_zero or (self.key == b"" and self.value is None):
            return ""
        words: list[str | bytes] = ["--whole-files"]
        words += [] if self.partition is None else ["-p", str(self.partition)]
        words += [] if self.key is None else [b"--key=" + self.key]
        words += ["--null"] if self.value is None else []
        for name, value in self.headers:
            words += option("-H", f"{name}={value.decode()}")
        return command("produce", names=[topic, "/dev/stdin"], options=words, given=self.value or b"")


async def plan_sending(visit: Visit) -> Change:
    """Plan to send the record of a form. Raises NotThere for an unknown topic, which sending would create."""
    topic = await visit.topic(visit.required("topic"), age_max_s=0)
    record = OneRecord(
        visit.number("partition") if visit.text("partition") else None,
        bytes_of(visit, "key"),
        bytes_of(visit, "value"),
        headers_of(visit.form.get("headers", "")),
    )
    if record.partition is not None and record.partition not in topic.partitions:
        raise BadQuestion(
            f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}, not {record.partition}"
        )
    differences = [
        Difference("topic", None, topic.name),
        Difference(
            "partition", None, "by the key, or any" if record.partition is None else str(record.partition)
        ),
        Difference("key", None, _told(record.key)),
        Difference("value", None, _told(record.value)),
    ]
    differences += [Difference(f"header {name}", None, _told(data)) for name, data in record.headers]
    return Change(
        title=f"Send a record to {topic.name}",
        differences=differences,
        carry_out=partial(_send, topic, record),
        command=record.command(topic.name),
    )


def _told(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data[:400].decode("utf-8", "backslashreplace")
    return f"{text}{'...' if len(data) > 400 else ''} ({len(data):,} bytes)"


async def _send(topic: TopicInfo, record: OneRecord, visit: Visit) -> Done:
    """Send the record to the topic, and wait until all in-sync replicas have it.

    Raises Outdated if the topic was replaced meanwhile.
    """
    await visit.topics_as_shown(topic)
    async with Producer(**visit.connection, acks="all") as producer:
        placed = await producer.send_and_wait(
            topic.name, record.value, key=record.key, partition=record.partition, headers=record.headers
        )
    where = link(
        "/messages",
        topic=topic.name,
        partition=placed.partition,
        **{"from": "offset"},
        at=placed.offset,
        count=1,
    )
    return Done(f"sent: {topic.name}-{placed.partition}, offset {placed.offset}", where)
