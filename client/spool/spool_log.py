"""The records of a spool, in files of a few megabytes named by the position of their first record.

Records are appended to the newest file and read in order; a file whose records are all delivered is deleted. Damage is
found when the log is opened, or read. Damaged bytes are copied into a separate file, logged, and skipped. Only an
incomplete frame at the very end, for which no `send` has returned, is cut off.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ...protocol.records.record import Headers
from ..failures import SpoolFileDeleted, SpoolUnusable
from .folder import sync_folder
from .frames import (
    FILE_HEADER_BYTES,
    MARKER_BYTES,
    BadFileHeader,
    Gap,
    SpooledRecord,
    decode_frame,
    encode_frame,
    file_header,
    read_file_header,
    walk,
)

SUFFIX: Final = ".spool"
DAMAGED: Final = "damaged-"
logger = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """Consecutive records of a spool, and the position after the last record."""

    records: list[SpooledRecord]
    end: int


@dataclass(eq=False, slots=True)
class _Segment:
    """A file of records. Invariant: base <= the positions of its records < end."""

    path: Path
    base: int
    end: int
    marker: bytes
    size: int
    records: int


@dataclass(slots=True)
class _Window:
    """The part of a file that was read: `buffer` begins at byte `offset` of the file, and is consumed up to `at`."""

    segment: _Segment
    buffer: bytes
    offset: int
    at: int
    position: int


class SpoolLog:
    """The log of a spool's records, in the files of a folder. `read` may run in another thread than `append`, but each
    in only one thread at a time."""

    def __init__(self, path: Path, base: int, segment_bytes: int) -> None:
        """`base` is the first position to assign; all positions in the files are lower."""
        self.end = base
        """Position of the next record."""
        self.bytes = 0
        """Size of all files in bytes, including damaged data that was set aside."""
        self.damaged = 0
        """Number of files with damaged data."""
        self._path = path
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []  # Invariant: ordered by base
        self._active: _Segment | None = None
        self._file = -1
        self._unsynced: dict[Path, None] = {}
        self._window: _Window | None = None

    def open(self) -> None:
        """Read all files of the spool, so that their content is known. Raises SpoolUnusable."""
        for aside in self._path.glob(DAMAGED + "*"):
            self.bytes += aside.stat().st_size
            self.damaged += 1
        paths = sorted(path for path in self._path.glob("*" + SUFFIX) if path.stem.isdecimal())
        for path in paths:
            self._look_through(path, newest=path == paths[-1])
        if self._segments and self._segments[-1].end > self.end:
            raise SpoolUnusable(
                f"the spool {self._path} has records of a later run than the file 'identity' tells of"
            )

    def append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> int:
        """Write a record to the newest file. Returns its position.

        The record survives the end of the process; after `sync` it survives the failure of the machine. Raises
        SpoolUnusable if the disk fails, and ValueError.
        """
        active = self._active
        if active is None or active.size >= self._segment_bytes:
            active = self._roll()
        position = self.end
        record = SpooledRecord(position, topic, partition, key, value, timestamp_ms, headers)
        frame = encode_frame(record, active.marker)
        try:
            if os.write(self._file, frame) < len(frame):
                raise OSError("the disk is full")
        except OSError as error:
            self._cut_off(active)
            raise SpoolUnusable(f"{active.path} takes no record: {error}") from error
        active.size += len(frame)
        active.end = self.end = position + 1
        active.records += 1
        self.bytes += len(frame)
        return position

    def read(self, position: int, records_max: int, bytes_max: int) -> Chunk:
        """Return records from `position` on, at least one if there is any; they take little more than `bytes_max`."""
        # It is read before the search, so that records that another thread appends meanwhile are not skipped.
        end = self.end
        segment = next((segment for segment in self._segments if segment.end > position), None)
        if segment is None:
            return Chunk([], max(position, end))
        end = segment.end  # Records up to here are in the file.
        records: list[SpooledRecord] = []
        if self._window is not None and self._window.position > position:
            self._window = None  # The position is read again.
        window = self._window_at(segment)
        while not records and window.at < len(window.buffer):
            self._take(window, position, records, records_max, bytes_max)
            window = self._window_at(segment)
        if not records:  # The rest of the file is damaged.
            window.position = end
        return Chunk(records, window.position)

    def check_files(self) -> None:
        """Raise SpoolFileDeleted if a file with undelivered records is gone while the folder exists."""
        for segment in list(self._segments):
            if not segment.path.exists() and segment in self._segments and self._path.exists():
                raise SpoolFileDeleted(
                    f"{segment.path} was deleted, and its records with it. The next producer with this folder goes on "
                    "with what is left"
                )

    def count_from(self, position: int) -> int:
        """Return the number of records in the spool from `position` on."""
        return sum(
            min(segment.records, segment.end - max(position, segment.base))
            for segment in self._segments
            if segment.end > position
        )

    def delivered(self, position: int) -> None:
        """Delete the files without records from `position` on; the newest file only once it is full."""
        while self._segments and self._segments[0].end <= position:
            oldest = self._segments[0]
            if oldest is self._active:
                if oldest.size < self._segment_bytes:
                    return
                self._close_active()
            self._delete(oldest)

    def sync(self) -> None:
        """Return once all records appended before are on the disk. Raises SpoolUnusable."""
        paths = list(self._unsynced)
        newest = None if self._active is None else self._active.path
        try:
            for path in paths:
                try:
                    descriptor = os.open(path, os.O_RDWR)
                except FileNotFoundError:
                    continue  # delivered meanwhile, or deleted
                try:
                    os.fdatasync(descriptor)
                finally:
                    os.close(descriptor)
            sync_folder(self._path)
            self.check_files()
        except OSError as error:
            raise SpoolUnusable(f"the spool {self._path} cannot be made durable: {error}") from error
        for path in paths:
            if path != newest:
                self._unsynced.pop(path, None)

    def close(self, position: int) -> None:
        """Close the files, and delete those whose records are all before `position`. Idempotent."""
        self._close_active()
        while self._segments and self._segments[0].end <= position:
            self._delete(self._segments[0])
        self._segments.clear()

    # inside

    def _roll(self) -> _Segment:
        self._close_active()
        path = self._path / f"{self.end:020}{SUFFIX}"
        marker = secrets.token_bytes(MARKER_BYTES)
        header = file_header(marker)
        try:
            self._file = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            if os.write(self._file, header) < len(header):
                raise OSError("the disk is full")
        except OSError as error:
            self._close_active()
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise SpoolUnusable(f"{path} cannot be begun: {error}") from error
        self._active = _Segment(path, self.end, self.end, marker, len(header), 0)
        self._segments.append(self._active)
        self._unsynced[path] = None
        self.bytes += len(header)
        return self._active

    def _cut_off(self, active: _Segment) -> None:
        """Cut off a partly written record. If that fails, too, the file gets no more records: the next record begins
        another file."""
        try:
            os.ftruncate(self._file, active.size)
        except OSError:
            self._close_active()
            if not active.records:  # the next file has its name
                with suppress(OSError):
                    self._delete(active)

    def _close_active(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._active = -1, None

    def _delete(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        if self._window is not None and self._window.segment is segment:
            self._window = None
        self._unsynced.pop(segment.path, None)
        self.bytes -= segment.size
        segment.path.unlink(missing_ok=True)  # An operator may have deleted it.

    def _window_at(self, segment: _Segment) -> _Window:
        window = self._window
        if window is None or window.segment is not segment:
            window = self._window = _Window(segment, b"", FILE_HEADER_BYTES, 0, segment.base)
        if window.at == len(window.buffer):
            window.offset += window.at
            size = segment.size
            try:
                with segment.path.open("rb") as file:
                    window.buffer = os.pread(file.fileno(), size - window.offset, window.offset)
            except FileNotFoundError:
                self.check_files()
                raise
            window.at = 0
        return window

    def _take(
        self,
        window: _Window,
        position: int,
        records: list[SpooledRecord],
        records_max: int,
        bytes_max: int,
    ) -> None:
        """Append to `records` the records from `position` on that are in the window, the part of a file that was
        read."""
        begun = window.at
        for found in walk(window.buffer, window.segment.marker, begun):
            if len(records) >= records_max or (records and window.at - begun >= bytes_max):
                return
            window.at = found.end
            if isinstance(found, Gap):
                place = window.offset + found.start
                self._set_aside(window.segment.path, place, window.buffer[found.start : found.end])
                continue
            window.position = found.position + 1
            if found.position < position:
                continue
            try:
                records.append(decode_frame(window.buffer, found))
            except ValueError:  # Its checksum is correct, but its content is invalid.
                place = window.offset + found.start
                self._set_aside(window.segment.path, place, window.buffer[found.start : found.end])

    def _look_through(self, path: Path, *, newest: bool) -> None:
        content = path.read_bytes()
        try:
            marker = read_file_header(content)
        except BadFileHeader as error:
            self._header_lost(path, content, newest, error)
            return
        base = int(path.stem)
        segment = _Segment(path, base, base, marker, len(content), 0)
        for found in walk(content, marker, FILE_HEADER_BYTES):
            if not isinstance(found, Gap):
                segment.end = found.position + 1
                segment.records += 1
            elif found.torn and newest:
                logger.warning(
                    "%s ends in the middle of a record, at byte %d: cut off there", path, found.start
                )
                os.truncate(path, found.start)
                segment.size = found.start
            else:
                self._set_aside(path, found.start, content[found.start : found.end])
        self._segments.append(segment)
        self._unsynced[path] = None
        self.bytes += segment.size

    def _header_lost(self, path: Path, content: bytes, newest: bool, error: BadFileHeader) -> None:
        if newest and len(content) < FILE_HEADER_BYTES:
            path.unlink()  # The file was just being created.
            return
        path.rename(path.with_name(DAMAGED + path.name))
        self.bytes += len(content)
        self.damaged += 1
        logger.error("%s cannot be read: %s. It was renamed to %s%s, and its records are not delivered", path, error,
                   DAMAGED, path.name)  # fmt: skip

    def _set_aside(self, path: Path, offset: int, content: bytes) -> None:
        """Copy damaged bytes into a separate file, once for each place, however often it is read."""
        aside = path.with_name(f"{DAMAGED}{path.stem}-{offset}")
        if aside.exists():
            return
        aside.write_bytes(content)
        self.bytes += len(content)
        self.damaged += 1
        logger.error(
            "%s is damaged at byte %d: %d bytes are no record. They were copied to %s, the records around them are "
            "delivered",
            path, offset, len(content), aside.name,
        )  # fmt: skip
