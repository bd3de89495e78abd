"""The state of a spool's folder besides the records: the spool's identity, and the delivered position last known.

lock          held by the producer that uses the folder
identity      the spool's id, its run, and the names under which it has committed its position in the cluster
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
"""The number of bits of a record's index within its run; the higher bits of a position are the run's number. A run
begins when a producer opens the folder. So records that the previous producer wrote last and a power failure has
deleted share no position with new records."""
RUNS_MAX: Final = 1 << 62 - INDEX_BITS
_FORMAT: Final = 1
_CHECKPOINT: Final = struct.Struct(">qq?")
_CRC: Final = struct.Struct(">I")


class Checkpoint(NamedTuple):
    """The progress of delivery: all records before `delivered` are delivered or rejected.

    `open` is True if more records may be delivered, up to `under_way` or, after a power failure, beyond.
    """

    delivered: int = 0
    under_way: int = 0
    open: bool = False


@dataclass(frozen=True, slots=True)
class SpoolIdentity:
    """The identity of a spool.

    `owner` is the name under which the cluster last knew this folder. `next_owner` is the name under which the cluster
    may know it since. A copy of the folder has other names.
    """

    id: str
    run: int = 0
    owner: str = ""
    next_owner: str = ""

    @property
    def name(self) -> str:
        """The transactional id of the spool, and the group that stores its position."""
        return f"ottla-spool-{self.id}"


class Folder:
    """The folder of a spool, locked from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = SpoolIdentity("")
        self.checkpoint = Checkpoint()
        self._lock = -1
        self._delivered = -1
        _folders.add(self)

    def open(self) -> None:
        """Create the folder if it does not exist, lock it, and begin a run. Raises SpoolUnusable if it is in use, or
        damaged."""
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
        """Unlock the folder; idempotent."""
        descriptors = (self._delivered, self._lock)
        # They are reset first, so that the child of a fork closes no descriptor twice.
        self._delivered = self._lock = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def leave_behind(self) -> None:
        """Close the lock in the child of a fork. The lock is the parent's, and would last until each process with the
        descriptor has closed it."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def begin_owner(self, known_as: str) -> None:
        """Note that the cluster knows the folder as `known_as`, and choose a new name for the next commits. Durable on
        return."""
        self._keep(replace(self.identity, owner=known_as, next_owner=secrets.token_hex(8)))

    def keep(self, checkpoint: Checkpoint, *, durably: bool = False) -> None:
        """Write a checkpoint (progress of delivery) to the folder; `durably` waits until it is on the disk."""
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
        # There is no checkpoint, or it is damaged. If the cluster may know an owner, more may be delivered than the
        # folder knows.
        known = bool(self.identity.owner or self.identity.next_owner)
        return Checkpoint(open=known)


_folders: WeakSet[Folder] = WeakSet()


def _after_fork() -> None:
    for folder in _folders:
        folder.leave_behind()


os.register_at_fork(after_in_child=_after_fork)


def sync_folder(path: Path) -> None:
    """Make the file names in a folder durable, by fsync of the folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
