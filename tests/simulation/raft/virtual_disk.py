"""A disk that keeps exactly its promises.

Every write, truncation, creation, rename and removal is pending until a sync covers it. A power loss keeps a random
part of the pending changes: writes may be lost, torn or reordered, changes of names are lost from some point on.

A job that runs off the loop is played to its end at once, but its syncs take effect when the simulation says that it is
finished. An earlier crash stops it at one of its syncs, and its later actions never happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random


@dataclass(slots=True)
class Pending:
    """A change of a file or of the names that is not durable yet."""

    sequence: int
    job: int
    apply: tuple[str, int, bytes] | tuple[str, str, object]


@dataclass(slots=True, eq=False)
class Inode:
    """The bytes of a file: durable, pending, and for readers."""

    durable: bytearray = field(default_factory=bytearray)
    current: bytearray = field(default_factory=bytearray)
    pending: list[Pending] = field(default_factory=list)


@dataclass(slots=True)
class Job:
    """Work off the loop, with the changes that its syncs cover, in order."""

    number: int
    syncs: list[tuple[int, Inode | None]] = field(default_factory=list)


class VirtualDisk:
    """The folder of one node, which survives the node."""

    def __init__(self) -> None:
        self._durable_names: dict[str, Inode] = {}
        self._names: dict[str, Inode] = {}
        self._pending_names: list[Pending] = []
        self._sequence = 0
        self._jobs: dict[int, Job] = {}
        self._job: Job | None = None
        self._job_numbers = 0

    def copy(self) -> VirtualDisk:
        """Return a copy of a stopped node's folder, as a reader sees it; the whole copy is durable."""
        copied = VirtualDisk()
        for name, inode in self._names.items():
            copied._names[name] = Inode(bytearray(inode.current), bytearray(inode.current))
        copied._durable_names = dict(copied._names)
        return copied

    def names(self) -> list[str]:
        return sorted(self._names)

    def open(self, name: str) -> VirtualFile:
        if name not in self._names:
            raise FileNotFoundError(name)
        return VirtualFile(self, self._names[name])

    def create(self, name: str) -> VirtualFile:
        inode = Inode()
        self._change_names("set", name, inode)
        return VirtualFile(self, inode)

    def rename(self, name: str, new_name: str) -> None:
        inode = self._names[name]
        self._change_names("remove", name, None)
        self._change_names("set", new_name, inode)

    def remove(self, name: str) -> None:
        if name in self._names:
            self._change_names("remove", name, None)

    def sync_names(self) -> None:
        self._sync(None)

    def begin_job(self, work: Callable[[], object]) -> tuple[Job, object, Exception | None]:
        """Play `work`; its syncs wait for `finish_job`."""
        self._job_numbers += 1
        job = self._jobs[self._job_numbers] = self._job = Job(self._job_numbers)
        try:
            return job, work(), None
        except Exception as error:
            return job, None, error
        finally:
            self._job = None

    def finish_job(self, job: Job) -> None:
        """Make all synced changes of the job durable."""
        for sequence, inode in job.syncs:
            self._make_durable(sequence, inode, job.number)
        del self._jobs[job.number]

    def crash(self, random: Random, *, power_loss: bool) -> None:
        """Stop every job at some point; with `power_loss` lose the changes that are not durable."""
        for job in self._jobs.values():
            reached = random.randint(0, len(job.syncs))
            for sequence, inode in job.syncs[:reached]:
                self._make_durable(sequence, inode, job.number)
            if reached < len(job.syncs):
                self._undo(job, job.syncs[reached][0])
        self._jobs.clear()
        inodes = {id(inode): inode for inode in [*self._names.values(), *self._durable_names.values()]}
        for pending in self._pending_names:
            if isinstance(pending.apply[2], Inode):
                inodes[id(pending.apply[2])] = pending.apply[2]
        if power_loss:
            self._pending_names = self._pending_names[: random.randint(0, len(self._pending_names))]
            for change in self._pending_names:
                _change(self._durable_names, change)
            self._pending_names = []
            for inode in inodes.values():
                for pending in inode.pending:
                    survived = _survivor(pending, random)
                    if survived is not None:
                        _write(inode.durable, survived)
                inode.pending.clear()
        self._names = dict(self._durable_names)
        for change in self._pending_names:
            _change(self._names, change)
        for inode in inodes.values():
            inode.current = bytearray(inode.durable)
            for pending in inode.pending:
                _write(inode.current, pending)

    def change_file(self, inode: Inode, kind: str, position: int, data: bytes) -> None:
        """Apply a change to a file."""
        self._sequence += 1
        pending = Pending(self._sequence, self._job.number if self._job else 0, (kind, position, data))
        inode.pending.append(pending)
        _write(inode.current, pending)

    def sync_file(self, inode: Inode) -> None:
        """Sync a file."""
        self._sync(inode)

    def _sync(self, inode: Inode | None) -> None:
        self._sequence += 1
        if self._job is not None:
            self._job.syncs.append((self._sequence, inode))
        else:
            self._make_durable(self._sequence, inode, 0)

    def _make_durable(self, sequence: int, inode: Inode | None, job: int) -> None:
        """Make the changes before the sync durable, except those of other unfinished jobs, which may not have happened
        yet.
        """

        def covered(pending: Pending) -> bool:
            return pending.sequence < sequence and (pending.job == job or pending.job not in self._jobs)

        if inode is None:
            for change in filter(covered, self._pending_names):
                _change(self._durable_names, change)
            self._pending_names = [change for change in self._pending_names if not covered(change)]
        else:
            for pending in filter(covered, inode.pending):
                _write(inode.durable, pending)
            inode.pending = [pending for pending in inode.pending if not covered(pending)]

    def _undo(self, job: Job, sequence: int) -> None:
        def happened(pending: Pending) -> bool:
            return pending.job != job.number or pending.sequence < sequence

        for inode in list(self._names.values()):
            inode.pending = [pending for pending in inode.pending if happened(pending)]
        self._pending_names = [change for change in self._pending_names if happened(change)]

    def _change_names(self, kind: str, name: str, inode: Inode | None) -> None:
        self._sequence += 1
        change = Pending(self._sequence, self._job.number if self._job else 0, (kind, name, inode))
        self._pending_names.append(change)
        _change(self._names, change)


class VirtualFile:
    """An open file, which outlives its name."""

    def __init__(self, disk: VirtualDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._inode.current[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        self._disk.change_file(self._inode, "write", offset, bytes(data))

    def truncate(self, size: int) -> None:
        self._disk.change_file(self._inode, "truncate", size, b"")

    def size(self) -> int:
        return len(self._inode.current)

    def sync(self) -> None:
        self._disk.sync_file(self._inode)

    def close(self) -> None:
        pass


def _write(content: bytearray, pending: Pending) -> None:
    kind, position, data = pending.apply
    assert isinstance(position, int)
    assert isinstance(data, bytes)
    if kind == "truncate":
        del content[position:]
        return
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _change(names: dict[str, Inode], change: Pending) -> None:
    kind, name, inode = change.apply
    assert isinstance(name, str)
    if kind == "set":
        assert isinstance(inode, Inode)
        names[name] = inode
    else:
        names.pop(name, None)


def _survivor(pending: Pending, random: Random) -> Pending | None:
    kind, position, data = pending.apply
    assert isinstance(position, int)
    assert isinstance(data, bytes)
    fate = random.random()
    if fate < 0.4:
        return None
    if fate < 0.7 and kind == "write":
        return Pending(0, 0, ("write", position, data[: random.randint(0, len(data))]))
    return pending
