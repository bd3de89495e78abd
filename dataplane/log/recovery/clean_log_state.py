"""What a clean stop knows of one log, so that the next start need not read it again from the log's files.

It holds for the very files that were there at the stop. Whoever has changed, replaced, added or removed one since has
left another fingerprint, and the log is opened from its files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, NamedTuple

from ..producers.producer_loading import ending_at
from ..producers.producer_snapshot import decode_snapshot
from ..producers.producer_state import ProducerStates
from ..segments.segment import Segment

if TYPE_CHECKING:
    from ..segments.descriptors import FileCache

_DIGEST_BYTES = 8


class Fingerprint(NamedTuple):
    """Which files a log's folder has, and what tells that none of them was touched since."""

    names: tuple[str, ...]
    digest: bytes

    @classmethod
    def of(cls, folder: str, names: Iterable[str]) -> Fingerprint:
        """Of a folder that has files of these names: sizes, inodes and the times of their last change, which nobody
        can set. Raises OSError."""
        names = tuple(names)
        status = os.stat(folder)
        found = [pack("<QQ", status.st_ino, status.st_ctime_ns)]
        for name in names:
            status = os.stat(f"{folder}/{name}")
            found.append(pack("<QQQ", status.st_ino, status.st_ctime_ns, status.st_size))
        return cls(names, blake2b(b"".join(found), digest_size=_DIGEST_BYTES).digest())

    def fits(self, folder: str) -> bool:
        """Whether the folder is as it was. A folder itself changes when a name in it does."""
        try:
            return Fingerprint.of(folder, self.names) == self
        except OSError:
            return False


class KnownSegment(NamedTuple):
    """One segment: entries are those in the files of its indexes."""

    base_offset: int
    size: int
    offset_entries: int
    time_entries: int
    transaction_entries: int


class CleanLogState(NamedTuple):
    """A log, as opening it from its files would find it. `topic_id`: whose it is, None if its folder does not say."""

    topic_id: bytes | None
    fingerprint: Fingerprint
    end_offset: int
    has_gaps: bool
    epochs: Sequence[tuple[int, int]]
    segments: Sequence[KnownSegment]
    first_timestamp: int | None
    max_timestamp: int
    max_timestamp_offset: int
    since_index_entry: int
    """These four of the last segment."""
    producers: bytes
    """A snapshot; empty if there are none."""

    def open_segments(self, directory: Path, files: FileCache, now_ms: int) -> list[Segment]:
        """As they are in the files. The last one is not active yet."""
        segments = []
        for known in self.segments:
            segment = Segment(directory, known.base_offset, files, size=known.size, now_ms=now_ms)
            segment.offset_index.adopt(known.offset_entries)
            segment.time_index.adopt(known.time_entries)
            segment.transaction_index.adopt(known.transaction_entries)
            segment.synced = True
            segments.append(segment)
        last = segments[-1]
        last.synced = False
        last.first_timestamp = self.first_timestamp
        last.max_timestamp, last.max_timestamp_offset = self.max_timestamp, self.max_timestamp_offset
        last.since_index_entry = self.since_index_entry
        return segments

    def open_producers(self) -> ProducerStates:
        """Those at the end of the log."""
        if not self.producers:
            return ProducerStates()
        return ending_at(decode_snapshot(self.producers), self.end_offset)
