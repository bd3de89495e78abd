"""Files and folders that survive a power failure: they are made, replaced and flushed so that their names
survive, too."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from .storage_errors import disk_error

TEMPORARY_SUFFIX = ".tmp"
"""The suffix of a file that is about to replace another."""
_SMALL_BYTES, _LARGE_BYTES = 4 << 10, 1 << 20


def make_directory(path: Path) -> None:
    """Create a directory and its parents. Its name is durable afterwards even if an earlier process made it.

    Raises OSError if it cannot be made. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    for folder in reversed([folder for folder in path.parents if not folder.exists()]):
        folder.mkdir(exist_ok=True)
        sync_directory(folder.parent)
    path.mkdir(exist_ok=True)
    if os.access(path.parent, os.R_OK):  # Otherwise an administrator made it.
        sync_directory(path.parent)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Read a whole file, in three system calls if it is small: a broker reads tens of thousands of files when it
    starts. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _SMALL_BYTES)
        if len(data) < _SMALL_BYTES:
            return data
        pieces = [data]
        while piece := os.read(fd, _LARGE_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Make created, renamed and deleted entries of a directory durable. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise disk_error("flush", path, error) from error


def sync_file(path: Path) -> None:
    """Flush a file with fdatasync by a separate descriptor, so that other users may close theirs meanwhile.

    A missing file is no error: it was cut or deleted since the flush began. After a failure the cached pages are
    dropped. Otherwise the kernel might count pages as clean that the disk never got, and a broker that starts would
    take them for durable.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error("flush", path, error) from error
    try:
        os.fdatasync(fd)
    except OSError as error:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        raise disk_error("flush", path, error) from error
    finally:
        os.close(fd)


def shorten(fd: int, size: int) -> None:
    """Cut an open file that is longer than `size` bytes, and leave any other as it is. Raises OSError.

    When ext4 has cut a file to no bytes, even a new one, the close of the file waits until all its pages are on their
    way to the disk. So the close of a full segment stopped the event loop for up to 50 ms.
    """
    if os.fstat(fd).st_size > size:
        os.ftruncate(fd, size)


def write_atomically(path: Path, data: bytes | bytearray, *, sync: bool) -> None:
    """Replace a file by a new one; with `sync` its bytes are durable before it takes the name.

    Raises KafkaError: KAFKA_STORAGE_ERROR; the old file is intact.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise disk_error("write", path, error) from error
    if sync:
        sync_directory(path.parent)


def write_beside(path: str, data: bytes | bytearray) -> None:
    """Write the replacement of a file under a temporary name. `take_name` renames it once its bytes are durable.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    try:
        fd = os.open(path + TEMPORARY_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, "the disk took only a part")
        finally:
            os.close(fd)
    except OSError as error:
        raise disk_error("write", Path(path), error) from error


def take_name(path: str) -> None:
    """Replace a file by the one that `write_beside` wrote. Raises KafkaError: KAFKA_STORAGE_ERROR; the old file is
    intact."""
    try:
        os.replace(path + TEMPORARY_SUFFIX, path)
    except OSError as error:
        raise disk_error("write", Path(path), error) from error
