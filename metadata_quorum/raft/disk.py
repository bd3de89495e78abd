"""The few things the Raft layer asks of a file system, in one flat directory.

`Directory` does them on a real one. The simulation has another that loses and tears what was not
synced, so the rules are: a file's bytes are durable after `File.sync`; its name, and a rename or
removal, after `Disk.sync_names`.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from pathlib import Path
from typing import Protocol

from . import failstop

_CHECKSUM_BYTES = 4


class CorruptFile(Exception):
    """A file whose content cannot be what was written. The message names the file and what to do."""


class File(Protocol):
    """An open file with positioned access."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer at the end of the file."""

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Its length in bytes."""

    def sync(self) -> None:
        """Return when everything written is durable. A failure ends the process."""

    def close(self) -> None:
        """Release the descriptor."""


class Disk(Protocol):
    """One directory."""

    def names(self) -> list[str]:
        """The files in it, sorted."""

    def open(self, name: str) -> File:
        """Open for reading and writing. Raises FileNotFoundError."""

    def create(self, name: str) -> File:
        """A new, empty file; an old one of that name is emptied."""

    def rename(self, name: str, new_name: str) -> None:
        """Put one file in the place of another, at once."""

    def remove(self, name: str) -> None:
        """Remove a file. One that does not exist is fine."""

    def sync_names(self) -> None:
        """Return when creations, renames and removals are durable. A failure ends the process."""


class _RealFile:
    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    def read(self, offset: int, size: int) -> bytes:
        chunks = []
        while size > 0:
            chunk = os.pread(self._descriptor, size, offset)
            if not chunk:
                break
            chunks.append(chunk)
            offset += len(chunk)
            size -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self._descriptor, view, offset)
                offset += written
                view = view[written:]
        except OSError as error:
            failstop.fail_stop(f"{self._path}: cannot write: {error}")

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            # The kernel may take the pages for clean now, though the disk never got them. Whoever starts next shall not
            # read them: it would sync in vain, and lose them with the power.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            failstop.fail_stop(f"{self._path}: fdatasync failed: {error}")

    def close(self) -> None:
        os.close(self._descriptor)


class Directory:
    """A real directory, created if missing."""

    def __init__(self, path: Path) -> None:
        _make_durably(path)
        self.path = path
        self._lock: int | None = None

    def lock(self) -> bool:
        """Keep other processes out until `unlock`, or until this one ends; False if one is in already."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def unlock(self) -> None:
        """Let others in; does nothing without a lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def names(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self.path) if entry.is_file())

    def open(self, name: str) -> File:
        path = self.path / name
        return _RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)

    def create(self, name: str) -> File:
        path = self.path / name
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            return _RealFile(os.open(path, flags, 0o600), path)
        except OSError as error:
            failstop.fail_stop(f"{path}: cannot create: {error}")

    def rename(self, name: str, new_name: str) -> None:
        os.replace(self.path / name, self.path / new_name)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def sync_names(self) -> None:
        _sync_directory(self.path)


def _make_durably(path: Path) -> None:
    """Create a directory and what leads to it. Its name is durable afterwards even if an earlier process made it."""
    for folder in reversed([folder for folder in path.parents if not folder.exists()]):
        folder.mkdir(exist_ok=True)
        _sync_directory(folder.parent)
    path.mkdir(exist_ok=True)
    if os.access(path.parent, os.R_OK):  # Else an administrator made it.
        _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        failstop.fail_stop(f"{path}: fsync of the directory failed: {error}")
    finally:
        os.close(descriptor)


def write_checked(disk: Disk, name: str, magic: bytes, body: bytes) -> None:
    """Replace a small file by `magic | crc | body`, durable on return, never half there."""
    temporary = f"{name}.tmp"
    file = disk.create(temporary)
    file.write(0, magic + zlib.crc32(magic + body).to_bytes(_CHECKSUM_BYTES, "big") + body)
    file.sync()
    file.close()
    disk.rename(temporary, name)
    disk.sync_names()


def read_checked(disk: Disk, name: str, magic: bytes) -> bytes | None:
    """The body that `write_checked` wrote; None without the file. Raises CorruptFile."""
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return None
    content = file.read(0, file.size())
    file.sync()
    file.close()
    start = len(magic) + _CHECKSUM_BYTES
    body = content[start:]
    checksum = zlib.crc32(magic + body).to_bytes(_CHECKSUM_BYTES, "big")
    if content[:start] != magic + checksum:
        raise CorruptFile(
            f"{name} is damaged ({len(content)} bytes, wrong magic or checksum). It holds promises made to other "
            "nodes, so it cannot be guessed: restore the folder, or empty it and replace this node explicitly."
        )
    return body
