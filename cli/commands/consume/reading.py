"""The reading of records until their ends or the count, and the line on the terminal that shows how far it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final

from ....client.consumer import Consumer
from ....client.failures import UnreadableRecords, UnreadableValue
from ....client.records import ConsumerRecord, TopicPartition
from ...failures import CommandFailed
from ...terminal.record_format import Printer
from ...terminal.text import show_progress
from .places import Places
from .selection import RecordSelection
from .values import lacks_store

POLL_MS = 100
POSITION_S = 1.0
"""Seconds after which a partition without a known position counts as leaderless."""
SILENCE_S = 5.0
"""Seconds without a record after which the command asks again whether partitions have leaders."""
PROGRESS_S: Final = 1.0
"""Seconds without a match after which a search shows its progress, and between two lines of progress."""


async def print_records(
    consumer: Consumer, places: Places, selection: RecordSelection, show: Printer, *, group: str | None = None
) -> None:
    """Print records until the count is reached or all partitions are at their ends.

    Raises CommandFailed for unreadable records, and if partitions are missing at the end.
    """
    loop = asyncio.get_running_loop()
    asked_s = loop.time()
    with SearchProgress(selection) as progress:
        while not selection.is_complete:
            await places.find_ends()
            try:
                some = await _read(consumer, group, selection.records_max)
            except UnreadableRecords as error:
                if isinstance(error, UnreadableValue) and error.without_store:
                    raise CommandFailed(lacks_store(error)) from error
                raise CommandFailed(f"{error}; {_way_on(error, group)}") from error
            for partition, records in some.items():
                chosen, unread = selection.take(partition, records)
                if unread is not None:
                    consumer.seek(partition, unread)
                    consumer.pause(partition)
                if chosen:
                    progress.make_room()
                    sys.stdout.buffer.write(b"".join([show(record) for record in chosen]))
            sys.stdout.buffer.flush()
            progress.show()
            if some and group:
                await consumer.commit()
            if some:
                asked_s = loop.time()
                continue
            behind = await _behind(consumer, places, group) if places.have_ends else None
            if behind == []:
                places.check(consumer.assignment() if group else None)
                return
            if loop.time() > asked_s + SILENCE_S:
                await _ask_again(consumer, places, group, behind)
                asked_s = loop.time()


def seek(consumer: Consumer, begins: Mapping[TopicPartition, int | None]) -> None:
    """Continue at these offsets; an offset of None leaves the position to the consumer."""
    for partition, offset in begins.items():
        if offset is not None:
            consumer.seek(partition, offset)


class SearchProgress:
    """The line on the terminal that shows how many records a search has looked at, while none matches."""

    def __init__(self, selection: RecordSelection) -> None:
        self._selection = selection
        self._loop = asyncio.get_running_loop()
        self._shown_s = self._loop.time()
        self._is_shown = False

    def __enter__(self) -> SearchProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last counts on the terminal if the line is shown."""
        if self._is_shown:
            show_progress(self._text(), last=True)

    def show(self) -> None:
        """Replace the line, if there are filters and some time has passed since the last line."""
        if not self._selection.is_search or self._loop.time() < self._shown_s + PROGRESS_S:
            return
        self._shown_s, self._is_shown = self._loop.time(), True
        show_progress(self._text())

    def make_room(self) -> None:
        """Remove the line before records appear on the same terminal."""
        if not self._selection.is_search or not sys.stdout.isatty():
            return
        if self._is_shown:
            show_progress("")
        self._shown_s, self._is_shown = self._loop.time(), False

    def _text(self) -> str:
        return f"looked at {self._selection.looked_at:,} records, {self._selection.matched:,} match"


async def _read(
    consumer: Consumer, group: str | None, records_max: int | None
) -> Mapping[TopicPartition, list[ConsumerRecord]]:
    """Return the consumer's next records by partition; none while no named partition has a leader."""
    if group is None and not consumer.assignment():
        await asyncio.sleep(POLL_MS / 1000)
        return {}
    return await consumer.getmany(timeout_ms=POLL_MS, max_records=records_max)


async def _behind(consumer: Consumer, places: Places, group: str | None) -> list[TopicPartition] | None:
    """Return the partitions that are not yet read to their ends, None while none is assigned.

    With `-e` partitions without an answering leader are left out. Otherwise their records are awaited.
    """
    if places.exits_at_end and not places.ends:
        return []
    if not (assigned := consumer.assignment()):
        return None
    awaited = (
        set() if places.exits_at_end else set(places.missing) & assigned if group else set(places.missing)
    )
    return sorted(awaited) + await _before_ends(consumer, places, sorted(assigned - set(places.missing)))


async def _before_ends(
    consumer: Consumer, places: Places, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return those of the assigned partitions that are not yet read to their ends."""
    behind = []
    for partition in partitions:
        end = places.ends.get(partition, 0 if places.exits_at_end else None)
        if end is None:
            behind.append(partition)
            continue
        try:
            async with asyncio.timeout(POSITION_S):
                position = await consumer.position(partition)
        except TimeoutError:
            behind.append(partition)
        else:
            if position < end:
                behind.append(partition)
    return behind


async def _ask_again(
    consumer: Consumer, places: Places, group: str | None, behind: list[TopicPartition] | None
) -> None:
    """Ask for leaders again: with `-e` of the partitions that are behind, and otherwise of missing partitions, which
    are then read from their begin."""
    if places.exits_at_end:
        if behind:
            await places.ask(behind)
    elif places.missing:
        found = await places.ask(list(places.missing))
        if group is None:
            consumer.assign([*consumer.assignment(), *found])
            seek(consumer, found)


def _way_on(error: UnreadableRecords, group: str | None) -> str:
    topic, index = error.partition
    if group is None:
        return f"ottla consume {topic} -p {index} -o {error.next_offset}"
    return f"ottla group seek {group} --topic {topic}:{index} --to {error.next_offset}"
