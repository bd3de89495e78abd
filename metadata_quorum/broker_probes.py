"""Checks whether the process of a broker is gone after its session has ended, or only the connection.

The answer of the broker's heartbeat port decides. A port that refuses a datagram no longer belongs to a process, and
the broker is fenced at once, if the refusal is credible. Otherwise its heartbeats will be missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from ..protocol.cluster.cluster_image import ClusterImage
from .broker_sessions import BrokerSession
from .leader_duties import LeaderDuties
from .probe import ProbeResult, is_own_address, is_refused, probe

logger = logging.getLogger(__name__)


class BrokerProbes:
    """Probes of the UDP heartbeat ports of brokers that have closed their sessions, to find out whether their processes
    are gone. Owned by the event loop.

    Sessions are remembered while another node leads, too, since broker and leader may have died together.
    """

    def __init__(
        self,
        duties: LeaderDuties,
        image: Callable[[], ClusterImage],
        on_answer: Callable[[int], None],
        *,
        believes_any_refusal: bool,
    ) -> None:
        """`on_answer` is called with the id of a silent broker that answers a probe. `believes_any_refusal` accepts
        refusals from other machines, too."""
        self._on_answer = on_answer
        self._duties = duties
        self._image = image
        self._believes_any_refusal = believes_any_refusal
        self._ended: dict[int, BrokerSession] = {}
        self._probes: dict[asyncio.Task[None], None] = {}

    @property
    def under_way(self) -> int:
        """Number of brokers that are being probed."""
        return len(self._probes)

    def session_ended(self, session: BrokerSession) -> None:
        """Remember a session that the broker's side has closed, and probe the broker's heartbeat port."""
        if session.heartbeat_port:
            self._ended[session.broker_id] = session
            self._suspect(session)

    def leadership_begins(self) -> None:
        """Probe all brokers that closed their sessions before this node became leader."""
        for session in self._ended.values():
            self._suspect(session)

    def silent(self, session: BrokerSession) -> None:
        """Probe a broker whose session is open and whose heartbeats are missing. Only an answer counts: its process is
        alive."""
        if session.heartbeat_port and session.host:
            self._start(self._probe_silent(session))

    async def _probe_silent(self, session: BrokerSession) -> None:
        result = await probe(session.link.datagrams, session.host, session.heartbeat_port)
        if result is ProbeResult.ALIVE:
            self._on_answer(session.broker_id)

    def stop(self) -> None:
        """Cancel all probes."""
        for task in self._probes:
            task.cancel()

    def _suspect(self, session: BrokerSession) -> None:
        """Probe one broker's heartbeat port, if this node leads and the broker is not fenced; fence the broker if its
        process is gone."""
        broker = self._image().brokers.get(session.broker_id)
        if not (self._duties.active and session.host):
            return
        if broker is None or broker.fenced or broker.incarnation != session.incarnation:
            return
        if not (self._believes_any_refusal or is_own_address(session.host)):
            logger.info(
                "broker %d at %s ended its session: it has until its timeout, as it is on another machine",
                session.broker_id,
                session.host,
            )
            return
        if is_refused(session.link.datagrams, session.host, session.heartbeat_port):
            logger.info("broker %d ended its session, and its port is refused", session.broker_id)
            self._duties.fence(session.broker_id, broker.broker_epoch)
            return
        self._start(self._probe(session, broker.broker_epoch))

    def _start(self, probing: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(probing, name="probe of a broker")
        self._probes[task] = None
        task.add_done_callback(self._probes.pop)

    async def _probe(self, session: BrokerSession, broker_epoch: int) -> None:
        result = await probe(session.link.datagrams, session.host, session.heartbeat_port)
        logger.info("broker %d ended its session: %s", session.broker_id, result.value)
        if result is ProbeResult.GONE:
            self._duties.fence(session.broker_id, broker_epoch)
