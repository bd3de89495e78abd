"""Snapshots of the state machine on disk.

A snapshot is `magic | index | term | crc`, then chunks `length | crc | bytes`, then a closing chunk of length 0 with
their number. It is written under a temporary name and renamed once durable, so a file with a final name is complete. If
such a file is unreadable, the disk has lost data and the node must not start.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .disk import CorruptFile, Disk, File

_MAGIC = b"OTTLSNAP"
_HEADER = struct.Struct(">8sQQI")
_CHUNK = struct.Struct(">II")
_NAME = re.compile(r"snapshot-(\d{20})")
MAX_STORED_CHUNK_BYTES = 16 << 20

FOLDED_NAME = "snapshot-folded.tmp"
RECEIVED_NAME = "snapshot-received.tmp"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot file: the state after applying everything up to `index`, whose entry has `term`. `size` is in
    bytes."""

    name: str
    index: int
    term: int
    size: int


def write(disk: Disk, name: str, index: int, term: int, chunks: Iterable[bytes]) -> int:
    """Write a snapshot durably under a temporary `name`, and return its size in bytes. Blocks."""
    file = disk.create(name)
    head = struct.pack(">8sQQ", _MAGIC, index, term)
    data = head + zlib.crc32(head).to_bytes(4, "big")
    position = count = 0
    for chunk in chunks:
        if not chunk:
            continue
        count += 1
        data += _CHUNK.pack(len(chunk), zlib.crc32(chunk, count)) + chunk
        file.write(position, data)
        position += len(data)
        data = b""
    data += _CHUNK.pack(0, count)
    file.write(position, data)
    file.sync()
    file.close()
    return position + len(data)


def read_position(file: File, name: str) -> tuple[int, int]:
    """Return the (index, term) in a snapshot file's header. Raises CorruptFile."""
    head = file.read(0, _HEADER.size)
    if len(head) < _HEADER.size:
        raise _damaged(name, "it is cut off")
    magic, index, term, checksum = _HEADER.unpack(head)
    if magic != _MAGIC or zlib.crc32(head[:-4]) != checksum:
        raise _damaged(name, "its header does not check")
    return index, term


def read_chunks(disk: Disk, name: str) -> Iterator[bytes]:
    """Yield the verified chunks of a snapshot. Raises CorruptFile, before or between chunks."""
    file = disk.open(name)
    try:
        read_position(file, name)
        size = file.size()
        position = _HEADER.size
        count = 0
        while True:
            head = file.read(position, _CHUNK.size)
            if len(head) < _CHUNK.size:
                raise _damaged(name, f"it is cut off at byte {position}")
            length, checksum = _CHUNK.unpack(head)
            position += _CHUNK.size
            if length == 0:
                if checksum != count or position != size:
                    raise _damaged(name, "its end does not check")
                return
            if length > MAX_STORED_CHUNK_BYTES:
                raise _damaged(name, f"a chunk of {length} bytes at byte {position}")
            chunk = file.read(position, length)
            count += 1
            if len(chunk) < length or zlib.crc32(chunk, count) != checksum:
                raise _damaged(name, f"the chunk at byte {position} does not check")
            yield chunk
            position += length
    finally:
        file.close()


def _damaged(name: str, how: str) -> CorruptFile:
    return CorruptFile(
        f"{name} is damaged: {how}. The journal behind it alone cannot rebuild the state: restore the folder, or "
        "empty it and replace this node explicitly."
    )


class SnapshotStore:
    """The snapshot files in a folder, of which only the newest is used."""

    def __init__(self, disk: Disk) -> None:
        """Find the newest snapshot and remove leftovers. Blocks. Raises CorruptFile."""
        self._disk = disk
        self.latest: Snapshot | None = None
        names = [name for name in disk.names() if _NAME.fullmatch(name)]
        for name in (FOLDED_NAME, RECEIVED_NAME, *names[:-1]):
            disk.remove(name)
        if names:
            file = disk.open(names[-1])
            index, term = read_position(file, names[-1])
            file.sync()
            self.latest = Snapshot(names[-1], index, term, file.size())
            file.close()
        disk.sync_names()

    def publish(self, temporary: str) -> Snapshot:
        """Rename a complete temporary snapshot file to its final name, durably. Blocks; may run in any thread."""
        file = self._disk.open(temporary)
        index, term = read_position(file, temporary)
        size = file.size()
        file.close()
        name = f"snapshot-{index:020d}"
        self._disk.rename(temporary, name)
        self._disk.sync_names()
        return Snapshot(name, index, term, size)

    def supersede(self, snapshot: Snapshot) -> str | None:
        """Make a published snapshot the latest one if it is newer. Return the name of the file that is now superfluous,
        or None."""
        if self.latest is not None and self.latest.index >= snapshot.index:
            return snapshot.name if self.latest.index > snapshot.index else None
        old, self.latest = self.latest, snapshot
        return old.name if old else None
