"""Faults of disks besides slowness and lack of space: errors, refused writes, failing syncs, rotting bits.

Each function returns how to mend the fault, or None if it cannot hit this node now. Bits rot only where other replicas
have the lost data: in a closed segment while another in-sync replica is complete, or in the journal of one quorum node
in a run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import RESTART_AFTER_S, Node

if TYPE_CHECKING:
    from tests.simulation.cluster.faults import Faults

Mend = Callable[[], None]
JOURNAL_BYTES_MIN = 2000
"""Smallest size in bytes of a journal that may rot. A record of a shorter journal may be one that no later record
confirms as durable, like a torn one."""
STARTS_WITHIN_S = 2.0


def disk_error(_faults: Faults, node: Node, _random: Random) -> Mend:
    """Fail every read, write and sync."""
    return _failing(node, errno.EIO)


def read_only_disk(_faults: Faults, node: Node, _random: Random) -> Mend:
    """Make the disk read-only, as the system does after an error."""
    return _failing(node, errno.EROFS)


def _failing(node: Node, code: int) -> Mend:
    disk = node.host.disk
    disk.failing = code

    def mend() -> None:
        disk.failing = None

    return mend


def failing_syncs(faults: Faults, node: Node, _random: Random) -> Mend | None:
    """Fail syncs; the affected data is never written, though it can still be read."""
    if not faults.may_lose_unflushed(node):
        return None
    disk = node.host.disk
    disk.failing_syncs = errno.EIO

    def mend() -> None:
        disk.failing_syncs = None

    return mend


def rot(faults: Faults, node: Node, random: Random) -> Mend | None:
    """Flip a bit of data that was written some time ago."""
    if node.host.disk.failing_reads is not None:
        return None
    return _journal_rot(faults, node, random) if node.role == "quorum" else _log_rot(faults, node, random)


@dataclass(frozen=True, slots=True)
class Rot:
    """The place and value of a changed byte in a closed segment."""

    node: Node
    path: Path
    position: int
    byte: int

    def is_there(self) -> bool:
        """Return whether the damaged segment is still in use; it is not after deletion, moving or setting aside."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.position)
                return file.read(1) == bytes([self.byte])
        except FileNotFoundError:
            return False
        except OSError:
            return True


def _log_rot(faults: Faults, node: Node, random: Random) -> Mend | None:
    """Flip a bit in a closed segment. The broker is sometimes restarted, so that recovery meets the damage, too.

    Skipped while another broker has undetected damage. Each log is hit once, since a copy that is damaged again stays
    offline until the broker is restarted.
    """
    found = [
        segment
        for partition in node.replicas()
        for segment in partition.log.segments[:-1]
        if segment.size and all(rot.path.parent != segment.path.parent for rot in faults.rotten)
    ]
    if not node.up or not found or not faults.others_have(node):
        return None
    if any(rot.is_there() for rot in faults.rotten if rot.node is not node):
        return None
    segment = random.choice(found)
    position = random.randrange(segment.size)
    node.host.disk.flip(segment.path, position, random.randrange(8))
    with open(segment.path, "rb") as file:
        file.seek(position)
        (byte,) = file.read(1)
    faults.rotten.append(Rot(node, segment.path, position, byte))
    faults.note(node, f"rots: {segment.path} at byte {position}")
    if random.random() < 0.5:
        node.kill()
        return node.start
    return lambda: None


def _journal_rot(faults: Faults, node: Node, random: Random) -> Mend | None:
    """Flip a bit in the journal of a quorum node and restart it.

    The node must refuse to start, since it may have acknowledged lost entries. Once the loss is known, an operator
    replaces it by a node with an empty folder.
    """
    if not node.up or node.host.disk.slow or faults.replaced is not None:
        return None
    folder = f"{node.folder}"
    journals = [
        path
        for name in sorted(os.listdir(folder))
        if name.startswith("journal-") and os.path.getsize(path := f"{folder}/{name}") >= JOURNAL_BYTES_MIN
    ]
    if not journals:
        return None
    path = journals[0]
    position = random.randrange(os.path.getsize(path) // 3)
    faults.replaced = node
    node.kill()
    node.host.disk.flip(path, position, random.randrange(8))
    faults.note(node, f"rots: {path} at byte {position}")
    before = node.gave_up
    node.start()

    def mend() -> None:
        if node.gave_up == before and node.process is not None and node.process.alive:
            faults.after(STARTS_WITHIN_S, must_have_refused)
        else:
            replace()

    def must_have_refused() -> None:
        if node.gave_up == before:
            raise InvariantBroken("rot is found", f"{node.name} starts with a damaged journal")
        replace()

    def replace() -> None:
        if node.host.disk.failing_writes is not None:
            faults.after(RESTART_AFTER_S, replace)
            return
        node.kill()
        _empty(folder)
        node.replaces = True
        faults.after(RESTART_AFTER_S, node.start)

    return mend


def _empty(folder: str) -> None:
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if os.path.isdir(path):
            _empty(path)
            os.rmdir(path)
        else:
            os.unlink(path)


KINDS: dict[str, Callable[[Faults, Node, Random], Mend | None]] = {
    "disk error": disk_error,
    "read-only disk": read_only_disk,
    "failing syncs": failing_syncs,
    "rot": rot,
}
