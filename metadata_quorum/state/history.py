"""A mark that identifies the commands that made the state, so that two histories of equal length differ. Pure.

A quorum that was restored from copies may reach the same offset as before by other commands, in a term of the same
number. A mark is therefore the term of the last command that changed the image, and a checksum of all commands applied
in that term up to it. Every node computes the same mark, whatever snapshots it started from. 0 stands for unknown: a
snapshot of a version without marks leaves the mark unknown until the next term.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

UNKNOWN = 0


@dataclass(slots=True)
class History:
    """The running history mark of the applied commands: the current Raft term, and a checksum of the commands applied
    in it."""

    term: int = 0
    """Term of the last command; -1 if even that is unknown."""
    checksum: int | None = 0
    """Checksum of the commands of that term; None if unknown."""
    mark: int = UNKNOWN
    """Mark of the last command that changed the image."""

    def applied(self, term: int, command: bytes) -> None:
        """Add the next applied command to the term's checksum."""
        if term != self.term:
            self.checksum = None if self.term < 0 else 0
            self.term = term
        if self.checksum is not None:
            self.checksum = zlib.crc32(command, self.checksum)

    def changed(self) -> None:
        """Update the mark, because the last command has changed the image."""
        self.mark = UNKNOWN if self.checksum is None else self.term << 32 | self.checksum
