"""A store in a folder: each object is a file, which appears whole and durable under its name.

An object is written to a file in `~incoming`, flushed, and then linked to its name, which fails if the name is taken.
The flush of the folder makes the name durable. A process that dies in between leaves a file in `~incoming` alone, which
a later process deletes after a day. Folders are opened one below the other without following symbolic links.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from ...network.threads import in_thread
from ..failures import ObjectExists, ObjectMissing, ObjectStoreFailed, ObjectStoreUnavailable
from .store import StoredObject

T = TypeVar("T")

INCOMING: Final = "~incoming"
"""The folder of unfinished files. No key has its name, since keys have no `~`."""
INCOMING_KEPT_S: Final = 24 * 3600
"""The age in seconds after which an unfinished file counts as left behind."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW: Final = _FOLDER | os.O_NOFOLLOW
_MAY_PASS: Final = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
"""The errors that a mounted file system reports while its server is away. A repeated attempt writes a new file."""
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}
_FOLDERS_REMOVED: Final = 20
"""The number of attempts to create an object while other processes remove its folder, which has just become empty."""


class FolderStore:
    """A store in a folder that exists. Each call is one attempt, in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    @property
    def url(self) -> str:
        """The URL of the folder."""
        return self._root.as_uri()

    async def put_new(self, key: str, data: bytes) -> None:
        """Create an object durably. Raises ObjectExists."""
        await in_thread(self._translated, lambda: self._put_new(key.split("/"), data))

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return a range of an object, up to its end. Raises ObjectMissing."""
        return await in_thread(self._translated, lambda: self._get(key.split("/"), start, end))

    async def pages(self, folder: str) -> AsyncIterator[list[StoredObject]]:
        """Yield the objects of each folder below a folder."""
        waiting = [folder.split("/")[:-1]]
        while waiting:
            parts = waiting.pop()
            objects, folders = await in_thread(self._translated, lambda parts=parts: self._scan(parts))
            waiting += [[*parts, name] for name in folders]
            if objects:
                yield objects

    async def delete(self, key: str) -> None:
        """Delete an object durably, and the folders that are empty then."""
        await in_thread(self._translated, lambda: self._delete(key.split("/")))

    # in threads

    def _translated(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, whose OSError becomes an error of the store."""
        try:
            return work()
        except OSError as error:
            kind = ObjectStoreUnavailable if error.errno in _MAY_PASS else ObjectStoreFailed
            raise kind(f"{error.strerror or error}{self._room(error)}") from error

    def _room(self, error: OSError) -> str:
        """Return the room on the file system, if its lack is the error; otherwise an empty text."""
        if error.errno not in _NO_ROOM:
            return ""
        try:
            found = os.statvfs(self._root)
        except OSError:
            return ""
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        return f": {free:,} of {size:,} bytes are free on its file system"

    def _put_new(self, parts: Sequence[str], data: bytes) -> None:
        with self._opened_root() as root:
            incoming = _made_below(root, INCOMING)
            try:
                self._sweep_incoming(incoming)
                name = secrets.token_hex(16)
                try:
                    _write(incoming, name, data)
                    self._link(root, incoming, name, parts)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=incoming)
            finally:
                os.close(incoming)

    def _link(self, root: int, incoming: int, name: str, parts: Sequence[str]) -> None:
        """Give a finished file its name. Raises ObjectExists, once the existing object is durable."""
        for _ in range(_FOLDERS_REMOVED):
            with suppress(FileNotFoundError), _opened_below(root, parts[:-1], make=True) as folder:
                try:
                    os.link(name, parts[-1], src_dir_fd=incoming, dst_dir_fd=folder, follow_symlinks=False)
                except FileExistsError:
                    os.fsync(folder)
                    raise ObjectExists("there is an object with this key") from None
                os.fsync(folder)
                return
        raise ObjectStoreUnavailable("its file or its folder was removed meanwhile")

    def _get(self, parts: Sequence[str], start: int, end: int) -> bytes:
        try:
            with self._opened_root() as root, _opened_below(root, parts[:-1]) as folder:
                # Without O_NONBLOCK the open of a pipe would wait for its writer.
                file = os.open(
                    parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
                )
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissing("there is no object with this key") from None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise ObjectMissing("there is no object with this key, but a folder or a special file")
            return _read(file, start, min(end, found.st_size))
        finally:
            os.close(file)

    def _scan(self, parts: Sequence[str]) -> tuple[list[StoredObject], list[str]]:
        """Return the objects of a folder, and the names of the folders in it."""
        objects: list[StoredObject] = []
        folders: list[str] = []
        try:
            with (
                self._opened_root() as root,
                _opened_below(root, parts) as folder,
                os.scandir(folder) as entries,
            ):
                for entry in entries:
                    if not parts and entry.name == INCOMING:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # deleted meanwhile
                            found = entry.stat(follow_symlinks=False)
                            key = "/".join([*parts, entry.name])
                            objects.append(StoredObject(key, found.st_size, found.st_mtime_ns // 1_000_000))
        except (FileNotFoundError, NotADirectoryError):
            pass  # A folder without objects does not exist.
        return objects, folders

    def _delete(self, parts: Sequence[str]) -> None:
        with self._opened_root() as root:
            try:
                with _opened_below(root, parts[:-1]) as folder:
                    os.unlink(parts[-1], dir_fd=folder)
                    os.fsync(folder)
                for depth in range(len(parts) - 1, 0, -1):
                    with _opened_below(root, parts[: depth - 1]) as above:
                        os.rmdir(parts[depth - 1], dir_fd=above)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    @contextmanager
    def _opened_root(self) -> Iterator[int]:
        try:
            root = os.open(self._root, _FOLDER)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectStoreFailed(f"the folder {self._root} of the store does not exist") from None
        try:
            yield root
        finally:
            os.close(root)

    def _sweep_incoming(self, incoming: int) -> None:
        """Delete the files that dead processes have left behind, once for each store object."""
        if self._swept:
            return
        self._swept = True
        with os.scandir(incoming) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - INCOMING_KEPT_S:
                        os.unlink(entry.name, dir_fd=incoming)


@contextmanager
def _opened_below(root: int, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Open a folder below `root`, and create the missing ones with `make`. Raises OSError, also for symbolic links."""
    folder = os.dup(root)
    try:
        for part in parts:
            below = _made_below(folder, part) if make else os.open(part, _BELOW, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _made_below(folder: int, name: str) -> int:
    """Return the opened folder `name` in a folder, which is durable and is created if it does not exist."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    opened = os.open(name, _BELOW, dir_fd=folder)
    os.fsync(folder)
    return opened


def _write(folder: int, name: str, data: bytes) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _read(file: int, start: int, end: int) -> bytes:
    parts: list[bytes] = []
    while start < end:
        part = os.pread(file, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)
