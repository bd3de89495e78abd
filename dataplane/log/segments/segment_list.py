"""The segments of one log in order. It finds the segment of an offset, and the positions where batches start
and end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from ....protocol.records.record_batch import HEADER_SIZE
from ..durable_files import shorten
from ..storage_errors import BrokenBatch, damage, disk_error
from .aborted_transaction import AbortedTransaction
from .descriptors import FileCache, SharedDescriptor
from .gaps import forget_gaps, mark_gaps, note_gap
from .log_slice import LogSlice
from .segment import Segment

_RECENT_BOUNDARIES = 64
_RECENT_READERS = 256
RESTS = -1
"""The value of `SegmentList.fd` without a descriptor."""


class SegmentList:
    """One or more segments, rising; the last is active. The active segment is open while records arrive, and closed
    otherwise, since many partitions are idle, and descriptors are few.

    Positions of recent batch boundaries in the active segment are remembered, since readers at the tail ask for exactly
    these. So are the positions where recent reads stopped, since other readers continue from there.
    """

    __slots__ = (
        "_aborting",
        "_bases",
        "_boundaries",
        "_directory",
        "_files",
        "_segments",
        "_stops",
        "active",
        "changed",
        "doomed",
        "fd",
        "has_gaps",
    )

    def __init__(
        self,
        directory: Path,
        files: FileCache,
        segments: Sequence[Segment],
        log_end_offset: int,
        *,
        has_gaps: bool = False,
        changed: bool = True,
        doomed: Iterable[Path] = (),
    ) -> None:
        self._directory = directory
        self._files = files
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self._aborting: list[Segment] | None = None
        # The segments with an aborted transaction; None if they must be searched again.
        self._boundaries: dict[int, int] = {}
        self._stops: dict[int, tuple[Segment, int]] = {}
        self.active = self._segments[-1]
        self.fd = RESTS
        """Descriptor of the active segment, for appending; `RESTS` until `wake` is called."""
        self.active.close()
        self.active.synced = False
        self.changed = changed
        """True if files were created or renamed since the directory was last flushed."""
        self.has_gaps = has_gaps
        """True if there may be gaps between the offsets of batches."""
        self.doomed = list(doomed)
        """Files that were renamed for deletion."""
        self.note_boundary(log_end_offset, self.active.size)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def copy(self) -> list[Segment]:
        return list(self._segments)

    def first(self, count: int) -> list[Segment]:
        """Return the `count` oldest segments of the log."""
        return self._segments[:count]

    @property
    def first_base(self) -> int:
        return self._bases[0]

    def check(self, log_end_offset: int) -> None:
        """Raise AssertionError if these cannot be the segments of a log that ends at `log_end_offset`."""
        bases = self._bases
        if bases != [segment.base_offset for segment in self._segments]:
            raise AssertionError(f"{self._directory}: the bases {bases} are not those of the segments")
        if any(base >= following for base, following in pairwise(bases)):
            raise AssertionError(f"{self._directory}: the bases {bases} do not rise")
        if self.active is not self._segments[-1]:
            raise AssertionError(f"{self._directory}: the active segment is not the last")
        if self.active.is_open != (self.fd != RESTS):
            raise AssertionError(f"{self._directory}: {self.fd} is not the descriptor of the active segment")
        if any(segment.is_open for segment in self._segments[:-1]):
            raise AssertionError(f"{self._directory}: more than the last segment is open for appending")
        if bases[-1] > log_end_offset:
            raise AssertionError(f"{self._directory}: {bases[-1]} begins past the log end {log_end_offset}")
        if self._boundaries.get(log_end_offset) != self.active.size:
            raise AssertionError(
                f"{self._directory}: the log end {log_end_offset} is not at {self.active.size}, where the last "
                f"segment ends, but at {self._boundaries.get(log_end_offset)}"
            )
        for offset, (segment, position) in self._stops.items():
            if segment not in self._segments or not 0 <= position <= segment.size:
                raise AssertionError(
                    f"{self._directory}: offset {offset} is remembered at a place that is gone"
                )

    # Growing

    def wake(self) -> int:
        """Open the active segment for appending, and return its descriptor. Another list may rest for that.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._grow(self.active, self._files.opening(self.active.open))
        return self.fd

    def rest(self) -> None:
        """Close the active segment's descriptor until the next append."""
        self.active.close()
        self.fd = RESTS

    def _grow(self, segment: Segment, descriptor: SharedDescriptor) -> None:
        """Make this open segment the active one, to which appends go from now on."""
        self.active, self.fd = segment, descriptor.fd
        self._files.note_appender(self)

    def note_boundary(self, offset: int, position: int) -> None:
        """Note that a batch ended at `position` of the active segment, and that the next batch will start with
        `offset`."""
        boundaries = self._boundaries
        if len(boundaries) >= _RECENT_BOUNDARIES:
            del boundaries[next(iter(boundaries))]
        boundaries[offset] = position

    def start_segment(self, base_offset: int, now_ms: int) -> None:
        """Continue in a new, empty segment. Raises KafkaError: KAFKA_STORAGE_ERROR; the active segment stays."""
        fresh = Segment(self._directory, base_offset, self._files, now_ms=now_ms)
        descriptor = self._files.opening(partial(fresh.open, creates=True))
        try:
            shorten(descriptor.fd, 0)
        except OSError as error:
            fresh.close()
            raise disk_error("create", fresh.path, error) from error
        self.changed = True
        self.active.close()
        self._segments.append(fresh)
        self._bases.append(base_offset)
        self._grow(fresh, descriptor)
        self._restart_boundaries(base_offset)

    def note_gaps(self) -> None:
        """Note durably, for a restart, that there are about to be gaps between the offsets of batches.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        if not self.has_gaps:
            mark_gaps(self._directory)
            self.has_gaps = True
            self.changed = True

    def note_gap(self, end_offset: int, base_offset: int) -> None:
        """Note that a segment is about to be started at `base_offset`, after a gap from `end_offset`. After a crash the
        log ends with that segment if it has all records up to `end_offset`, and none after it.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        note_gap(self._directory, end_offset, base_offset)
        self.has_gaps = True

    def forget_gaps(self, offset: int) -> None:
        """Drop the notes of gaps after `offset`, since all records there are about to be removed. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        if self.has_gaps:
            forget_gaps(self._directory, offset)

    def _restart_boundaries(self, offset: int) -> None:
        self._boundaries.clear()
        self._stops.clear()
        self.note_boundary(offset, self.active.size)

    # Reading

    def slice(
        self,
        offset: int,
        upto: int,
        end_offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        contiguous: bool = False,
    ) -> LogSlice | None:
        """Return whole batches from the batch that contains `offset`, all below `upto`; None if there are none.

        Raises KafkaError: KAFKA_STORAGE_ERROR; among others if a `contiguous` log, which has no gaps, has no batch that
        contains the offset.
        """
        segment, first_offset = self.active, offset
        start = self._boundaries.get(offset)
        if start is None:
            stopped = self._stops.get(offset)
            if stopped is not None:
                segment, start = stopped
            else:
                located = self._locate(offset)
                if located is None:
                    return None
                segment, start, first_offset = located
                if contiguous and first_offset > offset:
                    reason = f"no batch holds offset {offset}, the next begins at {first_offset}"
                    raise damage(segment.path, start, reason) from BrokenBatch(start, reason)
        stop = self._stop_position(segment, upto, end_offset)
        if stop - start > max_bytes:
            limit, next_offset = segment.last_boundary(start, start + max_bytes)
            if limit > start:
                stop = limit
                if next_offset >= 0:
                    self._note_stop(next_offset, segment, limit)
            else:
                stop = self._end_of_batch(segment, start) if at_least_one else start
        if stop <= start:
            return None
        return LogSlice(segment.descriptor(), start, stop - start, first_offset)

    def _note_stop(self, offset: int, segment: Segment, position: int) -> None:
        """Note that a read stopped where the batch with `offset` starts."""
        stops = self._stops
        if len(stops) >= _RECENT_READERS:
            del stops[next(iter(stops))]
        stops[offset] = segment, position

    def _locate(self, offset: int) -> tuple[Segment, int, int] | None:
        """Return segment, position and base offset of the first batch that ends at or after `offset`."""
        number = max(0, bisect_right(self._bases, offset) - 1)
        for segment in self._segments[number:]:
            found = segment.find(offset)
            if found is not None:
                return segment, found[0], found[1].base_offset
        return None

    def _stop_position(self, segment: Segment, upto: int, end_offset: int) -> int:
        """Return the position in `segment` where the last whole batch below `upto` ends."""
        if segment is self.active:
            if upto == end_offset:
                return segment.size
            position = self._boundaries.get(upto)
            if position is not None:
                return position
        elif upto >= self._bases[bisect_right(self._bases, segment.base_offset)]:
            return segment.size
        found = segment.find(upto)
        return segment.size if found is None else found[0]

    def _end_of_batch(self, segment: Segment, position: int) -> int:
        try:
            _, header = next(segment.walk(position, segment.base_offset, HEADER_SIZE))
        except BrokenBatch as broken:
            raise damage(segment.path, broken.position, broken.reason) from broken
        return position + header.size

    def note_abort(self, aborted: AbortedTransaction) -> None:
        """Note that the marker of an aborted transaction was appended."""
        index = self.active.transaction_index
        if not len(index):
            self._aborting = None
        index.append(aborted)

    @property
    def aborting(self) -> Sequence[Segment]:
        """The segments whose transaction index has an aborted transaction, rising."""
        aborting = self._aborting
        if aborting is None:
            aborting = self._aborting = [each for each in self._segments if len(each.transaction_index)]
        return aborting

    def bound_of(self, records: LogSlice, upto: int) -> int:
        """Return an offset above all of `records`, just read from below `upto`: at most `upto`, and not far above the
        records.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        number = bisect_right(self._bases, records.first_offset)
        bound = self._segments[number - 1].offset_index.last_offset_from(records.position + records.size)
        if bound is None:
            bound = self._bases[number] if number < len(self._bases) else upto
        return min(bound, upto)

    def aborted(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that reach from below `upper_bound` to `fetch_offset` or further.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        aborting = self.aborting
        found: list[AbortedTransaction] = []
        if aborting:
            base = self._bases[max(0, bisect_right(self._bases, fetch_offset) - 1)]
            first = bisect_left(aborting, base, key=lambda segment: segment.base_offset)
            for segment in aborting[first:]:
                if segment.transaction_index.collect(fetch_offset, upper_bound, found):
                    break
        return found

    # Cutting

    def find_cut(self, offset: int) -> tuple[Segment, int, int]:
        """Return the cut after which nothing from `offset` on remains: segment, position, and the new log end."""
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        found = segment.find(offset)
        if found is None:
            return segment, segment.size, offset
        # With gaps between offsets, the batch may start after the cut.
        return segment, found[0], min(offset, found[1].base_offset)

    def is_empty_from(self, offset: int) -> bool:
        """Return whether no batch contains `offset` or begins after it."""
        at = bisect_right(self._bases, offset) - 1
        has_nothing_there = at < 0 or self._segments[at].find(offset) is None
        return has_nothing_there and not any(segment.size for segment in self._segments[at + 1 :])

    def cut(self, segment: Segment, position: int, end_offset: int) -> None:
        """Make `segment` the active one and end it at byte `position`; later segments are renamed for deletion. Raises
        KafkaError: KAFKA_STORAGE_ERROR."""
        while self._segments[-1] is not segment:
            self.doomed += self._segments[-1].doom()
            self._segments.pop()
            self._bases.pop()
        self.changed = True
        self._aborting = None
        self._grow(segment, self._files.opening(segment.open))
        segment.truncate(position, end_offset)
        try:
            segment.load_end()
        except BrokenBatch as broken:
            raise damage(segment.path, broken.position, broken.reason) from broken
        self._restart_boundaries(end_offset)

    def drop_first(self, upto_offset: int, at_most: int) -> int:
        """Drop at most `at_most` of the first inactive segments that lie wholly below `upto_offset`. Returns their
        number."""
        dropped = 0
        while len(self._segments) > 1 and self._bases[1] <= upto_offset and dropped < at_most:
            self.doomed += self._segments[0].doom()
            del self._segments[0], self._bases[0]
            dropped += 1
        if dropped:
            self._stops.clear()
            self._aborting = None
        return dropped

    def check_replaceable(self, old: Sequence[Segment]) -> None:
        """Raise ValueError unless `old` are adjoining inactive segments of this list, in order."""
        number = self._segments.index(old[0]) if old and old[0] in self._segments else -1
        if number < 0 or self._segments[number : number + len(old)] != list(old) or old[-1] is self.active:
            raise ValueError(f"these are not adjoining inactive segments of {self._directory} any more")

    def replace(self, old: Sequence[Segment], bases: Sequence[int], put: Callable[[int], None]) -> None:
        """Drop `old` and take the files at `bases` instead; `put(base)` gives these files their names, once the old
        files are renamed.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        number = self._segments.index(old[0])
        self.changed = True
        self._aborting = None
        for segment in old:
            self.doomed += segment.doom()
        fresh = []
        for base in bases:
            put(base)
            fresh.append(Segment.adopt(self._directory, base, self._files))
        self._segments[number : number + len(old)] = fresh
        self._bases[number : number + len(old)] = bases
        self._stops.clear()

    def replace_all(self, base_offset: int, now_ms: int) -> None:
        """Drop every segment and continue in an empty one. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        for segment in reversed(self._segments):
            self.doomed += segment.doom()
        self._segments.clear()
        self._bases.clear()
        self._aborting = None
        self.start_segment(base_offset, now_ms)

    def close(self) -> None:
        """Release all descriptors and maps of the log's segments."""
        self.fd = RESTS
        self._files.forget_appender(self)
        for segment in self._segments:
            segment.close()
            for path in segment.files:
                self._files.forget(path)
