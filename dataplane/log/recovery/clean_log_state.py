"""The state of one log at a clean stop, so that the next start need not read it from the log's files.

It holds only for the very files of the stop. A change, replacement, addition or removal of a file gives another
fingerprint, and the log is then opened from its files.
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
    """The file names in a log's folder, and a digest that shows whether any of the files has changed."""

    names: tuple[str, ...]
    digest: bytes

    @classmethod
    def of(cls, folder: str, names: Iterable[str]) -> Fingerprint:
        """Return the fingerprint of a folder with files of these names: sizes, inodes and change times (ctime), which
        programs cannot set. Raises OSError."""
        names = tuple(names)
        status = os.stat(folder)
        found = [pack("<QQ", status.st_ino, status.st_ctime_ns)]
        for name in names:
            status = os.stat(f"{folder}/{name}")
            found.append(pack("<QQQ", status.st_ino, status.st_ctime_ns, status.st_size))
        return cls(names, blake2b(b"".join(found), digest_size=_DIGEST_BYTES).digest())

    def fits(self, folder: str) -> bool:
        """Return whether the folder is unchanged. A folder itself changes when a name in it does."""
        try:
            return Fingerprint.of(folder, self.names) == self
        except OSError:
            return False


class KnownSegment(NamedTuple):
    """The sizes of a segment at a clean stop: bytes of its log file, and numbers of entries in its index files."""

    base_offset: int
    size: int
    offset_entries: int
    time_entries: int
    transaction_entries: int


class CleanLogState(NamedTuple):
    """The state of a log at a clean stop, as opening the log from its files would find it. `topic_id` is None if the
    folder does not contain it."""

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
    """The last of four attributes of the last segment: `first_timestamp`, `max_timestamp`, `max_timestamp_offset` and
    this."""
    producers: bytes
    """A producer snapshot; empty if there are no producers."""

    def open_segments(self, directory: Path, files: FileCache, now_ms: int) -> list[Segment]:
        """Return the segments as they are in the files. The last one is not active yet."""
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
        """Return the producer state at the end of the log."""
        if not self.producers:
            return ProducerStates()
        return ending_at(decode_snapshot(self.producers), self.end_offset)
