"""Exactly-once commands: what each broker's session has applied, and the results not acknowledged yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocol.messages.quorum_commands import Session

Kept = tuple[int, bytes]
"""(metadata offset after the command, its encoded result)"""


@dataclass(slots=True)
class CommandSession:
    """Invariant: `kept` holds results of sequences in (acknowledged, last]."""

    broker_epoch: int
    last: int = 0
    kept: dict[int, Kept] = field(default_factory=dict)


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
        for sequence in [sequence for sequence in found.kept if sequence <= session.acknowledged]:
            del found.kept[sequence]
        return found
