"""Records that the cluster will never accept, kept with the reason in the file 'rejected' of the spool's folder."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ...protocol.errors import KafkaError
from ..failures import SpoolUnusable
from .frames import (
    FILE_HEADER_BYTES,
    MARKER_BYTES,
    BadFileHeader,
    Frame,
    SpooledRecord,
    decode_frame,
    encode_frame,
    file_header,
    read_file_header,
    walk,
)

_REASON: Final = "ottla.rejected"
logger = logging.getLogger(__name__)


class RejectedRecord(NamedTuple):
    """A record as it was sent, and the reason why it was not delivered."""

    record: SpooledRecord
    reason: str


def read_rejected(spool_dir: str | os.PathLike[str]) -> Iterator[RejectedRecord]:
    """Yield the rejected records of a spool, oldest first; none if there is no such file.

    To discard them, delete the file 'rejected' while no producer uses the folder. Raises SpoolUnusable.
    """
    content, marker = _content(Path(spool_dir) / "rejected")
    for found in walk(content, marker, FILE_HEADER_BYTES):
        if isinstance(found, Frame):
            record = decode_frame(content, found)
            *headers, (_, reason) = record.headers
            yield RejectedRecord(record._replace(headers=tuple(headers)), (reason or b"").decode())


class RejectedRecords:
    """The file of rejected records. Rejected records are not sent again, also not by later producers."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        """Number of records in the file."""
        self.bytes = 0
        """Size of the file in bytes."""
        self._path = folder / "rejected"
        self._marker = b""
        self._positions: set[int] = set()

    def open(self, position: int) -> None:
        """Read the file of rejected records, and remember the records from spool position `position` on. Raises
        SpoolUnusable."""
        content, self._marker = _content(self._path)
        self.bytes = min(len(content), FILE_HEADER_BYTES)
        for found in walk(content, self._marker, FILE_HEADER_BYTES):
            if isinstance(found, Frame):
                self.count += 1
                self.bytes = found.end
                if found.position >= position:
                    self._positions.add(found.position)
            elif not found.torn:
                self.bytes = found.end
                logger.error("%s is damaged from byte %d to %d", self._path, found.start, found.end)
        if self._path.exists():
            os.truncate(self._path, self.bytes)  # The rest was written incompletely.

    def __contains__(self, position: int) -> bool:
        return position in self._positions

    def add(self, records: list[tuple[SpooledRecord, KafkaError]]) -> None:
        """Add records and their errors to the file of rejected records. Durable on return. Raises SpoolUnusable."""
        new = not self._marker or not self._path.exists()
        if new:
            self.bytes = self.count = 0
        marker = secrets.token_bytes(MARKER_BYTES) if new else self._marker
        frames = [file_header(marker)] if new else []
        for record, error in records:
            headers = (*record.headers, (_REASON, str(error).encode(errors="replace")))
            frames.append(encode_frame(record._replace(headers=headers), marker))
        data = b"".join(frames)
        try:
            with self._path.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(self._path, self.bytes)
            raise SpoolUnusable(f"{self._path} takes no record: {error}") from error
        self._marker = marker
        self.bytes += len(data)
        self.count += len(records)
        self._positions.update(record.position for record, _ in records)

    def delivered(self, position: int) -> None:
        """Forget the positions before this one, as they are not looked up any more."""
        if self._positions:
            self._positions = {rejected for rejected in self._positions if rejected >= position}


def _content(path: Path) -> tuple[bytes, bytes]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b"", b""
    if len(content) < FILE_HEADER_BYTES:
        return b"", b""  # The file was just being created.
    try:
        return content, read_file_header(content)
    except BadFileHeader as error:
        raise SpoolUnusable(f"{path}: {error}") from error
