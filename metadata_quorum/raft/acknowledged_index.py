"""What the other nodes have promised, so that one that comes back with less is noticed. No decisions.

A node whose folder was put back from an older copy cannot tell: the copy is whole. Its peers can. They remember how
far it has acknowledged entries that are committed, and the highest term it has spoken in. Both never go back:

- an acknowledgement follows the sync, and what is committed is never truncated. Entries that were acknowledged and
  are not known to be committed do not count: a later leader may replace them;
- nothing leaves a node before its vote is durable, so a term that was heard is on its disk.

A leader knows it of its followers. A follower knows it of its leader, which commits entries of its own term only
once they are durable on its own disk.

The file is written some time after a change, and when the node stops: for speed, no acknowledgement waits for it. A
node that is killed may forget what it learned last. It then misses a peer that came back with less, never the
opposite.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from .disk import CorruptFile, Disk, read_checked, write_checked

FILE_NAME = "promises"
_MAGIC = b"OTTLPROM"
_ENTRY = struct.Struct(">iQQQ")


@dataclass(frozen=True, slots=True)
class AcknowledgedIndex:
    """A node has been in `term` and has, durably, the committed entry at `index`, which is of `index_term`."""

    term: int = 0
    index: int = 0
    index_term: int = 0

    def breach(self, term: int, index: int, index_term: int) -> str:
        """What a node lacks of it that is in `term` with a durable log up to (`index`, `index_term`); empty for
        nothing.

        Logs compare as in elections (Raft, section 5.4.1): one that ends in a later term has all that was committed.
        """
        if (index_term, index) < (self.index_term, self.index):
            return f"its log ends at entry {index} of term {index_term}, not at {self.index} of term {self.index_term}"
        if term < self.term:
            return f"it is in term {term}, not in {self.term}, and may have forgotten a vote"
        return ""


_NOTHING = AcknowledgedIndex()


class AcknowledgedIndexes:
    """The promises of every other node, as this node knows them."""

    def __init__(self, known: dict[int, AcknowledgedIndex] | None = None) -> None:
        self._of = dict(known or {})
        self.changed = False
        """Whether there is more to know than `encode` has given out."""

    def of(self, peer: int) -> AcknowledgedIndex:
        """What `peer` has promised."""
        return self._of.get(peer, _NOTHING)

    def spoke_in(self, peer: int, term: int) -> None:
        """A message of `peer` says that it is in `term`."""
        known = self._of.get(peer, _NOTHING)
        if term > known.term:
            self._of[peer] = replace(known, term=term)
            self.changed = True

    def acknowledged(self, peer: int, index: int, index_term: int) -> None:
        """`peer` has this entry durably, and it is committed."""
        known = self._of.get(peer, _NOTHING)
        if (index_term, index) > (known.index_term, known.index):
            self._of[peer] = AcknowledgedIndex(known.term, index, index_term)
            self.changed = True

    def encode(self) -> bytes:
        """What to save."""
        self.changed = False
        return b"".join(
            _ENTRY.pack(peer, known.term, known.index, known.index_term)
            for peer, known in sorted(self._of.items())
        )


def load(disk: Disk) -> AcknowledgedIndexes:
    """The saved promises, none for a folder without the file. Raises CorruptFile."""
    body = read_checked(disk, FILE_NAME, _MAGIC) or b""
    if len(body) % _ENTRY.size:
        raise CorruptFile(f"{FILE_NAME} holds {len(body)} bytes, which are not whole entries")
    return AcknowledgedIndexes({peer: AcknowledgedIndex(*rest) for peer, *rest in _ENTRY.iter_unpack(body)})


def save(disk: Disk, body: bytes) -> None:
    """Make what `AcknowledgedIndexes.encode` gave durable. Blocks."""
    write_checked(disk, FILE_NAME, _MAGIC, body)


def forget(disk: Disk) -> None:
    """An operator has put older folders back on purpose: what was promised before does not count. Blocks."""
    disk.remove(FILE_NAME)
    disk.sync_names()
