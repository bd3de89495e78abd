"""The leader's treatment of silent brokers: it probes them, asks the other brokers about them, and fences the dead.

`suspicion` decides; this module sends its questions, and passes the answers on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.messages.quorum_session import ContactsReported
from .broker_probes import BrokerProbes
from .broker_sessions import BrokerSession, BrokerSessions
from .leader_duties import LeaderDuties
from .suspicion import Suspicions

logger = logging.getLogger(__name__)


class SilentBrokers:
    """The questions about suspects to their probes and witnesses, while this node is the active leader. Owned by the
    event loop."""

    def __init__(
        self,
        suspicions: Suspicions,
        duties: LeaderDuties,
        probes: BrokerProbes,
        sessions: Callable[[], BrokerSessions],
        image: Callable[[], ClusterImage],
        now: Callable[[], float],
    ) -> None:
        """`now` returns monotonic seconds."""
        self._suspicions = suspicions
        self._duties = duties
        self._probes = probes
        self._sessions = sessions
        self._image = image
        self._now = now

    def turn(self) -> None:
        """Fence the brokers that are dead by all reports, and ask about further silent ones. Call this several times
        within the least patience while this node leads."""
        found = self._suspicions.turn(self._duties.taking_part(), self._now())
        for broker_id in found.dead:
            broker = self._image().brokers[broker_id]
            if self._duties.fence(broker_id, broker.broker_epoch):
                logger.info("broker %d: silent, and no other broker hears it", broker_id)
        for broker_id in found.new:
            session = self._session_of(broker_id)
            if session is not None:
                self._probes.silent(session)
        for broker_id in found.witnesses if found.asked else ():
            session = self._session_of(broker_id)
            if session is not None:
                session.ask_contacts(found.number, found.asked)

    def reported(self, session: BrokerSession, report: ContactsReported) -> None:
        """Pass on a witness's report."""
        ages_s = {
            contact.broker_id: contact.age_ms / 1000 if contact.age_ms >= 0 else None
            for contact in report.contacts
        }
        self._suspicions.reported(session.broker_id, report.question, ages_s, self._now())

    def _session_of(self, broker_id: int) -> BrokerSession | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None else self._sessions().of(broker_id, broker.incarnation)
