"""What a spool's folder keeps beside the records: who it is, and how far it was delivered as it last knew.

lock          held by the one producer that uses the folder
identity      the spool's id, its run, and under which names it has told the cluster how far it is
delivered     the checkpoint: written at every step, so it is overwritten in place
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import struct
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakSet

from ...protocol.checksum import crc32c
from ..failures import SpoolUnusable

INDEX_BITS: Final = 40
"""A position is the number of a run and, in so many bits, of a record in it. A run begins when a producer opens the
folder: what the one before has written last, and a power failure has taken, shares no position with anything."""
RUNS_MAX: Final = 1 << 62 - INDEX_BITS
_FORMAT: Final = 1
_CHECKPOINT: Final = struct.Struct(">qq?")
_CRC: Final = struct.Struct(">I")


class Checkpoint(NamedTuple):
    """All records before `delivered` are delivered or rejected. `open`: there may be more that are, up to
    `under_way` or, after a power failure, beyond.
    """

    delivered: int = 0
    under_way: int = 0
    open: bool = False


@dataclass(frozen=True, slots=True)
class SpoolIdentity:
    """Who a spool is. `owner`: the name under which the cluster last knew this folder; `next_owner`: the one under
    which it may know it since. A copy of the folder has others.
    """

    id: str
    run: int = 0
    owner: str = ""
    next_owner: str = ""

    @property
    def name(self) -> str:
        """Its transactional id, and the group that keeps its position."""
        return f"ottla-spool-{self.id}"


class Folder:
    """Of one spool, locked from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = SpoolIdentity("")
        self.checkpoint = Checkpoint()
        self._lock = -1
        self._delivered = -1
        _folders.add(self)

    def open(self) -> None:
        """Make it if it is not there, and begin a run. Raises SpoolUnusable: it is in use, or damaged."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SpoolUnusable(f"the spool {self.path} is used by another producer") from None
            self._read_identity()
            self._delivered = os.open(self.path / "delivered", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.keep(self._read_checkpoint(), durably=True)
            sync_folder(self.path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others use it; idempotent."""
        descriptors = (self._delivered, self._lock)
        self._delivered = self._lock = -1  # first: the child of a fork closes nothing twice
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def leave_behind(self) -> None:
        """This is the child of a fork: the lock is the parent's, and would not end before each process that has it."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def begin_owner(self, known_as: str) -> None:
        """The cluster knows the folder as `known_as`, and will know it under a new name. Durable on return."""
        self._keep(replace(self.identity, owner=known_as, next_owner=secrets.token_hex(8)))

    def keep(self, checkpoint: Checkpoint, *, durably: bool = False) -> None:
        """Write a checkpoint down."""
        data = _CHECKPOINT.pack(*checkpoint)
        os.pwrite(self._delivered, data + _CRC.pack(crc32c(data)), 0)
        if durably:
            os.fdatasync(self._delivered)
        self.checkpoint = checkpoint

    def _read_identity(self) -> None:
        path = self.path / "identity"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            if any(self.path.glob("*.spool")):
                raise SpoolUnusable(f"the spool {self.path} has records, and no file 'identity'") from None
            identity = SpoolIdentity(secrets.token_hex(16))
        else:
            identity = self._parsed(content)
        if identity.run + 1 >= RUNS_MAX:
            raise SpoolUnusable(f"the spool {self.path} was opened {RUNS_MAX} times: begin a new one")
        self._keep(replace(identity, run=identity.run + 1))

    def _parsed(self, content: bytes) -> SpoolIdentity:
        line, _, crc = content.partition(b"\n")
        try:
            if crc.strip() != b"%08x" % crc32c(line):
                raise ValueError("its checksum is wrong")
            fields = json.loads(line)
            if fields.pop("format") != _FORMAT:
                raise ValueError(f"its format is not {_FORMAT}")
            return SpoolIdentity(**fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SpoolUnusable(
                f"the file 'identity' of the spool {self.path} is damaged: {error}"
            ) from error

    def _keep(self, identity: SpoolIdentity) -> None:
        line = json.dumps({"format": _FORMAT, **asdict(identity)}).encode()
        written = self.path / "identity.new"
        with written.open("wb") as file:
            file.write(line + b"\n%08x\n" % crc32c(line))
            file.flush()
            os.fsync(file.fileno())
        written.replace(self.path / "identity")
        sync_folder(self.path)
        self.identity = identity

    def _read_checkpoint(self) -> Checkpoint:
        content = os.pread(self._delivered, _CHECKPOINT.size + _CRC.size, 0)
        data, crc = content[: _CHECKPOINT.size], content[_CHECKPOINT.size :]
        if len(content) == _CHECKPOINT.size + _CRC.size and crc == _CRC.pack(crc32c(data)):
            return Checkpoint(*_CHECKPOINT.unpack(data))
        # None yet, or it is damaged: whom the cluster may know may have delivered more than is known here.
        known = bool(self.identity.owner or self.identity.next_owner)
        return Checkpoint(open=known)


_folders: WeakSet[Folder] = WeakSet()


def _after_fork() -> None:
    for folder in _folders:
        folder.leave_behind()


os.register_at_fork(after_in_child=_after_fork)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
