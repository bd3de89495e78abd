"""Which batches of a partition count in a micro-batch, told from what a raw read of the log brings. Pure.

A micro-batch has a window of offsets in each partition, from where the last one ended to where this one ends, both at a
cut. Of a partition it contains

- the records in no transaction that lie in the window, and
- the records of every transaction whose COMMIT marker lies in the window, wherever they stand.

What was aborted, has ended before the window, or is open at its end, it does not contain. So each record is in one
micro-batch at most; and as the markers of a transaction lie on the same side of every cut in all partitions, it is in
one as a whole. (What a marker ends is all that its producer has written since the marker before.)

A slice is a part of what has to be read for this. Batches are given out in the order of their offsets; one whose
transaction has no marker yet holds up those behind it. Once so many bytes wait as may, what follows is read for its
markers alone, and again later for its records: so the memory is bounded whatever stays open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ...protocol.record import ControlType, read_control_record
from ...protocol.record_batch import BatchHeader


class Window(NamedTuple):
    """Of a micro-batch in one partition: from `start` to below `end`."""

    start: int
    end: int


class Step(Enum):
    """What the filter needs next."""

    READ = "the batches from `position` on"
    SCAN = "the headers and markers from `scanned_to` on"
    NOTHING = "all has been said"


class Counted(NamedTuple):
    """A batch of which records count: those from `first_offset` on."""

    header: BatchHeader
    batch: bytes | memoryview
    first_offset: int


@dataclass(slots=True)
class _Markers:
    """Of one producer, as far as they are known. `offsets` rise."""

    offsets: list[int] = field(default_factory=list)
    commits: list[bool] = field(default_factory=list)


class CutFilter:
    """For one slice, read from its beginning: `read` or `scan` what `step` asks for, and `take` what counts."""

    def __init__(self, first: int, below: int, window: Window, waiting_bytes_max: int) -> None:
        """The slice is what lies from offset `first` to below `below`, which is not above the window's end."""
        self._first = first
        self._below = below
        self._window = window
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting: deque[tuple[BatchHeader, bytes | memoryview]] = deque()
        self._waiting_bytes = 0
        self._markers: defaultdict[int, _Markers] = defaultdict(_Markers)
        self.position = first
        """All batches before have been read."""
        self.scanned_to = first
        """All markers before are known. Not below `position`."""

    @property
    def step(self) -> Step:
        """What is to come next, once all was taken that can be."""
        if self._waiting and self._waiting_bytes > self._waiting_bytes_max:
            return Step.SCAN
        if self.position < self._below:
            return Step.READ
        return Step.SCAN if self._waiting else Step.NOTHING

    def read(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        """The next batch, from `position` on. Raises KafkaError for a damaged marker."""
        if header.base_offset >= self._below:
            self.passed(header.base_offset)
            return
        self._note(header, batch)
        if not header.is_control and header.record_count:
            # What waits for long is copied: a view would keep all that was fetched with it.
            self._waiting.append((header, bytes(batch) if self._waiting else batch))
            self._waiting_bytes += len(batch)
        self.position = header.next_offset

    def scan(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        """The next batch, from `scanned_to` on, for what it says of transactions. Raises KafkaError."""
        self._note(header, batch)

    def passed(self, offset: int) -> None:
        """There is nothing before this offset that was not read; compaction leaves gaps."""
        self.position = max(self.position, offset)
        self.scanned_to = max(self.scanned_to, offset)

    def take(self) -> list[Counted]:
        """What counts, in the order of offsets, up to the first batch of which that is not known yet."""
        counted: list[Counted] = []
        while self._waiting:
            header, batch = self._waiting[0]
            first = self._first
            if header.is_transactional:
                verdict = self._counts(header)
                if verdict is None:
                    break
            else:
                first = max(first, self._window.start)
                verdict = header.next_offset > first
            self._waiting.popleft()
            self._waiting_bytes -= len(batch)
            if verdict:
                counted.append(Counted(header, batch, first))
        return counted

    def _note(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        if header.base_offset >= self.scanned_to and header.is_control:
            marker = read_control_record(batch)
            if marker is not None and header.base_offset < self._window.end:
                known = self._markers[header.producer_id]
                known.offsets.append(header.base_offset)
                known.commits.append(marker.type is ControlType.COMMIT)
        self.scanned_to = max(self.scanned_to, header.next_offset)

    def _counts(self, header: BatchHeader) -> bool | None:
        """Whether its transaction is committed within the window; None while that is not known."""
        known = self._markers.get(header.producer_id)
        if known is not None:
            at = bisect_right(known.offsets, header.last_offset)
            if at < len(known.offsets):
                return known.commits[at] and known.offsets[at] >= self._window.start
        return None if self.scanned_to < self._window.end else False
