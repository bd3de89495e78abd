"""Recovery of the log from the journal's files after a stop of any kind.

Files are replayed in order. The first unreadable record ends the journal. Usually it is a torn tail, which was never
acknowledged and is cut off. If a later readable record states that the unreadable one had been durable, the disk has
lost acknowledged data and the node must not start.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .disk import CorruptFile, Disk, File
from .records import JournalRecord, JournalRecordKind, find_all, unpack

logger = logging.getLogger(__name__)

Entry = tuple[bytes, int, int]

_NAME = re.compile(r"journal-(\d{10})\.log")


@dataclass(slots=True)
class JournalSegment:
    """One file of the journal, with its number in order. `size` includes bytes that are not written yet; `written` is
    the size of the file."""

    number: int
    base_index: int
    reset: bool = False
    size: int = 0
    written: int = 0
    durable: bool = False
    file: File | None = None

    @property
    def name(self) -> str:
        """File name of the segment."""
        return f"journal-{self.number:010d}.log"


@dataclass(slots=True)
class Recovered:
    """The log's entries and files after a replay of the journal. `entries` is empty if the journal does not exist
    yet."""

    entries: list[Entry] = field(default_factory=list)
    segments: list[JournalSegment] = field(default_factory=list)
    next_ordinal: int = 1


def recover(disk: Disk, salt: int) -> Recovered:
    """Replay every file of the journal, cut off a torn tail, and sync the rest. Raises CorruptFile."""
    replay = _Replay(salt)
    contents = list(_read_files(disk))
    for position, (segment, content) in enumerate(contents):
        if not replay.take(segment, content):
            later = [*_after(salt, content, segment.written), *_in_all(salt, contents[position + 1 :])]
            replay.refuse_damage(segment, later)
            _cut_off(disk, segment, content, [name for name, _ in contents[position + 1 :]], replay.recovered)
            break
    for segment in replay.recovered.segments:
        segment.durable = True
        if segment.file is not None:
            segment.file.sync()
    disk.sync_names()
    return replay.recovered


def read_entries(disk: Disk, salt: int) -> list[Entry]:
    """Return the current log from files that another process may be appending to. Changes nothing."""
    replay = _Replay(salt)
    for segment, content in _read_files(disk):
        complete = replay.take(segment, content)
        if segment.file is not None:
            segment.file.close()
        if not complete:
            break
    return replay.recovered.entries


def _read_files(disk: Disk) -> Iterator[tuple[JournalSegment, bytes]]:
    for name in disk.names():
        if match := _NAME.fullmatch(name):
            file = disk.open(name)
            yield JournalSegment(int(match[1]), 0, file=file), file.read(0, file.size())


def _after(salt: int, content: bytes, position: int) -> Iterator[JournalRecord]:
    return find_all(salt, content, position)


def _in_all(salt: int, contents: list[tuple[JournalSegment, bytes]]) -> Iterator[JournalRecord]:
    for _, content in contents:
        yield from find_all(salt, content, 0)


class _Replay:
    """A replay of the journal's files in order, which rebuilds the log's entries."""

    def __init__(self, salt: int) -> None:
        self._salt = salt
        self.recovered = Recovered()
        self._begun = False

    def take(self, segment: JournalSegment, content: bytes) -> bool:
        """Replay a file of the journal. Return False at the first unreadable record, or a record that does not follow
        the previous one."""
        recovered = self.recovered
        while segment.written < len(content):
            record = unpack(self._salt, content, segment.written)
            if record is None or (self._begun and record.ordinal != recovered.next_ordinal):
                return False
            if segment.written == 0:
                segment.base_index = record.index
                segment.reset = record.kind is JournalRecordKind.RESET
                recovered.segments.append(segment)
            self._apply(record, segment)
            self._begun = True
            recovered.next_ordinal = record.ordinal + 1
            segment.written = segment.size = record.end
        return bool(content)

    def _apply(self, record: JournalRecord, segment: JournalSegment) -> None:
        entries = self.recovered.entries
        position = record.index - entries[0][1] if entries else -1
        match record.kind:
            case JournalRecordKind.ENTRY:
                if not entries or record.index != entries[-1][1] + 1 or record.term < entries[-1][2]:
                    raise CorruptFile(
                        f"{segment.name}: entry ({record.index}, term {record.term}) does not continue the log"
                    )
                entries.append((record.payload, record.index, record.term))
            case JournalRecordKind.RESET:
                entries[:] = [(b"", record.index, record.term)]
            case JournalRecordKind.CUT if position >= 0:
                del entries[position + 1 :]
            case JournalRecordKind.BASE if entries:
                if entries[-1][1:] != (record.index, record.term):
                    raise CorruptFile(f"{segment.name} does not continue the file before it")
            case JournalRecordKind.BASE | JournalRecordKind.CUT:
                # A snapshot covers the removed files before this one.
                entries[:] = [(b"", record.index, record.term)]
            case JournalRecordKind.MARK:
                pass

    def refuse_damage(self, segment: JournalSegment, later: list[JournalRecord]) -> None:
        """Raise CorruptFile if a later record states that the unreadable record had been durable."""
        lost = self.recovered.next_ordinal
        witness = max((record.durable for record in later), default=0)
        if witness >= lost:
            raise CorruptFile(
                f"{segment.name} is damaged at byte {segment.written}: record {lost} cannot be read, but everything "
                f"up to record {witness} was on disk once. The node may have acknowledged it, so it does not "
                "start: restore the folder, or empty it and replace this node explicitly."
            )


def _cut_off(
    disk: Disk, segment: JournalSegment, content: bytes, later: list[JournalSegment], recovered: Recovered
) -> None:
    """Remove the journal's torn tail, which was never acknowledged, from the newest file back to `segment`."""
    for gone in reversed(later):
        if gone.file is not None:
            gone.file.close()
        disk.remove(gone.name)
        disk.sync_names()
    assert segment.file is not None
    logger.info(
        "%s: cutting a torn tail of %d bytes off at byte %d",
        segment.name,
        len(content) - segment.written,
        segment.written,
    )
    if segment.written:
        segment.file.truncate(segment.written)
        segment.file.sync()
    else:
        segment.file.close()
        disk.remove(segment.name)
        disk.sync_names()
        if segment in recovered.segments:
            recovered.segments.remove(segment)
