"""Open files of the disk: descriptors with positions and locks, and Python's file objects over them."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from typing import TYPE_CHECKING, Any, cast

from .descriptors import Descriptor
from .disk import VirtualDisk, refuse
from .inodes import File, Folder, Inode

if TYPE_CHECKING:
    from .machine import Machine
    from .process import Process

_LOCK_RETRY_S = 0.001


class Onlooker:
    """The scenario itself, which opens files while no process runs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.number = 0
        self.descriptors: dict[int, Descriptor] = {}


class Description:
    """An open file description, as the kernel calls it; duplicated descriptors share it."""

    def __init__(self, disk: VirtualDisk, inode: Inode, flags: int, path: str) -> None:
        self.disk = disk
        self.inode = inode
        self.path = path
        self.position = 0
        self.descriptors = 0
        self.append = bool(flags & os.O_APPEND)
        access = flags & os.O_ACCMODE
        self.can_read, self.can_write = access != os.O_WRONLY, access != os.O_RDONLY
        inode.opened += 1

    def file(self) -> File:
        """Return the file. Raises IsADirectoryError."""
        if not isinstance(self.inode, File):
            refuse(errno.EISDIR, self.path)
        return self.inode

    def lock(self, exclusively: bool) -> bool:
        """Lock the file like `flock`; return False if another description holds the lock."""
        inode = self.inode
        others = [holder for holder in inode.lockers if holder is not self]
        if others and (exclusively or inode.locked_exclusively):
            return False
        inode.lockers = [*others, self]
        inode.locked_exclusively = exclusively
        return True

    def unlock(self) -> None:
        self.inode.lockers = [holder for holder in self.inode.lockers if holder is not self]

    def release(self) -> None:
        """Release one descriptor."""
        self.descriptors -= 1
        if not self.descriptors:
            self.unlock()
            self.inode.opened -= 1
            self.disk.let_go(self.inode)


class OpenFile(Descriptor):
    """A descriptor of a file or a folder."""

    def __init__(self, process: Process | Onlooker, description: Description) -> None:
        super().__init__(cast("Process", process))
        self.description = description
        description.descriptors += 1

    def close(self) -> None:
        if self.machine.descriptors.get(self.number) is self:
            super().close()
            inode = self.description.inode
            if inode.record_locker == self.process.number:
                inode.record_locker = None  # by POSIX: whichever descriptor of the file it closes
            self.description.release()

    def duplicate(self, process: Process | Onlooker) -> OpenFile:
        return OpenFile(process, self.description)

    # ------------------------------------------------------------ bytes

    def read_at(self, size: int, position: int) -> bytes:
        """Read at a position. Raises OSError."""
        description = self.description
        file = description.file()
        if not description.can_read:
            refuse(errno.EBADF)
        if size < 0 or position < 0:
            refuse(errno.EINVAL)
        description.disk.check_readable(description.path)
        with memoryview(file.current) as current:
            return bytes(current[position : position + size])

    def write_at(self, data: Any, position: int) -> int:
        """Write at a position, and return the number of written bytes. Raises OSError."""
        description = self.description
        if not description.can_write:
            refuse(errno.EBADF)
        if position < 0:
            refuse(errno.EINVAL)
        file = description.file()
        if description.append:
            position = len(file.current)
        return description.disk.write(file, position, bytes(data), description.path)

    def read(self, size: int) -> bytes:
        data = self.read_at(size, self.description.position)
        self.description.position += len(data)
        return data

    def write(self, data: Any) -> int:
        description = self.description
        start = len(description.file().current) if description.append else description.position
        written = self.write_at(data, start)
        description.position = start + written
        return written

    def seek(self, offset: int, whence: int) -> int:
        description = self.description
        if whence == os.SEEK_CUR:
            offset += description.position
        elif whence == os.SEEK_END:
            offset += len(description.file().current)
        elif whence != os.SEEK_SET:
            refuse(errno.EINVAL)
        if offset < 0:
            refuse(errno.EINVAL)
        description.position = offset
        return offset

    def truncate(self, size: int) -> None:
        description = self.description
        if not description.can_write:
            refuse(errno.EINVAL)
        description.disk.truncate(description.file(), size, description.path)

    def sync(self) -> None:
        """Make the file durable before returning. Raises OSError."""
        description = self.description
        description.disk.sync(description.inode, description.path)

    # ------------------------------------------------------------ locks

    def flock(self, operation: int) -> None:
        """Lock like `fcntl.flock`; the lock belongs to the description."""
        if operation & fcntl.LOCK_UN:
            self.description.unlock()
            return
        while not self.description.lock(bool(operation & fcntl.LOCK_EX)):
            self._wait_for_lock(operation)

    def lockf(self, operation: int) -> None:
        """Lock the whole file like `fcntl.lockf`; the lock belongs to the process."""
        inode, owner = self.description.inode, self.process.number
        if operation & fcntl.LOCK_UN:
            if inode.record_locker == owner:
                inode.record_locker = None
            return
        while inode.record_locker not in (None, owner):
            self._wait_for_lock(operation)
        inode.record_locker = owner

    def _wait_for_lock(self, operation: int) -> None:
        thread = self.machine.running
        if operation & fcntl.LOCK_NB or thread is None:
            refuse(errno.EWOULDBLOCK)
        thread.block(self.machine.now + _LOCK_RETRY_S)


class VirtualFileIO(io.RawIOBase):
    """`io.FileIO` of a virtual descriptor."""

    def __init__(
        self, machine: Machine, number: int, name: Any, mode: str, *, close_descriptor: bool
    ) -> None:
        self._machine = machine
        self._number = number
        self._close_descriptor = close_descriptor
        self.name = name
        self.mode = mode

    def _file(self) -> OpenFile:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        descriptor = self._machine.descriptor(self._number)
        if not isinstance(descriptor, OpenFile):
            refuse(errno.EBADF)
        return descriptor

    def readable(self) -> bool:
        return self._file().description.can_read

    def writable(self) -> bool:
        return self._file().description.can_write

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as room:
            data = self._file().read(len(room))
            room[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        file = self._file()
        return file.read(len(file.description.file().current))

    def write(self, data: Any) -> int:
        file = self._file()
        file.description.disk.stall()
        return self._file().write(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file().seek(offset, whence)

    def tell(self) -> int:
        return self._file().description.position

    def truncate(self, size: int | None = None) -> int:
        file = self._file()
        size = file.description.position if size is None else size
        file.truncate(size)
        return size

    def fileno(self) -> int:
        self._file()
        return self._number

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._close_descriptor and (descriptor := self._machine.descriptor(self._number)) is not None:
            descriptor.close()


class VirtualEntry:
    """`os.DirEntry`."""

    def __init__(self, disk: VirtualDisk, inode: Inode, name: Any, path: Any) -> None:
        self._disk = disk
        self._inode = inode
        self.name = name
        self.path = path

    def __fspath__(self) -> Any:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return isinstance(self._inode, Folder)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return isinstance(self._inode, File)

    def is_symlink(self) -> bool:
        return False

    def inode(self) -> int:
        return self._inode.number

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._disk.status(self._inode)


class VirtualScan:
    """The iterator that `os.scandir` returns."""

    def __init__(self, entries: list[VirtualEntry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> VirtualScan:
        return self

    def __next__(self) -> VirtualEntry:
        return next(self._entries)

    def __enter__(self) -> VirtualScan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter([])


class VirtualMap(bytes):
    """A read-only `mmap.mmap` with the file's content at the time of mapping."""

    closed = False

    def close(self) -> None:
        self.closed = True

    def size(self) -> int:
        return len(self)

    def __enter__(self) -> VirtualMap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
