"""Sends one record."""

from __future__ import annotations

import base64
import shlex

from ....client.producer import Producer
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Visit
from ...formats import link

BYTES_AS = ("text", "base64", "nothing")


async def send_form(visit: Visit) -> Form:
    """What the record has."""
    return Form(
        "Send a record",
        (
            FormField(name="topic", label="topic", value=visit.text("topic"), is_required=True),
            FormField(name="partition", label="partition", kind="number", hint="empty: by the key, or any"),
            FormField(name="key_as", label="the key is", kind="choice", choices=BYTES_AS, value="text"),
            FormField(name="key", label="key"),
            FormField(name="value_as", label="the value is", kind="choice", choices=BYTES_AS, value="text"),
            FormField(name="value", label="value", kind="lines"),
            FormField(name="headers", label="headers", kind="lines", hint="one a line: name=value"),
        ),
    )


def bytes_of(visit: Visit, name: str) -> bytes | None:
    """Key or value as the form says. Raises BadQuestion."""
    kind, text = visit.text(f"{name}_as", "text"), visit.form.get(name, "")
    if kind not in BYTES_AS:
        raise BadQuestion(f"'{name}_as' is one of {', '.join(BYTES_AS)}, not {kind[:40]!r}")
    if kind == "nothing":
        if text:
            raise BadQuestion(f"the {name} is to be nothing, and something stands there")
        return None
    if kind == "text":
        return text.encode()
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise BadQuestion(f"the {name} is no base64: {error}") from None


def headers_of(text: str) -> list[tuple[str, bytes]]:
    """Lines `name=value`. A name may stand there again. Raises BadQuestion."""
    found = []
    for line in filter(None, text.split("\n")):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise BadQuestion(f"a header is name=value, not {line[:80]!r}")
        found.append((name.strip(), value.encode()))
    return found


async def plan_sending(visit: Visit) -> Change:
    """What is sent. Raises NotThere: sending would create the topic."""
    topic, key, value = visit.required("topic"), bytes_of(visit, "key"), bytes_of(visit, "value")
    headers = headers_of(visit.form.get("headers", ""))
    known = await visit.topic(topic, age_max_s=0)
    where = "by the key, or any"
    if visit.text("partition"):
        index = visit.number("partition")
        if index not in known.partitions:
            raise BadQuestion(f"{topic} has partitions 0 to {len(known.partitions) - 1}, not {index}")
        where = str(index)
    differences = [
        Difference("topic", None, topic),
        Difference("partition", None, where),
        Difference("key", None, _told(key)),
        Difference("value", None, _told(value)),
    ]
    differences += [Difference(f"header {name}", None, _told(data)) for name, data in headers]
    words = ["ottla", "produce", topic] + (["-p", where] if visit.text("partition") else [])
    return Change(title=f"Send a record to {topic}", differences=differences, command=shlex.join(words))


def _told(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data[:400].decode("utf-8", "backslashreplace")
    return f"{text}{'...' if len(data) > 400 else ''} ({len(data):,} bytes)"


async def send(visit: Visit) -> Done:
    """Send it, and wait until all in-sync replicas have it."""
    await plan_sending(visit)
    topic = visit.required("topic")
    async with Producer(**visit.connection, acks="all") as producer:
        placed = await producer.send_and_wait(
            topic,
            bytes_of(visit, "value"),
            key=bytes_of(visit, "key"),
            partition=visit.number("partition") if visit.text("partition") else None,
            headers=headers_of(visit.form.get("headers", "")),
        )
    where = link(
        "/messages", topic=topic, partition=placed.partition, **{"from": "offset"}, at=placed.offset, count=1
    )
    return Done(f"sent: {topic}-{placed.partition}, offset {placed.offset}", where)
