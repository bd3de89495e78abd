"""Exactly-once commands: what each broker's session has applied, and the results not acknowledged yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.messages.quorum_commands import Session

Kept = tuple[int, bytes]
"""(metadata offset after the command, its encoded result)"""


#: a broker has at most 256 commands without an answer; what one keeps beyond is its own loss
KEPT_RESULTS_MAX = 1024
KEPT_BYTES_MAX = 32 * 1024 * 1024


@dataclass(slots=True)
class CommandSession:
    """Invariant: `kept` holds results of sequences in (acknowledged, last], in their order, within bounds."""

    broker_epoch: int
    last: int = 0
    kept: dict[int, Kept] = field(default_factory=dict)
    kept_bytes: int = 0

    def keep(self, sequence: int, kept: Kept) -> None:
        """Keep the result of the newest command; the oldest ones are dropped beyond the bounds."""
        self.kept[sequence] = kept
        self.kept_bytes += len(kept[1])
        while len(self.kept) > KEPT_RESULTS_MAX or (self.kept_bytes > KEPT_BYTES_MAX and len(self.kept) > 1):
            self._drop(next(iter(self.kept)))

    def acknowledge(self, sequence: int) -> None:
        """The results up to here have arrived."""
        while self.kept and (oldest := next(iter(self.kept))) <= sequence:
            self._drop(oldest)

    def check(self, metadata_offset: int) -> None:
        """AssertionError if this cannot be what a session has at this metadata offset."""
        sequences = list(self.kept)
        if sequences != sorted(sequences) or (
            sequences and not 0 < sequences[0] <= sequences[-1] <= self.last
        ):
            raise AssertionError(f"a session at {self.last} keeps results of {sequences}")
        if self.kept_bytes != sum(len(result) for _, result in self.kept.values()):
            raise AssertionError(f"{self.kept_bytes} bytes are not what the kept results of {sequences} have")
        if len(self.kept) > KEPT_RESULTS_MAX or (self.kept_bytes > KEPT_BYTES_MAX and len(self.kept) > 1):
            raise AssertionError(f"{len(self.kept)} results, {self.kept_bytes} bytes are kept")
        offsets = [offset for offset, _ in self.kept.values()]
        if offsets != sorted(offsets) or (offsets and offsets[-1] > metadata_offset):
            raise AssertionError(f"kept results are of the offsets {offsets}, the image of {metadata_offset}")

    def _drop(self, sequence: int) -> None:
        self.kept_bytes -= len(self.kept.pop(sequence)[1])


class SessionTable:
    """One session per broker id: that of its present broker epoch."""

    def __init__(self) -> None:
        self.sessions: dict[int, CommandSession] = {}

    def begin(self, broker_id: int, broker_epoch: int) -> None:
        """A registration replaces the session of the one before."""
        present = self.sessions.get(broker_id)
        if present is None or present.broker_epoch != broker_epoch:
            self.sessions[broker_id] = CommandSession(broker_epoch)

    def end(self, broker_id: int) -> None:
        """The broker is no longer registered."""
        self.sessions.pop(broker_id, None)

    def find(self, session: Session) -> CommandSession | None:
        """The session, None if its broker epoch is not the present one; forgets what is acknowledged."""
        found = self.sessions.get(session.broker_id)
        if found is None or found.broker_epoch != session.broker_epoch:
            return None
        found.acknowledge(session.acknowledged)
        return found
