"""Consumers' fetches that wait for a change of one replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dependencies import Reader


class Readers:
    """The consumers' fetches that wait for a change of one replica. Each is woken once: when the high watermark or the
    log start moves, or the role changes.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Reader, None] = {}

    def add(self, reader: Reader) -> None:
        """Wake this consumer's fetch at the next change of the replica."""
        self._waiting[reader] = None

    def discard(self, reader: Reader) -> None:
        """Remove a consumer's fetch, if it is still waiting."""
        self._waiting.pop(reader, None)

    def wake(self) -> None:
        """Wake all waiting fetches, and forget them."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.wake()
