"""Python's file interface for virtual paths and descriptors; real ones behave as before."""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import mmap
import os
import posixpath
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.dataplane.log import filesystem_sync, page_cache
from ottla.dataplane.log.page_cache import PageCache

from .descriptors import Descriptor
from .disk import ROOT, VirtualDisk, refuse
from .inodes import File, Folder, Inode
from .machine import FIRST_DESCRIPTOR, Machine
from .open_files import Description, Onlooker, OpenFile, VirtualEntry, VirtualFileIO, VirtualMap, VirtualScan

__all__ = ["VirtualDisk", "replacements"]

_ACCESS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "a": os.O_WRONLY, "x": os.O_WRONLY}
_CREATION = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL}

_FOLDERS_OF_PATHS = {"dir_fd": 0, "src_dir_fd": 0, "dst_dir_fd": 1}
"""Arguments with the folder of a path, each with the index of the path among the arguments."""

_BY_PATH = (
    "open",
    "listdir",
    "scandir",
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "rename",
    "replace",
    "link",
    "access",
)
_BY_EITHER = ("stat", "lstat", "truncate", "utime", "chmod", "statvfs")
_BY_DESCRIPTOR = (
    *(
        "close",
        "dup",
        "read",
        "pread",
        "preadv",
        "write",
        "pwrite",
        "pwritev",
        "lseek",
        "copy_file_range",
        "sendfile",
    ),
    *("fsync", "fdatasync", "ftruncate", "posix_fallocate", "posix_fadvise", "fstat", "fstatvfs"),
    *("set_blocking", "get_blocking", "set_inheritable", "get_inheritable"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A virtual path."""

    disk: VirtualDisk
    names: list[str]
    path: str

    def inode(self) -> Inode:
        return self.disk.find(self.names, self.path)

    def parent(self) -> tuple[Folder, str]:
        return self.disk.parent(self.names, self.path)

    def folder(self) -> Folder:
        inode = self.inode()
        if not isinstance(inode, Folder):
            refuse(errno.ENOTDIR, self.path)
        return inode

    def file(self) -> File:
        inode = self.inode()
        if not isinstance(inode, File):
            refuse(errno.EISDIR, self.path)
        return inode


def replacements(machine: Machine) -> list[tuple[Any, str, Any]]:
    """Return (owner, name, value) of every replaced function that accesses files."""
    return FileCalls(machine).replacements()


class FileCalls:
    """The system calls about files, in the form of the functions of `os` and related modules."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._onlooker = Onlooker(machine)

    def replacements(self) -> list[tuple[Any, str, Any]]:
        calls = [(os, name, self._dispatch(os, name, True, False)) for name in _BY_PATH]
        calls += [(os, name, self._dispatch(os, name, False, True)) for name in _BY_DESCRIPTOR]
        calls += [(os, name, self._dispatch(os, name, True, True)) for name in _BY_EITHER]
        calls += [(fcntl, name, self._dispatch(fcntl, name, False, True)) for name in ("flock", "lockf")]
        calls.append((filesystem_sync, "syncfs", self._dispatch(filesystem_sync, "syncfs", False, True)))
        calls.append((filesystem_sync, "is_supported", lambda fd: True))
        calls.append((page_cache, "page_cache_of", self._dispatch(page_cache, "page_cache_of", True, False)))
        calls.append((page_cache, "check_writes", self._dispatch(page_cache, "check_writes", False, True)))
        calls.append((mmap, "mmap", self._dispatch(mmap, "mmap", False, True)))
        opening = self._dispatch(io, "open", True, True, "open_file")
        calls += [(io, "open", opening), (builtins, "open", opening)]
        # Otherwise shutil would use descriptors of folders and relative paths, which are not supported here.
        return [*calls, (shutil, "_use_fd_functions", False)]

    def _dispatch(
        self, owner: Any, name: str, paths: bool, descriptors: bool, own_name: str | None = None
    ) -> Callable[..., Any]:
        """Return a function that calls the original unless its first argument, a path or a descriptor, is virtual."""
        real = getattr(owner, name)
        virtual = getattr(self, own_name or name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not kwargs.keys().isdisjoint(_FOLDERS_OF_PATHS):
                args = self._below_folders(args, kwargs)
            subject: Any = args[0] if args else None
            if isinstance(subject, int) and subject >= FIRST_DESCRIPTOR and name == "scandir":
                subject = self._file(subject).description.path
            if isinstance(subject, int):
                if descriptors and subject >= FIRST_DESCRIPTOR:
                    return virtual(*args, **kwargs)
            elif hasattr(subject, "fileno"):
                if descriptors and not paths and subject.fileno() >= FIRST_DESCRIPTOR:
                    return virtual(subject.fileno(), *args[1:], **kwargs)
            elif paths and (place := self._place(subject)) is not None:
                return virtual(place, *args[1:], **kwargs)
            return real(*args, **kwargs)

        call.__name__ = name
        return call

    def _below_folders(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments with whole paths for names in virtual folders, and remove these folders."""
        paths = list(args)
        for argument, index in _FOLDERS_OF_PATHS.items():
            folder = kwargs.get(argument)
            if folder is not None and folder >= FIRST_DESCRIPTOR:
                del kwargs[argument]
                paths[index] = posixpath.join(self._file(folder).description.path, os.fsdecode(paths[index]))
        return tuple(paths)

    def _place(self, path: Any) -> Place | None:
        """Return the virtual place of a path, or None for a real path."""
        try:
            text = os.fsdecode(path)
        except TypeError:
            return None
        if not text.startswith(ROOT):
            return None
        parts = posixpath.normpath(text).split("/")[2:]
        disk = self._machine.disks.get(parts[0])
        if disk is None:
            refuse(errno.ENOENT, text)
        return Place(disk, parts[1:], text)

    def _descriptor(self, number: int) -> Descriptor:
        descriptor = self._machine.descriptor(number)
        if descriptor is None:
            refuse(errno.EBADF)
        return descriptor

    def _file(self, number: int) -> OpenFile:
        descriptor = self._descriptor(number)
        if not isinstance(descriptor, OpenFile):
            refuse(errno.ESPIPE)
        return descriptor

    def _file_to_change(self, number: int) -> OpenFile:
        self._file(number).description.disk.stall()
        return self._file(number)

    def _owner(self) -> Any:
        return self._onlooker if self._machine.running is None else self._machine.running.process

    # ------------------------------------------------------------ opening

    def open(self, place: Place, flags: int, mode: int = 0o777, *, dir_fd: None = None) -> int:
        assert dir_fd is None
        disk, path = place.disk, place.path
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        if flags & (os.O_CREAT | os.O_TRUNC):
            disk.stall()
        inode: Inode
        if flags & os.O_CREAT and place.names:
            folder, name = place.parent()
            if name not in folder.names:
                inode = disk.create(folder, name, mode, path)
            elif flags & os.O_EXCL:
                refuse(errno.EEXIST, path)
        inode = place.inode()
        if isinstance(inode, Folder) and writing:
            refuse(errno.EISDIR, path)
        if isinstance(inode, File) and flags & os.O_DIRECTORY:
            refuse(errno.ENOTDIR, path)
        if writing and disk.failing_writes == errno.EROFS:
            disk.check_writable(path)
        if flags & os.O_TRUNC and isinstance(inode, File) and inode.current:
            disk.truncate(inode, 0, path)
        return OpenFile(self._owner(), Description(disk, inode, flags, path)).number

    def open_file(
        self,
        file: Place | int,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> Any:
        """Open a file like `io.open`."""
        binary, kind = "b" in mode, mode.strip("bt+")
        if len(kind) != 1 or kind not in _ACCESS:
            raise ValueError(f"invalid mode: {mode!r}")
        updating = "+" in mode
        flags = (os.O_RDWR if updating else _ACCESS[kind]) | _CREATION[kind] | os.O_CLOEXEC
        name: str | int
        if isinstance(file, Place):
            name = file.path
            number = opener(name, flags) if opener is not None else self.open(file, flags, 0o666)
            if isinstance(self._file(number).description.inode, Folder):
                self.close(number)
                refuse(errno.EISDIR, name)
        else:
            name = number = file
        raw = VirtualFileIO(self._machine, number, name, mode, close_descriptor=closefd)
        if buffering == 0:
            if not binary:
                raise ValueError("can't have unbuffered text I/O")
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffered: Any
        if updating:
            buffered = io.BufferedRandom(raw, size)
        elif kind == "r":
            buffered = io.BufferedReader(raw, size)
        else:
            buffered = io.BufferedWriter(raw, size)
        if kind == "a":
            buffered.seek(0, os.SEEK_END)
        return (
            buffered
            if binary
            else io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline, buffering == 1)
        )

    def close(self, number: int) -> None:
        self._descriptor(number).close()

    def dup(self, number: int) -> int:
        return self._file(number).duplicate(self._owner()).number

    # ------------------------------------------------------------ bytes

    def read(self, number: int, size: int) -> bytes:
        descriptor = self._descriptor(number)
        if isinstance(descriptor, OpenFile):
            return descriptor.read(size)
        data: bytes = descriptor.receive_bytes(size)  # type: ignore[attr-defined]
        return data

    def pread(self, number: int, size: int, offset: int) -> bytes:
        return self._file(number).read_at(size, offset)

    def preadv(self, number: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
        rooms = [memoryview(buffer).cast("B") for buffer in buffers]
        data = self._file(number).read_at(sum(len(room) for room in rooms), offset)
        at = 0
        for room in rooms:
            piece = data[at : at + len(room)]
            room[: len(piece)] = piece
            at += len(piece)
        return len(data)

    def write(self, number: int, data: Any) -> int:
        descriptor = self._descriptor(number)
        if isinstance(descriptor, OpenFile):
            return self._file_to_change(number).write(data)
        sent: int = descriptor.send_bytes(data)  # type: ignore[attr-defined]
        return sent

    def pwrite(self, number: int, data: Any, offset: int) -> int:
        return self._file_to_change(number).write_at(data, offset)

    def pwritev(self, number: int, buffers: Iterable[Any], offset: int, flags: int = 0) -> int:
        return self._file_to_change(number).write_at(b"".join(buffers), offset)

    def lseek(self, number: int, position: int, whence: int) -> int:
        return self._file(number).seek(position, whence)

    def copy_file_range(
        self,
        source: int,
        target: int,
        count: int,
        offset_src: int | None = None,
        offset_dst: int | None = None,
    ) -> int:
        reading, writing = self._file(source), self._file_to_change(target)
        data = reading.read(count) if offset_src is None else reading.read_at(count, offset_src)
        return writing.write(data) if offset_dst is None else writing.write_at(data, offset_dst)

    def sendfile(self, out_fd: int, in_fd: int, offset: int | None, count: int) -> int:
        """Send data of a file, mostly to a socket, which raises BlockingIOError if it is full."""
        file = self._file(in_fd)
        data = file.read(count) if offset is None else file.read_at(count, offset)
        return self.write(out_fd, data) if data else 0

    def mmap(
        self, number: int, length: int, flags: int = 0, prot: int = 0, access: int = 0, offset: int = 0
    ) -> Any:
        """Return a copy of the file's contents, for readers that map a changed file again."""
        assert prot in (0, mmap.PROT_READ), "maps are for reading"
        assert access in (0, mmap.ACCESS_READ), "maps are for reading"
        file = self._file(number)
        size = len(file.description.file().current)
        if not length and offset >= size:
            raise ValueError("cannot mmap an empty file")
        if offset + length > size:
            raise ValueError("mmap length is greater than file size")
        return VirtualMap(file.read_at(length or size - offset, offset))

    # ------------------------------------------------------------ sizes and syncs

    def fsync(self, number: int) -> None:
        self._file(number).sync()

    def fdatasync(self, number: int) -> None:
        self._file(number).sync()

    def syncfs(self, number: int) -> None:
        description = self._file(number).description
        description.disk.sync_all(description.path)

    def page_cache_of(self, place: Place) -> PageCache:
        return place.disk.page_cache(place.inode())

    def check_writes(self, number: int) -> None:
        description = self._file(number).description
        description.disk.check_writes(description.inode)

    def ftruncate(self, number: int, length: int) -> None:
        self._file_to_change(number).truncate(length)

    def truncate(self, subject: Place | int, length: int) -> None:
        if isinstance(subject, int):
            self.ftruncate(subject, length)
            return
        subject.disk.stall()
        subject.disk.truncate(subject.file(), length, subject.path)

    def posix_fallocate(self, number: int, offset: int, length: int) -> None:
        file = self._file_to_change(number)
        if offset + length > len(file.description.file().current):
            file.truncate(offset + length)

    def posix_fadvise(self, number: int, offset: int, length: int, advice: int) -> None:
        inode = self._file(number).description.inode
        if advice == os.POSIX_FADV_DONTNEED and isinstance(inode, File):
            inode.drop_cache()

    # ------------------------------------------------------------ names

    def listdir(self, place: Place) -> list[str]:
        place.disk.check_readable(place.path)
        return list(place.folder().names)

    def scandir(self, place: Place) -> VirtualScan:
        place.disk.check_readable(place.path)
        names = place.folder().names
        return VirtualScan(
            [
                VirtualEntry(place.disk, inode, name, posixpath.join(place.path, name))
                for name, inode in names.items()
            ]
        )

    def mkdir(self, place: Place, mode: int = 0o777, *, dir_fd: None = None) -> None:
        assert dir_fd is None
        place.disk.stall()
        if not place.names:
            refuse(errno.EEXIST, place.path)
        folder, name = place.parent()
        place.disk.make_folder(folder, name, mode, place.path)

    def rmdir(self, place: Place, *, dir_fd: None = None) -> None:
        assert dir_fd is None
        place.disk.stall()
        parent, name = place.parent()
        if place.folder().names:
            refuse(errno.ENOTEMPTY, place.path)
        place.disk.check_writable(place.path)
        place.disk.change_names(parent, {name: None})

    def unlink(self, place: Place, *, dir_fd: None = None) -> None:
        assert dir_fd is None
        place.disk.stall()
        parent, name = place.parent()
        place.file()
        place.disk.check_writable(place.path)
        place.disk.change_names(parent, {name: None})

    remove = unlink

    def rename(self, source: Place, target: Any, *, src_dir_fd: None = None, dst_dir_fd: None = None) -> None:
        assert src_dir_fd is dst_dir_fd is None
        source.disk.stall()
        place = self._place(target)
        if place is None:
            refuse(errno.EXDEV, source.path)
        (folder, name), (new_folder, new_name) = source.parent(), place.parent()
        moved = source.inode()
        if place.disk is not source.disk:
            refuse(errno.EXDEV, source.path)
        replaced = new_folder.names.get(new_name)
        if replaced is moved:
            return
        if isinstance(replaced, Folder):
            if not isinstance(moved, Folder):
                refuse(errno.EISDIR, place.path)
            if replaced.names:
                refuse(errno.ENOTEMPTY, place.path)
        elif replaced is not None and isinstance(moved, Folder):
            refuse(errno.ENOTDIR, place.path)
        source.disk.check_writable(source.path)
        if new_folder is folder:
            source.disk.change_names(folder, {name: None, new_name: moved})
        else:
            source.disk.move(moved, folder, name, new_folder, new_name)
        machine = self._machine
        machine.trace.note(machine.now, source.disk.name, f"renames {source.path} {place.path}")

    replace = rename

    def link(self, source: Place, target: Any, **_: Any) -> None:
        source.disk.stall()
        place = self._place(target)
        if place is None or place.disk is not source.disk:
            refuse(errno.EXDEV, source.path)
        folder, name = place.parent()
        if name in folder.names:
            refuse(errno.EEXIST, place.path)
        linked = source.file()
        source.disk.check_writable(place.path)
        source.disk.set_name(folder, name, linked)

    # ------------------------------------------------------------ status

    def stat(
        self, subject: Place | int, *, dir_fd: None = None, follow_symlinks: bool = True
    ) -> os.stat_result:
        assert dir_fd is None
        return self.fstat(subject) if isinstance(subject, int) else subject.disk.status(subject.inode())

    lstat = stat

    def fstat(self, number: int) -> os.stat_result:
        descriptor = self._descriptor(number)
        if isinstance(descriptor, OpenFile):
            return descriptor.description.disk.status(descriptor.description.inode)
        return os.stat_result((stat.S_IFSOCK | 0o777, number, 0, 1, 0, 0, 0, 0, 0, 0))

    def access(self, place: Place, mode: int, **_: Any) -> bool:
        try:
            place.inode()
        except OSError:
            return False
        return not (mode & os.W_OK and place.disk.failing_writes == errno.EROFS)

    def utime(
        self,
        subject: Place | int,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        dir_fd: None = None,
        follow_symlinks: bool = True,
    ) -> None:
        disk, inode = self._disk_and_inode(subject)
        disk.check_writable(None)
        if ns is not None:
            inode.modified_ns = ns[1]
        else:
            inode.modified_ns = disk.now_ns() if times is None else int(times[1] * 1e9)

    def chmod(self, subject: Place | int, mode: int, **_: Any) -> None:
        disk, inode = self._disk_and_inode(subject)
        disk.check_writable(None)
        inode.mode = stat.S_IFMT(inode.mode) | mode & 0o7777

    def statvfs(self, subject: Place | int) -> os.statvfs_result:
        return self._disk_and_inode(subject)[0].volume_status()

    fstatvfs = statvfs

    def _disk_and_inode(self, subject: Place | int) -> tuple[VirtualDisk, Inode]:
        if isinstance(subject, Place):
            return subject.disk, subject.inode()
        description = self._file(subject).description
        return description.disk, description.inode

    # ------------------------------------------------------------ descriptors

    def flock(self, number: int, operation: int) -> None:
        self._file(number).flock(operation)

    def lockf(self, number: int, cmd: int, len: int = 0, start: int = 0, whence: int = 0) -> None:
        self._file(number).lockf(cmd)

    def set_blocking(self, number: int, blocking: bool) -> None:
        self._descriptor(number)

    def get_blocking(self, number: int) -> bool:
        self._descriptor(number)
        return False

    set_inheritable, get_inheritable = set_blocking, get_blocking
