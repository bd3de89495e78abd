"""Decides which batches of a partition belong to a micro-batch, from a raw read of the log. Pure.

A micro-batch is a micro-batch of Spark's source, or a round of a lake table. It has a window of offsets in each
partition: from the end of the previous micro-batch to its own end, both at a cut. In a partition it contains

- the records outside of transactions that lie in the window, and
- the records of every transaction whose COMMIT marker lies in the window, at any offset.

It contains no transaction that was aborted, has ended before the window, or is open at its end. So each record is in at
most one micro-batch. As the markers of a transaction lie on the same side of every cut in all partitions, each
transaction is in one micro-batch as a whole. (A marker ends all that its producer has written since its previous
marker.)

A slice is a part of the offsets that have to be read for this. Batches are returned in the order of their offsets; a
batch whose marker is not known yet holds up later batches. Once the bytes of waiting batches exceed a limit, the filter
reads ahead for markers only, and reads the same offsets again later for their records. So memory is bounded however
long a transaction stays open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ...protocol.records.record import ControlType, read_control_record
from ...protocol.records.record_batch import BatchHeader


class Window(NamedTuple):
    """A micro-batch's range of offsets in a partition: from `start` to below `end`."""

    start: int
    end: int


class Step(Enum):
    """The next input that the cut filter needs: whole batches, only their headers and markers, or nothing."""

    READ = "the batches from `position` on"
    SCAN = "the headers and markers from `scanned_to` on"
    NOTHING = "all has been said"


class Counted(NamedTuple):
    """A batch with records that belong to the micro-batch: the records from `first_offset` on."""

    header: BatchHeader
    batch: bytes | memoryview
    first_offset: int


@dataclass(slots=True)
class _Markers:
    """The known transaction markers of a producer. `offsets` ascend."""

    offsets: list[int] = field(default_factory=list)
    commits: list[bool] = field(default_factory=list)


class CutFilter:
    """A filter of the batches in one slice (a range of offsets), from its beginning on: `read` or `scan` as `step`
    says, and `take` the batches that belong to the micro-batch."""

    def __init__(self, first: int, below: int, window: Window, waiting_bytes_max: int) -> None:
        """Make a filter for the offsets from `first` to below `below`, which is not above the window's end."""
        self._first = first
        self._below = below
        self._window = window
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting: deque[tuple[BatchHeader, bytes | memoryview]] = deque()
        self._waiting_bytes = 0
        self._markers: defaultdict[int, _Markers] = defaultdict(_Markers)
        self.position = first
        """Offset before which all batches have been read."""
        self.scanned_to = first
        """Offset before which all markers are known. Not below `position`."""

    @property
    def step(self) -> Step:
        """The input to pass next, after all available batches were taken."""
        if self._waiting and self._waiting_bytes > self._waiting_bytes_max:
            return Step.SCAN
        if self.position < self._below:
            return Step.READ
        return Step.SCAN if self._waiting else Step.NOTHING

    def read(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        """Accept the next batch from `position` on. Raises KafkaError for a damaged marker."""
        if header.base_offset >= self._below:
            self.passed(header.base_offset)
            return
        self._note(header, batch)
        if not header.is_control and header.record_count:
            # Copy a batch that waits for long: a view would keep the whole fetched chunk in memory.
            self._waiting.append((header, bytes(batch) if self._waiting else batch))
            self._waiting_bytes += len(batch)
        self.position = header.next_offset

    def scan(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        """Accept the next batch from `scanned_to` on, for its markers only. Raises KafkaError for a damaged marker."""
        self._note(header, batch)

    def passed(self, offset: int) -> None:
        """Note that no unread batch lies before this offset; compaction leaves gaps."""
        self.position = max(self.position, offset)
        self.scanned_to = max(self.scanned_to, offset)

    def take(self) -> list[Counted]:
        """Return the batches that belong to the micro-batch, in the order of offsets, up to the first undecided
        batch."""
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
        """Return whether the batch's transaction is committed within the window; None while this is unknown."""
        known = self._markers.get(header.producer_id)
        if known is not None:
            at = bisect_right(known.offsets, header.last_offset)
            if at < len(known.offsets):
                return known.commits[at] and known.offsets[at] >= self._window.start
        return None if self.scanned_to < self._window.end else False
