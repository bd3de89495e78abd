"""The references in the records of a topic, which keep their objects from a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ....client.consumer import Consumer
from ....client.failures import UnreadableRecords
from ....client.objects.references import UnknownVersion, is_reference, read_reference
from ....client.records import ConsumerRecord, TopicPartition
from ...failures import CommandFailed
from ...terminal.progress import progress_bar
from .candidates import TopicObjects

POLL_MS: Final = 100
RECORDS_AT_A_TIME: Final = 2_000


async def find_references(
    connection: Mapping[str, Any], partitions: list[TopicPartition], objects: TopicObjects
) -> None:
    """Read all records of a topic, those of open and aborted transactions too, and note the objects that they refer to.

    Raises CommandFailed if a record cannot be read, since it may be a reference.
    """
    options: dict[str, Any] = {**connection, "auto_offset_reset": "earliest", "large_messages": False}
    async with Consumer(**options) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        left = {partition: ends[partition] - await consumer.position(partition) for partition in partitions}
        total = sum(left.values())
        with progress_bar(f"reading {objects.topic}", total) as progress:
            while any(offsets > 0 for offsets in left.values()):
                try:
                    taken = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_AT_A_TIME)
                except UnreadableRecords as error:
                    raise CommandFailed(f"nothing is deleted: {error}") from error
                for records in taken.values():
                    for record in records:
                        _note(record, objects)
                left = {
                    partition: ends[partition] - await consumer.position(partition)
                    for partition in partitions
                }
                progress(total - sum(max(0, offsets) for offsets in left.values()))


def _note(record: ConsumerRecord, objects: TopicObjects) -> None:
    if not is_reference(record.headers):
        return
    try:
        objects.refer(read_reference(record.value).key)
    except UnknownVersion as error:
        raise CommandFailed(
            f"nothing is deleted: {record.topic}-{record.partition}, offset {record.offset}: {error}"
        ) from None
    except ValueError:
        pass  # No version reads it as a reference, so it refers to no object.
