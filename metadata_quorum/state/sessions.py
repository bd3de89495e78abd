"""Exactly-once commands: the last command that each broker's session has applied, and the unacknowledged results."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.messages.quorum_commands import Session

Kept = tuple[int, bytes]
"""Kept result: (metadata offset after the command, its encoded result)."""


#: a broker has at most 256 unanswered commands; a broker with more loses its own results
KEPT_RESULTS_MAX = 1024
KEPT_BYTES_MAX = 32 * 1024 * 1024


@dataclass(slots=True)
class CommandSession:
    """A broker's command session: the sequence number of the last applied command, and the results that the broker has
    not acknowledged. Invariant: `kept` holds results of sequences in (acknowledged, last], in order, within limits."""

    broker_epoch: int
    last: int = 0
    kept: dict[int, Kept] = field(default_factory=dict)
    kept_bytes: int = 0

    def keep(self, sequence: int, kept: Kept) -> None:
        """Keep the result of the newest command; the oldest results beyond the limits are dropped."""
        self.kept[sequence] = kept
        self.kept_bytes += len(kept[1])
        while len(self.kept) > KEPT_RESULTS_MAX or (self.kept_bytes > KEPT_BYTES_MAX and len(self.kept) > 1):
            self._drop(next(iter(self.kept)))

    def acknowledge(self, sequence: int) -> None:
        """Drop the kept results of commands up to `sequence`, which the broker has received."""
        while self.kept and (oldest := next(iter(self.kept))) <= sequence:
            self._drop(oldest)

    def check(self, metadata_offset: int) -> None:
        """Raise AssertionError if the kept results contradict each other, the limits or this metadata offset."""
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
    """The command sessions of all brokers: one for each broker id, for its current broker epoch."""

    def __init__(self) -> None:
        self.sessions: dict[int, CommandSession] = {}

    def begin(self, broker_id: int, broker_epoch: int) -> None:
        """Begin the command session of a broker's new registration, which replaces its previous session."""
        present = self.sessions.get(broker_id)
        if present is None or present.broker_epoch != broker_epoch:
            self.sessions[broker_id] = CommandSession(broker_epoch)

    def end(self, broker_id: int) -> None:
        """Drop the command session of an unregistered broker."""
        self.sessions.pop(broker_id, None)

    def find(self, session: Session) -> CommandSession | None:
        """Return the command session of a broker, and drop its acknowledged results; None if the broker epoch is
        outdated."""
        found = self.sessions.get(session.broker_id)
        if found is None or found.broker_epoch != session.broker_epoch:
            return None
        found.acknowledge(session.acknowledged)
        return found
