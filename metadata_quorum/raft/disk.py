"""The file operations that the Raft layer needs, in one flat directory.

`Directory` implements them on a real file system. The simulation has another implementation, which loses and tears data
that was not synced. The rules are: a file's bytes are durable after `File.sync`; its name, a rename and a removal are
durable after `Disk.sync_names`.
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
    """A file with content that was never written to it. The message names the file and the remedy."""


class File(Protocol):
    """An open file with positioned access."""

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at `offset`; fewer at the end of the file."""

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Return the file's length in bytes."""

    def sync(self) -> None:
        """Return when everything written is durable. A failure ends the process."""

    def close(self) -> None:
        """Close the file descriptor."""


class Disk(Protocol):
    """A flat directory of files."""

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""

    def open(self, name: str) -> File:
        """Open a file for reading and writing. Raises FileNotFoundError."""

    def create(self, name: str) -> File:
        """Create an empty file, or empty the existing file of that name."""

    def rename(self, name: str, new_name: str) -> None:
        """Rename a file atomically; a file named `new_name` is replaced."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

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
            # The kernel may now consider the pages clean although they never reached the disk. The next process must
            # not read them: its sync would have no effect, and a power failure would lose them.
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
        """Lock out other processes until `unlock` or the end of this process. Return False if another process holds the
        lock."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def unlock(self) -> None:
        """Release the lock; does nothing without a lock."""
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
    """Create a directory and its parents. Its name is durable afterwards even if an earlier process created it."""
    for folder in reversed([folder for folder in path.parents if not folder.exists()]):
        folder.mkdir(exist_ok=True)
        _sync_directory(folder.parent)
    path.mkdir(exist_ok=True)
    if os.access(path.parent, os.R_OK):  # otherwise an administrator created the directory
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
    """Replace a small file atomically and durably by `magic | crc | body`."""
    temporary = f"{name}.tmp"
    file = disk.create(temporary)
    file.write(0, magic + zlib.crc32(magic + body).to_bytes(_CHECKSUM_BYTES, "big") + body)
    file.sync()
    file.close()
    disk.rename(temporary, name)
    disk.sync_names()


def read_checked(disk: Disk, name: str, magic: bytes) -> bytes | None:
    """Return the body that `write_checked` wrote; None if the file does not exist. Raises CorruptFile."""
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
