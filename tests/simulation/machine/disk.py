"""The disk of a host, which keeps synced data, and a random part of the rest.

Every write and truncation of a file, and every change of a name, is pending until a sync covers it. A power loss keeps
a random part of the pending changes: writes may be lost, torn between sectors or reordered; changes of a folder's names
are lost from some point on. The death of a process alone loses nothing.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from ottla.dataplane.log.page_cache import PageCache

from .host import WALL_START_S
from .inodes import SECTOR_BYTES, Change, File, Folder, Inode

if TYPE_CHECKING:
    from .host import Host
    from .machine import Machine, Scheduled

ROOT = "/simulated/"
"""Prefix of virtual paths; the host's name follows, then the path on its disk."""

_BLOCK_BYTES = 4096
_NAME_BYTES_MAX = 255
_UNLIMITED_BYTES = 1 << 40
_FIRST_DEVICE = 1 << 20
_SLOW_SYNC_S = (0.05, 0.5)
_STALL_S = (10e-6, 2e-3)


def refuse(code: int, path: str | None = None) -> NoReturn:
    """Raise the OSError of a failed system call."""
    if path is None:
        raise OSError(code, os.strerror(code))
    raise OSError(code, os.strerror(code), path)


class VirtualDisk:
    """The disk of the host `name`, with paths below `/simulated/<name>`.

    The disk outlives processes. Scenarios make it fail by its public fields; `counts` says how often each fault
    occurred.
    """

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.device = _FIRST_DEVICE + len(machine.disks)
        self.root = Folder(1, 0o755, 0)
        self.root.links = 1
        self.counts: Counter[str] = Counter()
        #: how many bytes its files may have together; None: as many as they like
        self.capacity_bytes: int | None = None
        #: errno of every write (and change of names), or read, or sync from now on; None: they succeed
        self.failing_writes: int | None = None
        #: number of errors that the file system counts
        self.errors = 0
        self.failing_reads: int | None = None
        self.failing_syncs: int | None = None
        #: how long a sync takes, from and to
        self.sync_s = (0.0002, 0.003)
        #: syncs take 50 to 500 ms instead
        self.slow = False
        #: how often a change of a file or of names makes its thread wait, during which others run and it may be killed
        self.stall_probability = 0.02
        self._used_bytes = 0
        self._sequence = 0
        self._last_inode = 1
        self._syncs: dict[int, tuple[list[Inode], int, Scheduled]] = {}
        self._host: Host | None = None
        machine.disks[name] = self

    # ------------------------------------------------------------ faults

    @property
    def failing(self) -> int | None:
        """Errno of all writes and syncs, and of reads, too, if it is EIO; settable."""
        return self.failing_writes

    @failing.setter
    def failing(self, code: int | None) -> None:
        self.failing_writes = self.failing_syncs = code
        self.failing_reads = None if code == errno.EROFS else code

    def lose_power(self, *, keeps_some: bool = True) -> None:
        """Lose all data that is not durable, or a random part of it. The host's processes are gone by now."""
        random = self.machine.random
        self.counts["power losses"] += 1
        for inodes, sequence, finish in self._syncs.values():
            finish.cancel()
            for inode in inodes:
                if keeps_some and random.random() < 0.5:
                    inode.settle(sequence)
        self._syncs.clear()
        for inode in self._inodes():
            if keeps_some:
                inode.lose_power(random, self.counts)
            else:
                inode.lose_all_pending(self.counts)
            inode.links = 0
        self.root.links = 1
        self._count_links(self.root)
        self._used_bytes = sum(
            len(inode.current) for inode in self._inodes() if isinstance(inode, File) and inode.links
        )

    def flip(self, path: str | bytes | os.PathLike[str], position: int, bit: int = 0) -> None:
        """Flip one bit of a file, on the platters and for readers."""
        inode = self.find(self.inner(os.fsdecode(path)))
        assert isinstance(inode, File)
        for content in (inode.current, inode.durable):
            if position < len(content):
                content[position] ^= 1 << bit
        self.counts["flipped bits"] += 1

    def refuse_sector(self, path: str | bytes | os.PathLike[str], position: int) -> None:
        """Write a file back, and lose one sector of it. The next sync of the file reports that."""
        inode = self.find(self.inner(os.fsdecode(path)))
        assert isinstance(inode, File)
        inode.refuse(position)
        self.counts["refused sectors"] += 1

    @property
    def used_bytes(self) -> int:
        """Size of all files in bytes."""
        return self._used_bytes

    def _inodes(self) -> list[Inode]:
        """Return all inodes that have, had or may have a name."""
        found: dict[int, Inode] = {}
        left: list[Inode] = [self.root]
        while left:
            inode = left.pop()
            if inode.number not in found:
                found[inode.number] = inode
                if isinstance(inode, Folder):
                    left.extend(inode.ever_named())
        return list(found.values())

    def _count_links(self, folder: Folder) -> None:
        for inode in folder.names.values():
            inode.links += 1
            if isinstance(inode, Folder):
                self._count_links(inode)

    # ------------------------------------------------------------ paths

    def inner(self, path: str) -> list[str]:
        """Return the names on the virtual path, from the root of this disk; may be empty."""
        parts = posixpath.normpath(path).split("/")[2:]
        assert parts[0] == self.name, f"{path} is not on the disk of {self.name}"
        return parts[1:]

    def find(self, names: list[str], path: str | None = None) -> Inode:
        """Return the inode of a path. Raises FileNotFoundError or NotADirectoryError."""
        inode: Inode = self.root
        for name in names:
            if not isinstance(inode, Folder):
                refuse(errno.ENOTDIR, path)
            if name not in inode.names:
                refuse(errno.ENOENT, path)
            inode = inode.names[name]
        return inode

    def parent(self, names: list[str], path: str) -> tuple[Folder, str]:
        """Return the folder of a path, and the path's name in it. Raises OSError."""
        if not names:
            refuse(errno.EBUSY, path)
        folder = self.find(names[:-1], path)
        if not isinstance(folder, Folder):
            refuse(errno.ENOTDIR, path)
        if len(os.fsencode(names[-1])) > _NAME_BYTES_MAX:
            refuse(errno.ENAMETOOLONG, path)
        return folder, names[-1]

    # ------------------------------------------------------------ names

    def create(self, folder: Folder, name: str, mode: int, path: str) -> File:
        """Create an empty file. Raises OSError."""
        self.check_writable(path)
        self._check_room(path)
        file = File(self._inode_number(), mode & 0o777, self.now_ns())
        self.set_name(folder, name, file)
        return file

    def make_folder(self, folder: Folder, name: str, mode: int, path: str) -> None:
        """Create a folder. Raises OSError."""
        self.check_writable(path)
        if name in folder.names:
            refuse(errno.EEXIST, path)
        self._check_room(path)
        self.set_name(folder, name, Folder(self._inode_number(), mode & 0o777, self.now_ns()))

    def set_name(self, folder: Folder, name: str, inode: Inode) -> None:
        """Give an inode a new name, and replace the name's former inode."""
        self.change_names(folder, {name: inode})

    def change_names(self, folder: Folder, names: dict[str, Inode | None]) -> None:
        """Change several names of a folder at once; after a power loss all or none of the changes survive."""
        before = [folder.names[name] for name in names if name in folder.names]
        folder.change(self._next_sequence(), names)
        folder.modified_ns = self.now_ns()
        for inode in names.values():
            if inode is not None:
                inode.links += 1
        for inode in before:
            inode.links -= 1
            self.let_go(inode)

    def move(self, inode: Inode, folder: Folder, name: str, new_folder: Folder, new_name: str) -> None:
        """Move an inode to another folder.

        The move, and all earlier changes of both folders, become durable at once, so it is never half done.
        """
        self.change_names(new_folder, {new_name: inode})
        self.change_names(folder, {name: None})
        new_folder.settle(self._sequence)
        folder.settle(self._sequence)

    def let_go(self, inode: Inode) -> None:
        """Release a name or an open description; without any, the space is free."""
        if not inode.links and not inode.opened and isinstance(inode, File):
            self._used_bytes -= len(inode.current)

    # ------------------------------------------------------------ bytes

    def write(self, file: File, position: int, data: bytes, path: str) -> int:
        """Write, and return the number of written bytes: fewer than all when the disk gets full. Raises OSError."""
        self.check_writable(path)
        growth = position + len(data) - len(file.current)
        if growth > 0:
            if self.capacity_bytes is not None and self._used_bytes + growth > self.capacity_bytes:
                self.counts["full"] += 1
                data = data[: max(0, len(data) - (self._used_bytes + growth - self.capacity_bytes))]
                growth = position + len(data) - len(file.current)
                if not data:
                    refuse(errno.ENOSPC, path)
            self._used_bytes += max(0, growth)
        if data:
            file.change(Change(self._next_sequence(), position, data))
            file.modified_ns = self.now_ns()
        return len(data)

    def truncate(self, file: File, size: int, path: str) -> None:
        """Cut a file, or extend it by zeros. Raises OSError."""
        if size < 0:
            refuse(errno.EINVAL, path)
        self.check_writable(path)
        growth = size - len(file.current)
        if growth > 0 and self.capacity_bytes is not None and self._used_bytes + growth > self.capacity_bytes:
            self.counts["full"] += 1
            refuse(errno.ENOSPC, path)
        self._used_bytes += growth
        if growth:
            file.change(Change(self._next_sequence(), size, None))
        file.modified_ns = self.now_ns()

    def sync(self, inode: Inode, path: str) -> None:
        """Make earlier changes of the inode durable; the calling thread waits. Raises OSError."""
        self._sync([inode], path)

    def sync_all(self, path: str) -> None:
        """Make all earlier changes durable; the calling thread waits. Raises OSError.

        A later sync of a single file reports its failure, too.
        """
        self._sync(self._inodes(), path)

    def _sync(self, inodes: list[Inode], path: str) -> None:
        machine = self.machine
        sequence, thread = self._sequence, machine.running
        if thread is None:
            for inode in inodes:
                self._settle(inode, sequence, path)
            return
        if self.slow:
            self.counts["slow syncs"] += 1
        until = machine.now + machine.random.uniform(*(_SLOW_SYNC_S if self.slow else self.sync_s))
        failure: list[int] = []

        def finish() -> None:
            del self._syncs[ticket]
            if self.failing_syncs is not None:
                for inode in inodes:
                    inode.has_untold_failure = len(inodes) > 1 and inode.is_pending
                    inode.forget(sequence)
                failure.append(self.failing_syncs)
                return
            if len(inodes) == 1 and inodes[0].has_untold_failure:
                inodes[0].has_untold_failure = False
                failure.append(errno.EIO)
                return
            for inode in inodes:
                self._settle(inode, sequence, path)

        ticket = self._next_sequence()
        self._syncs[ticket] = (inodes, sequence, machine.at(until, finish))
        while ticket in self._syncs:
            thread.block(until)
        if failure:
            self.counts["failed syncs"] += 1
            refuse(failure[0], path)

    def _settle(self, inode: Inode, sequence: int, path: str) -> None:
        inode.settle(sequence)
        self.counts["syncs"] += 1
        size = len(inode.current) if isinstance(inode, File) else 0
        self.machine.trace.note(self.machine.now, self.name, f"syncs {path} {size}")

    # ------------------------------------------------------------ status

    def status(self, inode: Inode) -> os.stat_result:
        """Return the result of `os.stat`."""
        size = len(inode.current) if isinstance(inode, File) else _BLOCK_BYTES
        links = inode.links if isinstance(inode, File) else inode.links + 1
        nanoseconds = inode.modified_ns
        whole = nanoseconds // 1_000_000_000
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), nanoseconds / 1e9)
        times |= dict.fromkeys(("st_atime_ns", "st_mtime_ns", "st_ctime_ns"), nanoseconds)
        times |= {"st_blksize": _BLOCK_BYTES, "st_blocks": -(-size // SECTOR_BYTES)}
        fields = (inode.mode, inode.number, self.device, links, 0, 0, size, whole, whole, whole)
        return os.stat_result(fields, times)

    def volume_status(self) -> os.statvfs_result:
        """Return the result of `os.statvfs`."""
        capacity = _UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes
        free = max(0, capacity - self._used_bytes) // _BLOCK_BYTES
        flags = os.ST_RDONLY if self.failing_writes == errno.EROFS else 0
        blocks = capacity // _BLOCK_BYTES
        return os.statvfs_result(
            (
                _BLOCK_BYTES,
                _BLOCK_BYTES,
                blocks,
                free,
                free,
                1 << 20,
                1 << 20,
                1 << 20,
                flags,
                _NAME_BYTES_MAX,
            )
        )

    def page_cache(self, inode: Inode) -> PageCache:
        """Return the identity of the page cache behind a folder. The disk is never detached."""
        host = self._owner()
        return PageCache(host.boot if host else "", self.device, 1, self.errors, inode.number)

    def check_writes(self, inode: Inode) -> None:
        """Raise OSError if the disk has refused a write of a file, and no sync of the file has reported that."""
        if inode.has_untold_failure:
            inode.has_untold_failure = False
            refuse(errno.EIO)

    def now_ns(self) -> int:
        """Return the time of the host's wall clock."""
        host = self._owner()
        return int((host.wall_s() if host else WALL_START_S + self.machine.now) * 1e9)

    def _owner(self) -> Host | None:
        if self._host is None:
            self._host = next((host for host in self.machine.hosts.values() if host.disk is self), None)
        return self._host

    # ------------------------------------------------------------ checks

    def stall(self) -> None:
        """Take a while now and then; called at the start of every change."""
        thread = self.machine.running
        if thread is not None and self.machine.random.random() < self.stall_probability:
            self.counts["stalls"] += 1
            thread.block(self.machine.now + self.machine.random.uniform(*_STALL_S))

    def check_writable(self, path: str | None) -> None:
        """Check before a change. Raises OSError."""
        if self.failing_writes is not None:
            self.counts["failed writes"] += 1
            refuse(self.failing_writes, path)

    def check_readable(self, path: str | None) -> None:
        """Check before a read. Raises OSError."""
        if self.failing_reads is not None:
            self.counts["failed reads"] += 1
            refuse(self.failing_reads, path)

    def _check_room(self, path: str) -> None:
        if self.capacity_bytes is not None and self._used_bytes >= self.capacity_bytes:
            self.counts["full"] += 1
            refuse(errno.ENOSPC, path)

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _inode_number(self) -> int:
        self._last_inode += 1
        return self._last_inode
