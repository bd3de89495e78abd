"""The beginning and the end of this node's leadership, and the periodic duties in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..protocol.messages.broker_commands import BeginControlledShutdown, FenceBroker, UnfenceBroker
from ..protocol.messages.cluster_commands import DeclareRestored
from ..protocol.messages.quorum_commands import encode_command
from .broker_probes import BrokerProbes
from .broker_sessions import BrokerSessions
from .leader_duties import LeaderCommand, LeaderDuties
from .marker_reports import MarkerReports, ReportedMarkers
from .raft.effects import Done, RoleChange
from .silent_brokers import SilentBrokers

logger = logging.getLogger(__name__)

Propose = Callable[[bytes, Done], None]


class Leadership:
    """The response of this quorum node to changes of its Raft role: it starts and stops the leader's duties, and
    announces the leader to brokers."""

    def __init__(
        self,
        node_id: int,
        duties: LeaderDuties,
        reports: MarkerReports,
        reported_markers: ReportedMarkers,
        probes: BrokerProbes,
        silent: SilentBrokers,
        sessions: BrokerSessions,
        publish: Callable[[], None],
        now: Callable[[], float],
        *,
        tick_s: float,
        declares_restored: bool,
    ) -> None:
        """`now` returns monotonic seconds. `declares_restored` is true if an operator states that the quorum was
        restored from copies."""
        self._node_id = node_id
        self._duties = duties
        self._reports = reports
        self._reported_markers = reported_markers
        self._probes = probes
        self._silent = silent
        self._sessions = sessions
        self._publish = publish
        self._now = now
        self._tick_s = tick_s
        #: true until that statement is in the log
        self._declares_restored = declares_restored
        self._upkeep: asyncio.Task[None] | None = None

    def role_changed(self, change: RoleChange) -> None:
        """Start or stop the leader's duties after a change of the Raft role, and announce the new leader to the
        brokers."""
        if change.leads:
            self._begin()
        else:
            self._end()
        hint = change.leader_id
        if hint is None or (hint == self._node_id and not change.leads):
            hint = -1
        self._sessions.announce(change.term, hint)

    def stop(self) -> None:
        """Stop the leader's duties, because this node stops taking part."""
        self._duties.follow()
        self._stop_upkeep()

    def _begin(self) -> None:
        self._publish()
        self._duties.lead(self._now())
        if self._upkeep is None:
            self._upkeep = asyncio.create_task(self._keep_up(), name="leader duties")
        self._probes.leadership_begins()
        if self._declares_restored:
            self._declare_restored()

    def _end(self) -> None:
        self.stop()
        self._reports.flush()
        self._reported_markers.clear()

    def _stop_upkeep(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
            self._upkeep = None

    def _declare_restored(self) -> None:
        """Propose, as the first leader after the restoration, the command that declares the quorum restored from
        copies."""

        def known(_: object, error: Exception | None) -> None:
            if error is None:
                self._declares_restored = False
                logger.warning("the quorum was put back from copies: every partition begins a new leadership")

        self._reports.propose_behind(encode_command(None, DeclareRestored()), known)

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            self._duties.tick(self._now())
            self._silent.turn()


def own_commands(propose: Propose) -> Callable[[LeaderCommand, Callable[[], None]], None]:
    """Return a function that proposes and logs the leader's own commands. Its second argument is called when the
    outcome is known."""

    def propose_own(command: LeaderCommand, done: Callable[[], None]) -> None:
        encoded = encode_command(None, command)
        logger.info("%s, %d bytes", _named(command), len(encoded))

        def known(_: object, error: Exception | None) -> None:
            if error is not None:
                logger.info("%s: %s", _named(command), error)
            done()

        propose(encoded, known)

    return propose_own


def _named(command: LeaderCommand) -> str:
    """Return a command's name for the log, and the id of the broker that it concerns. The command itself may be
    long."""
    kind = type(command).__name__
    if isinstance(command, FenceBroker | UnfenceBroker | BeginControlledShutdown):
        return f"{kind} of broker {command.broker_id}"
    return kind
