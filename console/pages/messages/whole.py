"""The download of the whole key or value of one record."""

from __future__ import annotations

from ....client.records import TopicPartition
from ...area import BadQuestion, Download, NotThere, Visit
from .reading import read


async def show(visit: Visit) -> Download:
    """Return the bytes as stored in the log."""
    topic, part = visit.required("topic"), visit.text("part", "value")
    if part not in ("key", "value"):
        raise BadQuestion(f"'part' is key or value, not {part[:40]!r}")
    offset, partition = visit.number("offset"), visit.number("partition", most=2**31 - 1)
    place = TopicPartition(topic, partition)
    if partition not in (await visit.topic(topic)).partitions:
        raise NotThere(f"there is no partition {topic}-{partition}")
    found = await read(visit.connection, {place: offset}, {place: offset + 1}, (), count=1)
    record = next((one for one in found.records if one.offset == offset), None)
    data = None if record is None else record.key if part == "key" else record.value
    if data is None:
        raise NotThere(f"there is no {part} at offset {offset} of {topic}-{partition}")
    return Download(data, f"{topic}-{partition}-{offset}.{part}")
