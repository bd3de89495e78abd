"""Which commands have made the state: a mark that tells two histories of one length apart. Pure.

The state after a quorum was restored from copies may reach as far as before, by other commands, and in a term of the
same number. So a mark is the term of the last command that changed the image, and a checksum of all commands applied
in that term up to it. Every node comes to the same mark, whatever snapshots it started from. 0 stands for unknown:
a snapshot of a version without marks leaves it so until the next term.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

UNKNOWN = 0


@dataclass(slots=True)
class History:
    """What has been applied."""

    term: int = 0
    """Of the last command; -1 where not even that is known."""
    checksum: int | None = 0
    """Of the commands of that term; None unknown."""
    mark: int = UNKNOWN
    """Of the last command that changed the image."""

    def applied(self, term: int, command: bytes) -> None:
        """The next command."""
        if term != self.term:
            self.checksum = None if self.term < 0 else 0
            self.term = term
        if self.checksum is not None:
            self.checksum = zlib.crc32(command, self.checksum)

    def changed(self) -> None:
        """The command applied last has changed the image."""
        self.mark = UNKNOWN if self.checksum is None else self.term << 32 | self.checksum
