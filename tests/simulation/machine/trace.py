"""The events of a run: hashed, so that two runs can be compared, and written to a sink if there is one."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b


class Trace:
    """A recorder of every event, with a digest of all."""

    def __init__(self, sink: Callable[[str], object] | None = None) -> None:
        self._hash = blake2b(digest_size=16)
        self._sink = sink

    def note(self, now: float, actor: str, event: str) -> None:
        """Note an event of the run, which the digest covers."""
        line = f"{now:.6f} {actor} {event}\n"
        self._hash.update(line.encode())
        if self._sink is not None:
            self._sink(line)

    def remark(self, now: float, actor: str, text: str) -> None:
        """Note a text for the reader alone, such as a log line."""
        if self._sink is not None:
            self._sink(f"{now:.6f} {actor} {text}\n")

    @property
    def wanted(self) -> bool:
        """True if the trace has a reader."""
        return self._sink is not None

    def digest(self) -> str:
        return self._hash.hexdigest()
