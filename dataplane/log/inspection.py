"""Inspection of a log's files from outside: their content, and whether they are consistent. Nothing is changed.

It serves tools that run beside a broker or on a copy of its files; the broker itself opens logs by `recovery`.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record import decode_records
from ...protocol.records.record_batch import BatchHeader, check_integrity
from .checkpoints import LEADER_EPOCHS, read_leader_epochs, read_topic_id
from .producers.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from .producers.producer_snapshot import read_snapshot
from .segments.batch_walk import walk_file
from .segments.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from .segments.transaction_index import decode_transactions, read_if_there
from .storage_errors import BrokenBatch

_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault in a file, with its byte position if there is one."""

    path: Path
    what: str
    position: int | None = None


@dataclass(slots=True)
class SegmentContents:
    """The result of a scan of a segment: the positions of batches, their offsets and timestamps."""

    base_offset: int
    next_offset: int
    records: int = 0
    positions: dict[int, BatchHeader] = field(default_factory=dict)
    last_offsets: list[int] = field(default_factory=list)
    highest_timestamps: list[int] = field(default_factory=list)
    """The largest timestamp up to and including each batch, in ms."""
    latest_known_ms: int = -1
    """The largest timestamp of all batches, including bounds for batches whose headers have none."""
    markers: dict[int, int] = field(default_factory=dict)
    """The producer id of each marker by offset."""

    def note(self, position: int, header: BatchHeader) -> None:
        """Add a batch."""
        self.positions[position] = header
        self.last_offsets.append(header.last_offset)
        if header.is_control:
            self.markers[header.last_offset] = header.producer_id
        before = self.highest_timestamps[-1] if self.highest_timestamps else -1
        self.highest_timestamps.append(max(before, header.max_timestamp))
        self.latest_known_ms = max(self.latest_known_ms, header.latest_known_ms)
        self.next_offset = header.next_offset
        self.records += header.record_count

    def highest_timestamp_below(self, offset: int) -> int:
        """Return the largest timestamp of the batches that end at or below `offset`; -1 if there are none."""
        count = bisect_right(self.last_offsets, offset)
        return self.highest_timestamps[count - 1] if count else -1


def base_offset_of(path: Path) -> int:
    """Return the offset in the name of a segment's file. Raises KafkaError for other names."""
    if not path.stem.isdigit():
        code = ErrorCode.INVALID_REQUEST
        raise KafkaError(code, f"{path} is not named as a segment: 20 digits before {path.suffix}")
    return int(path.stem)


