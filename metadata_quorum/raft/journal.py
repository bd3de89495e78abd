"""The Raft log of one node, on disk and in memory.

On disk it is a sequence of append-only files of `records`. Data is never overwritten: dropping a tail writes a record,
and dropping a prefix removes whole files. Writing and syncing happen in `JournalTicket.run`, which may block and is
meant for another thread; the result counts as durable once `Journal.complete` is called.

In memory the log is a list of `(payload, index, term)`. Its first element is the *base*: the entry before the first one
held, without payload. A new journal has the base (1, 0), which every node shares.

Invariants: indexes are contiguous; terms never decrease; `durable_index <= last_index`.
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
"""Base of every new log."""


@dataclass(slots=True)
class JournalTicket:
    """A batch of pending writes to the journal's files. `run` writes and syncs them; it blocks and may run in any
    thread, one ticket at a time."""

    disk: Disk
    ordinal: int
    writes: list[tuple[JournalSegment, list[bytes]]]

    def run(self) -> None:
        """Write and sync the batch, the oldest file first, so that a crash leaves a prefix."""
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
    """Journal files that hold only dropped entries, to be closed and removed. `run` blocks, and must follow every
    earlier ticket."""

    disk: Disk
    segments: list[JournalSegment]

    def run(self) -> None:
        """Remove the files, the oldest first, and make each removal durable before the next, so that no gap arises."""
        for segment in self.segments:
            if segment.file is not None:
                segment.file.close()
            self.disk.remove(segment.name)
            self.disk.sync_names()


@dataclass(slots=True)
class Journal:
    """The Raft log of one node, in memory and on disk. `open_journal` creates it."""

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
        """Index of the base, the entry before the first one in memory."""
        return self.entries[0][1]

    @property
    def last_index(self) -> int:
        """Index of the last entry, or of the base."""
        return self.entries[-1][1]

    @property
    def last_term(self) -> int:
        """Term of the last entry, or of the base."""
        return self.entries[-1][2]

    @property
    def dirty(self) -> bool:
        """True if there are writes that no ticket has taken."""
        return bool(self._unwritten)

    @property
    def syncing(self) -> bool:
        """True if a ticket has been taken and not completed."""
        return self._ticket is not None

    def check(self) -> None:
        """Raise AssertionError if the log contradicts itself. Only the ends are checked, not every entry."""
        entries, last = self.entries, self.last_index
        if last - self.base_index != len(entries) - 1:
            raise AssertionError(f"{len(entries) - 1} entries from {self.base_index + 1} to {last}")
        for (_, index, term), (_, next_index, next_term) in pairwise(entries[-_CHECKED_ENTRIES:]):
            if next_index != index + 1 or next_term < term:
                raise AssertionError(f"({next_index}, term {next_term}) follows ({index}, term {term})")
        # It may be below the base, because a snapshot from the leader is ahead of the disk.
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
        """Return the term of an entry or of the base; None for an index that is not held."""
        position = index - self.entries[0][1]
        if 0 <= position < len(self.entries):
            return self.entries[position][2]
        return None

    def append(self, payload: bytes, index: int, term: int) -> None:
        """Append an entry. It is durable once a later ticket completes."""
        last_index, last_term = self.entries[-1][1:]
        if index != last_index + 1 or term < last_term:
            raise ValueError(f"entry ({index}, term {term}) cannot follow ({last_index}, term {last_term})")
        self._make_room()
        self.entries.append((payload, index, term))
        self.held_bytes += len(payload)
        self._write(JournalRecordKind.ENTRY, index, term, payload)
        self._unsynced.append((self.next_ordinal - 1, index, term))

    def cut_behind(self, index: int) -> None:
        """Drop every entry after `index`, which must be held."""
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
        """Drop all entries; the log continues after a durable snapshot of (index, term)."""
        self.entries[:] = [(b"", index, term)]
        self.held_bytes = 0
        self._unsynced.clear()
        self.durable_index = index
        self._begin_segment(JournalRecordKind.RESET)

    def drop_prefix(self, index: int) -> Removal | None:
        """Drop the entries up to `index`, which a durable snapshot covers. Return the files to remove, or None."""
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
        """Write a MARK record, which states that all records before it are durable, if that is so. Later damage can
        then be distinguished from a torn tail."""
        if self.durable_ordinal == self.next_ordinal - 1 and self._last_kind is not JournalRecordKind.MARK:
            self._write(JournalRecordKind.MARK, self.last_index, self.last_term, b"")

    def take_ticket(self) -> JournalTicket:
        """Return the pending writes as a ticket. Only one ticket may be out at a time."""
        if self._ticket is not None:
            raise RuntimeError("the journal is being synced")
        self._ticket = JournalTicket(self.disk, self.next_ordinal - 1, self._unwritten)
        self._unwritten = []
        self._ticket_bytes = self.unsynced_bytes
        return self._ticket

    def complete(self, ticket: JournalTicket) -> None:
        """Count the writes of a ticket that has run as durable, as far as they are still in the log."""
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
        """Take, run and complete a ticket synchronously."""
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
    """Open the journal in `disk`, new or recovered; all its entries are durable. Blocks.

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
