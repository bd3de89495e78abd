"""Who reads from one replica for consumers, and waits for something new there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dependencies import Reader


class Readers:
    """Each is woken once, when the high watermark or the log start offset moves, or the role changes."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Reader, None] = {}

    def add(self, reader: Reader) -> None:
        """Wake it the next time."""
        self._waiting[reader] = None

    def discard(self, reader: Reader) -> None:
        """Forget it, if it is still waiting."""
        self._waiting.pop(reader, None)

    def wake(self) -> None:
        """There is something new."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.wake()