def walk_segment(path: Path) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, bytes) of each batch of a `.log` file; a batch's bytes are valid until the next one.

    Raises BrokenBatch at bytes that are not a batch that continues the log; CRCs are not checked. Raises OSError if the
    file cannot be read.
    """
    with _mapped(path) as (fd, data):
        size = len(data)
        for position, header in walk_file(fd, 0, size, next_offset=base_offset_of(path)):
            with memoryview(data)[position : position + header.size] as batch:
                yield position, header, batch


@contextmanager
def _mapped(path: Path) -> Iterator[tuple[int, mmap.mmap | bytes]]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size:
            with mmap.mmap(fd, size, access=mmap.ACCESS_READ) as data:
                yield fd, data
        else:
            yield fd, b""
    finally:
        os.close(fd)


def index_entries(path: Path) -> list[tuple[int, int]]:
    """Return the entries of an index: (offset, position) of an `.index`, (timestamp, offset) of a `.timeindex`.

    Zeros after the last entry, which Kafka allocates in advance, are left out. Raises KafkaError for a size that no
    index has, OSError.
    """
    base = base_offset_of(path)
    entry = _OFFSET_ENTRY if path.suffix == OFFSET_INDEX_SUFFIX else _TIME_ENTRY
    data = path.read_bytes()
    if len(data) % entry.size:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        raise KafkaError(code, f"{path} has {len(data)} bytes, which are no entries of {entry.size}")
    entries = list(entry.iter_unpack(data))
    while len(entries) > 1 and entries[-1] == (0, 0):
        entries.pop()
    if path.suffix == OFFSET_INDEX_SUFFIX:
        return [(relative + base, position) for relative, position in entries]
    return [(timestamp, relative + base) for timestamp, relative in entries]


def verify_segment(path: Path) -> tuple[SegmentContents, list[Problem]]:
    """Check a `.log` file, each batch and record in it, and the indexes beside it. Raises OSError."""
    base = base_offset_of(path)
    contents, problems = SegmentContents(base, base), []
    try:
        for position, header, batch in walk_segment(path):
            contents.note(position, header)
            try:
                check_integrity(batch, 0, header)
                problems += _records_at_fault(path, position, header, batch)
            except KafkaError as error:
                problems.append(Problem(path, error.message, position))
    except BrokenBatch as broken:
        left = path.stat().st_size - broken.position
        problems.append(
            Problem(path, f"{broken.reason}; {left} bytes from here on are lost", broken.position)
        )
    for suffix, check in ((OFFSET_INDEX_SUFFIX, _offset_faults), (TIME_INDEX_SUFFIX, _time_faults)):
        index = path.with_suffix(suffix)
        if index.exists():
            try:
                problems += [Problem(index, what) for what in check(index_entries(index), contents)]
            except KafkaError as error:
                problems.append(Problem(index, error.message))
    problems += _aborted_faults(path.with_suffix(TRANSACTION_INDEX_SUFFIX), contents)
    return contents, problems


def _aborted_faults(path: Path, contents: SegmentContents) -> Iterator[Problem]:
    """Yield entries of a transaction index that do not end at a marker of their producer, since readers skip the data
    of all entries. Raises OSError."""
    try:
        for aborted in decode_transactions(read_if_there(path)):
            if contents.markers.get(aborted.last_offset) != aborted.producer_id:
                what = f"producer {aborted.producer_id} is said to have a marker at {aborted.last_offset}, and has none"
                yield Problem(path, what)
    except ValueError as error:
        yield Problem(path, str(error))


def _records_at_fault(path: Path, position: int, header: BatchHeader, batch: memoryview) -> list[Problem]:
    """Return the first record whose offset does not rise within the batch. Raises KafkaError for damaged records."""
    previous = header.base_offset - 1
    for record in decode_records(batch):
        if not previous < record.offset <= header.last_offset:
            what = f"offset {record.offset} after {previous} in the batch {header.base_offset}-{header.last_offset}"
            return [Problem(path, what, position)]
        previous = record.offset
    return []


def _offset_faults(entries: list[tuple[int, int]], contents: SegmentContents) -> Iterator[str]:
    """Yield faulty entries. A search begins at an entry's position, so the batch there must not begin after the entry's
    offset."""
    for (offset, position), (later, further) in pairwise(entries):
        if later <= offset or further <= position:
            yield f"entry ({later}, {further}) does not rise above ({offset}, {position})"
    for offset, position in entries:
        header = contents.positions.get(position)
        if header is None:
            yield f"offset {offset} is said to be at byte {position}, where no batch starts"
        elif header.base_offset > offset:
            yield f"offset {offset} is said to be at byte {position}, where offset {header.base_offset} starts"


def _time_faults(entries: list[tuple[int, int]], contents: SegmentContents) -> Iterator[str]:
    """Yield faulty entries. A search skips all batches below an entry's offset, so none of them may be later than the
    entry."""
    for (timestamp, offset), (later, further) in pairwise(entries):
        if later <= timestamp or further < offset:
            yield f"entry ({later}, {further}) does not rise above ({timestamp}, {offset})"
    highest = contents.latest_known_ms
    for timestamp, offset in entries:
        below = contents.highest_timestamp_below(offset)
        if below > timestamp:
            yield f"up to offset {offset} nothing is said to be later than {timestamp}, and {below} is there"
        if timestamp > highest:
            yield f"timestamp {timestamp} is later than all in the segment ({highest})"


def segments_in(folder: Path) -> list[Path]:
    """Return the `.log` files of a partition's folder, in order. Raises OSError."""
    found = [path for path in folder.iterdir() if path.suffix == LOG_SUFFIX and path.stem.isdigit()]
    return sorted(found, key=base_offset_of)


def partition_folders(folder: Path) -> list[Path]:
    """Return the folders of partitions in a data folder, in order of their names. Raises OSError."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and segments_in(path))


def verify_partition(folder: Path) -> tuple[list[SegmentContents], list[Problem]]:
    """Check a partition's folder: its segments, their order, and the small files. Raises OSError."""
    found: list[SegmentContents] = []
    problems: list[Problem] = []
    for path in segments_in(folder):
        contents, faults = verify_segment(path)
        if found and contents.base_offset < found[-1].next_offset:
            what = f"it starts at {contents.base_offset}, the one before ends at {found[-1].next_offset}"
            problems.append(Problem(path, what))
        found.append(contents)
        problems += faults
    problems += _small_file_faults(folder, found[-1].next_offset if found else 0)
    return found, problems


def _small_file_faults(folder: Path, next_offset: int) -> Iterator[Problem]:
    epochs_file = folder / LEADER_EPOCHS
    try:
        epochs = read_leader_epochs(folder)
        for (epoch, start), (later, further) in pairwise(epochs):
            if later <= epoch or further < start:
                yield Problem(
                    epochs_file, f"epoch {later} from {further} does not follow epoch {epoch} from {start}"
                )
        if epochs and epochs[-1][1] > next_offset:
            yield Problem(
                epochs_file, f"epoch {epochs[-1][0]} starts at {epochs[-1][1]}, behind the end {next_offset}"
            )
    except KafkaError as error:
        yield Problem(epochs_file, error.message)
    try:
        read_topic_id(folder)
    except KafkaError as error:
        yield Problem(folder, error.message)
    for path in sorted(folder.glob("*" + SNAPSHOT_SUFFIX)):
        try:
            read_snapshot(path)
        except (ValueError, KafkaError) as error:
            yield Problem(path, str(error))
