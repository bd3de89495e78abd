"""Files and folders of a disk: the state for readers, the durable state, and the pending changes."""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .open_files import Description

SECTOR_BYTES = 512
"""Size in bytes of the unit that a disk writes atomically."""

_PENDING_BYTES_MAX = 4 << 20
_PENDING_NAMES_MAX = 1000
"""Number of pending names beyond which the kernel writes them back itself."""


@dataclass(slots=True)
class Change:
    """A write to a file; without data a truncation (or an extension by zeros) to `position`."""

    sequence: int
    position: int
    data: bytes | None


class Inode(ABC):
    """A file or a folder, independent of its names."""

    def __init__(self, number: int, mode: int, now_ns: int) -> None:
        self.number = number
        self.mode = mode
        self.modified_ns = now_ns
        self.links = 0
        # : open descriptions
        self.opened = 0
        #: who holds a lock on it (`flock`), and whether that is a single holder
        self.lockers: list[Description] = []
        self.locked_exclusively = False
        #: number of the process with a record lock (`lockf`) on the whole
        self.record_locker: int | None = None
        # : a sync of the whole disk failed to make it durable, and no sync of the file alone has reported that
        self.has_untold_failure = False

    @property
    @abstractmethod
    def is_pending(self) -> bool:
        """True if a change is not durable yet."""

    @abstractmethod
    def settle(self, sequence: int) -> None:
        """Make the changes up to `sequence` durable."""

    @abstractmethod
    def forget(self, sequence: int) -> None:
        """Note that the sync of the changes up to `sequence` failed."""

    @abstractmethod
    def lose_power(self, random: Random, counts: Counter[str]) -> None:
        """Make all, some or none of the pending changes durable, and drop the rest."""

    @abstractmethod
    def lose_all_pending(self, counts: Counter[str]) -> None:
        """Drop all pending changes."""


class File(Inode):
    """The bytes of a file: for readers, on the platters, and pending."""

    def __init__(self, number: int, mode: int, now_ns: int) -> None:
        super().__init__(number, stat.S_IFREG | mode, now_ns)
        self.current = bytearray()
        self.durable = bytearray()
        self.pending: list[Change] = []
        self._pending_bytes = 0
        self._forgotten = False

    @property
    def is_pending(self) -> bool:
        return bool(self.pending)

    def change(self, change: Change) -> None:
        apply(self.current, change)
        self.pending.append(change)
        if change.data is not None:
            self._pending_bytes += len(change.data)
            if self._pending_bytes > _PENDING_BYTES_MAX:
                self.settle(change.sequence)

    def settle(self, sequence: int) -> None:
        for change in self._take(sequence):
            apply(self.durable, change)

    def forget(self, sequence: int) -> None:
        self._take(sequence)  # no one writes it again, though it can still be read
        self._forgotten = True

    def refuse(self, position: int) -> None:
        """Make all changes durable but the sector at `position`, which the platters refuse. It stays readable until the
        cache is dropped."""
        if self.pending:
            self.settle(self.pending[-1].sequence)
        first = position - position % SECTOR_BYTES
        behind = min(first + SECTOR_BYTES, len(self.durable))
        self.durable[first:behind] = bytes(behind - first)
        self._forgotten = self.has_untold_failure = True

    def drop_cache(self) -> None:
        """Read data that is not pending from the platters again."""
        if self._forgotten:
            self._forgotten = False
            self.current = bytearray(self.durable)
            for change in self.pending:
                apply(self.current, change)

    def lose_power(self, random: Random, counts: Counter[str]) -> None:
        pending = self._take(self.pending[-1].sequence) if self.pending else []
        if random.random() < 0.5:
            kept = random.randint(0, len(pending))
            counts["lost writes"] += len(pending) - kept
            for number, change in enumerate(pending[:kept]):
                torn = number == kept - 1 and random.random() < 0.5
                self._survive(change, torn, random, counts)
        else:
            lost_before = False
            for change in pending:
                fate = random.random()
                if fate < 0.4:
                    counts["lost writes"] += 1
                    lost_before = True
                else:
                    counts["reordered writes"] += lost_before
                    self._survive(change, fate < 0.7, random, counts)
        self.current = bytearray(self.durable)

    def lose_all_pending(self, counts: Counter[str]) -> None:
        counts["lost writes"] += len(self.pending)
        self.pending.clear()
        self._pending_bytes = 0
        self.current = bytearray(self.durable)

    def _take(self, sequence: int) -> list[Change]:
        pending = self.pending
        count = len(pending)
        while count and pending[count - 1].sequence > sequence:
            count -= 1
        taken, self.pending = pending[:count], pending[count:]
        self._pending_bytes = sum(len(change.data) for change in self.pending if change.data is not None)
        return taken

    def _survive(self, change: Change, torn: bool, random: Random, counts: Counter[str]) -> None:
        data = change.data
        if not torn or data is None:
            apply(self.durable, change)
            return
        sectors = list(_sectors(change.position, len(data)))
        if random.random() < 0.5:
            sectors = sectors[: random.randrange(len(sectors))]
        else:
            sectors = [sector for sector in sectors if random.random() < 0.5]
        for first, behind in sectors:
            piece = data[first - change.position : behind - change.position]
            apply(self.durable, Change(change.sequence, first, piece))
        counts["torn writes" if sectors else "lost writes"] += 1


def _sectors(position: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the pieces of a byte range that become durable separately."""
    at, end = position, position + size
    while at < end:
        behind = min(end, at - at % SECTOR_BYTES + SECTOR_BYTES)
        yield at, behind
        at = behind


def apply(content: bytearray, change: Change) -> None:
    """Apply a file's change to a content."""
    position, data, size = change.position, change.data, len(content)
    if data is None and position < size:
        del content[position:]
        return
    if position > size:
        content.extend(bytes(position - size))
    if data is not None:
        content[position : position + len(data)] = data


class Folder(Inode):
    """The names of a folder: for readers, on the platters, and pending."""

    def __init__(self, number: int, mode: int, now_ns: int) -> None:
        super().__init__(number, stat.S_IFDIR | mode, now_ns)
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        #: the names that changed at once, and what they stand for then
        self.pending: deque[tuple[int, dict[str, Inode | None]]] = deque()

    @property
    def is_pending(self) -> bool:
        return False  # names stay on their way

    def change(self, sequence: int, names: dict[str, Inode | None]) -> None:
        self.pending.append((sequence, names))
        _rename(self.names, names)
        if len(self.pending) > _PENDING_NAMES_MAX:
            self.settle(sequence)

    def settle(self, sequence: int) -> None:
        while self.pending and self.pending[0][0] <= sequence:
            _rename(self.durable_names, self.pending.popleft()[1])

    def forget(self, sequence: int) -> None:
        pass  # names stay pending until a later sync

    def lose_power(self, random: Random, counts: Counter[str]) -> None:
        kept = random.randint(0, len(self.pending))
        counts["lost names"] += len(self.pending) - kept
        for _, names in islice(self.pending, kept):
            _rename(self.durable_names, names)
        self.pending.clear()
        self.names = dict(self.durable_names)

    def lose_all_pending(self, counts: Counter[str]) -> None:
        counts["lost names"] += len(self.pending)
        self.pending.clear()
        self.names = dict(self.durable_names)

    def ever_named(self) -> Iterator[Inode]:
        """Yield the inodes of all current, durable and pending names."""
        yield from self.names.values()
        yield from self.durable_names.values()
        for _, names in self.pending:
            yield from (inode for inode in names.values() if inode is not None)


def _rename(names: dict[str, Inode], changes: dict[str, Inode | None]) -> None:
    for name, inode in changes.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
