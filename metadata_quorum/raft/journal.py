"""The Raft log of one node, on disk and in memory.

On disk it is a row of append-only files of `records`. Nothing is ever overwritten: dropping a tail is a
record, dropping a prefix is removing whole files. Writing and syncing happen in `JournalTicket.run`, which may
block and is meant for another thread; what it made durable counts once `Journal.complete` is called.

In memory the log is a list of `(payload, index, term)`. Its first element is the *base*: the entry before the
first one held, without payload. A new journal has the base (1, 0), which every node shares.

Invariants: indexes are contiguous; terms never fall; `durable_index <= last_index`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from .disk import Disk
from .journal_recovery import Entry, JournalSegment, recover
from .records import JournalRecordKind, pack

SEGMENT_BYTES = 8 << 20
_CHECKED_ENTRIES = 16
FIRST_BASE = (b"", 1, 0)
"""What every log begins behind."""


@dataclass(slots=True)
class JournalTicket:
    """One batch of writes to make durable. `run` blocks; call it anywhere, one at a time."""

    disk: Disk
    ordinal: int
    writes: list[tuple[JournalSegment, list[bytes]]]

    def run(self) -> None:
        """Write and sync, oldest file first, so that what survives is a prefix."""
        for segment, buffers in self.writes:
            created = segment.file is None
            if segment.file is None:
                segment.file = self.disk.create(segment.name)
            data = b"".join(buffers)
            segment.file.write(segment.written, data)
            segment.written += len(data)
            segment.file.sync()
            if created:
                self.disk.sync_names()


@dataclass(slots=True)
class Removal:
    """Files to close and remove. `run` blocks; run it after every earlier ticket."""

    disk: Disk
    segments: list[JournalSegment]

    def run(self) -> None:
        """Remove the oldest first, each durable before the next: what is left has no gap."""
        for segment in self.segments:
            if segment.file is not None:
                segment.file.close()
            self.disk.remove(segment.name)
            self.disk.sync_names()


@dataclass(slots=True)
class Journal:
    """The log. Build it with `open_journal`."""

    disk: Disk
    salt: int
    entries: list[Entry]
    segments: list[JournalSegment]
    next_ordinal: int
    segment_bytes: int = SEGMENT_BYTES
    durable_index: int = 0
    durable_ordinal: int = 0
    held_bytes: int = 0
    """Payload bytes in memory."""
    unsynced_bytes: int = 0
    """Bytes of records that no completed ticket covers."""
    _unwritten: list[tuple[JournalSegment, list[bytes]]] = field(default_factory=list)
    _unsynced: deque[tuple[int, int, int]] = field(default_factory=deque)
    _ticket: JournalTicket | None = None
    _ticket_bytes: int = 0
    _last_kind: JournalRecordKind = JournalRecordKind.MARK

    @property
    def base_index(self) -> int:
        """The index before the first entry held."""
        return self.entries[0][1]

    @property
    def last_index(self) -> int:
        """The index of the last entry, or of the base."""
        return self.entries[-1][1]

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the base."""
        return self.entries[-1][2]

    @property
    def dirty(self) -> bool:
        """Whether there is something to sync that no ticket has taken."""
        return bool(self._unwritten)

    @property
    def syncing(self) -> bool:
        """Whether a ticket is out."""
        return self._ticket is not None

    def check(self) -> None:
        """AssertionError if the log contradicts itself. Looks at both ends, not at every entry between."""
        entries, last = self.entries, self.last_index
        if last - self.base_index != len(entries) - 1:
            raise AssertionError(f"{len(entries) - 1} entries from {self.base_index + 1} to {last}")
        for (_, index, term), (_, next_index, next_term) in pairwise(entries[-_CHECKED_ENTRIES:]):
            if next_index != index + 1 or next_term < term:
                raise AssertionError(f"({next_index}, term {next_term}) follows ({index}, term {term})")
        # It may be below the base: a snapshot from the leader is ahead of the disk.
        if self.durable_index > last:
            raise AssertionError(f"{self.base_index}..{last}, durable up to {self.durable_index}")
        if not 0 <= self.durable_ordinal < self.next_ordinal:
            raise AssertionError(f"record {self.next_ordinal} is next, {self.durable_ordinal} is durable")
        waiting = [index for _, index, _ in self._unsynced]
        if waiting != sorted(waiting) or (waiting and not self.durable_index < waiting[-1] <= last):
            raise AssertionError(f"{waiting} wait to be durable, {self.durable_index} is, {last} is the last")
        if not waiting and self.durable_index != last:
            raise AssertionError(f"durable up to {self.durable_index} of {last}, and nothing waits")

    def term_at(self, index: int) -> int | None:
        """The term of an entry or the base; None for an index that is not held."""
        position = index - self.entries[0][1]
        if 0 <= position < len(self.entries):
            return self.entries[position][2]
        return None

    def append(self, payload: bytes, index: int, term: int) -> None:
        """Add the entry behind the last. It is durable once a ticket taken after this completes."""
        last_index, last_term = self.entries[-1][1:]
        if index != last_index + 1 or term < last_term:
            raise ValueError(f"entry ({index}, term {term}) cannot follow ({last_index}, term {last_term})")
        self._make_room()
        self.entries.append((payload, index, term))
        self.held_bytes += len(payload)
        self._write(JournalRecordKind.ENTRY, index, term, payload)
        self._unsynced.append((self.next_ordinal - 1, index, term))

    def cut_behind(self, index: int) -> None:
        """Drop every entry behind `index`, which must be held."""
        if index >= self.last_index:
            return
        position = index - self.base_index
        if position < 0:
            raise ValueError(f"cannot cut behind {index}: the log begins behind {self.base_index}")
        self._make_room()
        self.held_bytes -= sum(len(entry[0]) for entry in self.entries[position + 1 :])
        del self.entries[position + 1 :]
        while self._unsynced and self._unsynced[-1][1] > index:
            self._unsynced.pop()
        self.durable_index = min(self.durable_index, index)
        self._write(JournalRecordKind.CUT, index, self.last_term, b"")

    def reset(self, index: int, term: int) -> None:
        """Forget every entry: the log continues behind a durable snapshot of (index, term)."""
        self.entries[:] = [(b"", index, term)]
        self.held_bytes = 0
        self._unsynced.clear()
        self.durable_index = index
        self._begin_segment(JournalRecordKind.RESET)

    def drop_prefix(self, index: int) -> Removal | None:
        """Forget the entries up to `index`, which a durable snapshot covers; maybe files to remove."""
        position = index - self.base_index
        if position > 0:
            self.held_bytes -= sum(len(entry[0]) for entry in self.entries[1 : position + 1])
            self.entries[: position + 1] = [(b"", index, self.entries[position][2])]
        keep_from = max(
            position
            for position, segment in enumerate(self.segments)
            if position == 0 or (segment.durable and (segment.reset or segment.base_index <= index))
        )
        if not keep_from:
            return None
        gone, self.segments[:keep_from] = self.segments[:keep_from], []
        return Removal(self.disk, gone)

    def mark(self) -> None:
        """When all is durable, say so in the journal: damage to it is told from a torn tail ever after."""
        if self.durable_ordinal == self.next_ordinal - 1 and self._last_kind is not JournalRecordKind.MARK:
            self._write(JournalRecordKind.MARK, self.last_index, self.last_term, b"")

    def take_ticket(self) -> JournalTicket:
        """What is to be written and synced now. One ticket is out at a time."""
        if self._ticket is not None:
            raise RuntimeError("the journal is being synced")
        self._ticket = JournalTicket(self.disk, self.next_ordinal - 1, self._unwritten)
        self._unwritten = []
        self._ticket_bytes = self.unsynced_bytes
        return self._ticket

    def complete(self, ticket: JournalTicket) -> None:
        """`ticket` has run: what it covers is durable, as far as it is still in the log."""
        if ticket is not self._ticket:
            raise RuntimeError("not the ticket that is out")
        self._ticket = None
        self.durable_ordinal = ticket.ordinal
        self.unsynced_bytes -= self._ticket_bytes
        for segment, _ in ticket.writes:
            segment.durable = True
        while self._unsynced and self._unsynced[0][0] <= ticket.ordinal:
            self.durable_index = self._unsynced.popleft()[1]

    def sync(self) -> None:
        """Take, run and complete a ticket here and now."""
        if self.dirty:
            ticket = self.take_ticket()
            ticket.run()
            self.complete(ticket)

    def close(self) -> None:
        """Make everything durable, mark it and close the files. No ticket may be out."""
        self.sync()
        self.mark()
        self.sync()
        for segment in self.segments:
            if segment.file is not None:
                segment.file.close()
                segment.file = None

    def _make_room(self) -> None:
        if self.segments[-1].size >= self.segment_bytes:
            self._begin_segment(JournalRecordKind.BASE)

    def _begin_segment(self, kind: JournalRecordKind) -> None:
        number = self.segments[-1].number + 1 if self.segments else 1
        self.segments.append(JournalSegment(number, self.last_index, reset=kind is JournalRecordKind.RESET))
        self._write(kind, self.last_index, self.last_term, b"")

    def _write(self, kind: JournalRecordKind, index: int, term: int, payload: bytes) -> None:
        data = pack(self.salt, kind, self.next_ordinal, self.durable_ordinal, index, term, payload)
        self.next_ordinal += 1
        self._last_kind = kind
        self.unsynced_bytes += len(data)
        segment = self.segments[-1]
        segment.size += len(data)
        if self._unwritten and self._unwritten[-1][0] is segment:
            self._unwritten[-1][1].append(data)
        else:
            self._unwritten.append((segment, [data]))


def open_journal(disk: Disk, salt: int, segment_bytes: int = SEGMENT_BYTES) -> Journal:
    """The journal in `disk`, new or recovered; everything in it is durable. Blocks.

    A tail that a crash tore is cut off. Raises CorruptFile for any other damage.
    """
    recovered = recover(disk, salt)
    journal = Journal(
        disk,
        salt,
        recovered.entries or [FIRST_BASE],
        recovered.segments,
        recovered.next_ordinal,
        segment_bytes,
    )
    journal.held_bytes = sum(len(entry[0]) for entry in journal.entries)
    if not recovered.segments:
        journal._begin_segment(JournalRecordKind.BASE)
        journal.sync()
    journal.durable_index = journal.last_index
    journal.durable_ordinal = journal.next_ordinal - 1
    return journal
