"""What happens in a run: hashed, so that two runs can be compared, and written down if somebody wants to read it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b


class Trace:
    """Takes every event; keeps a digest of all."""

    def __init__(self, sink: Callable[[str], object] | None = None) -> None:
        self._hash = blake2b(digest_size=16)
        self._sink = sink

    def note(self, now: float, actor: str, event: str) -> None:
        """An event that belongs to the run: the digest covers it."""
        line = f"{now:.6f} {actor} {event}\n"
        self._hash.update(line.encode())
        if self._sink is not None:
            self._sink(line)

    def remark(self, now: float, actor: str, text: str) -> None:
        """Something said for the reader alone, such as a log line."""
        if self._sink is not None:
            self._sink(f"{now:.6f} {actor} {text}\n")

    @property
    def wanted(self) -> bool:
        """Whether somebody reads it."""
        return self._sink is not None

    def digest(self) -> str:
        return self._hash.hexdigest()
