"""A record of the log positions and terms that other nodes have acknowledged. It reveals a node that returns with an
older disk.

A node whose folder was restored from an older copy cannot notice, because the copy is intact. Its peers can: they
remember its highest acknowledged committed entry and the highest term in its messages. Neither ever decreases:

- A node acknowledges an entry after its sync, and committed entries are never truncated. Acknowledged entries that are
  not known to be committed do not count, since a later leader may replace them.
- A node sends nothing before its vote is durable, so a term in its messages is on its disk.

A leader records these values of its followers. A follower records them of its leader, which commits entries of its own
term only once they are durable on its own disk.

The file is written some time after a change, and when the node stops; for speed, acknowledgements do not wait for it. A
killed node may lose its latest records. It may then overlook a peer with an older disk, but it never accuses a peer
wrongly. This module takes no decisions.
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
    """The furthest state that a node has acknowledged: it has been in `term`, and has durably stored the committed
    entry at `index`, which has the term `index_term`."""

    term: int = 0
    index: int = 0
    index_term: int = 0

    def breach(self, term: int, index: int, index_term: int) -> str:
        """Return a text that says what is missing from a node in `term` with a durable log up to (`index`,
        `index_term`); empty if nothing is.

        Logs compare as in elections (Raft, section 5.4.1): a log that ends in a later term has every committed entry.
        """
        if (index_term, index) < (self.index_term, self.index):
            return f"its log ends at entry {index} of term {index_term}, not at {self.index} of term {self.index_term}"
        if term < self.term:
            return f"it is in term {term}, not in {self.term}, and may have forgotten a vote"
        return ""


_NOTHING = AcknowledgedIndex()


class AcknowledgedIndexes:
    """The highest term and log position that each other node has acknowledged to this node."""

    def __init__(self, known: dict[int, AcknowledgedIndex] | None = None) -> None:
        self._of = dict(known or {})
        self.changed = False
        """True if there are changes since the last `encode`."""

    def of(self, peer: int) -> AcknowledgedIndex:
        """Return the highest acknowledgement of `peer`."""
        return self._of.get(peer, _NOTHING)

    def spoke_in(self, peer: int, term: int) -> None:
        """Record that a message of `peer` states `term`."""
        known = self._of.get(peer, _NOTHING)
        if term > known.term:
            self._of[peer] = replace(known, term=term)
            self.changed = True

    def acknowledged(self, peer: int, index: int, index_term: int) -> None:
        """Record that `peer` has stored this committed entry durably."""
        known = self._of.get(peer, _NOTHING)
        if (index_term, index) > (known.index_term, known.index):
            self._of[peer] = AcknowledgedIndex(known.term, index, index_term)
            self.changed = True

    def encode(self) -> bytes:
        """Return all acknowledgements as bytes for the file, and reset `changed`."""
        self.changed = False
        return b"".join(
            _ENTRY.pack(peer, known.term, known.index, known.index_term)
            for peer, known in sorted(self._of.items())
        )


def load(disk: Disk) -> AcknowledgedIndexes:
    """Load the saved records; there are none without the file. Raises CorruptFile."""
    body = read_checked(disk, FILE_NAME, _MAGIC) or b""
    if len(body) % _ENTRY.size:
        raise CorruptFile(f"{FILE_NAME} holds {len(body)} bytes, which are not whole entries")
    return AcknowledgedIndexes({peer: AcknowledgedIndex(*rest) for peer, *rest in _ENTRY.iter_unpack(body)})


def save(disk: Disk, body: bytes) -> None:
    """Store the bytes from `AcknowledgedIndexes.encode` durably. Blocks."""
    write_checked(disk, FILE_NAME, _MAGIC, body)


def forget(disk: Disk) -> None:
    """Delete the records, because an operator has restored older folders on purpose. Blocks."""
    disk.remove(FILE_NAME)
    disk.sync_names()
