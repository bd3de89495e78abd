"""The handling of brokers' heartbeats, over TCP and UDP: they are passed to the leader's duties and answered."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..protocol.messages.quorum_session import HeartbeatAnswer, SessionHeartbeat, ShutdownAllowed
from ..protocol.session.liveness_datagrams import DatagramHeartbeat
from .broker_sessions import BrokerSession
from .clock_watch import ClockRemark, ClockWatch
from .leader_duties import LeaderDuties, Wish
from .liveness import Heartbeat, ReplicaProgress

logger = logging.getLogger(__name__)


class Heartbeats:
    """A receiver of brokers' heartbeats, which passes them to `LeaderDuties`, answers them, and compares clocks."""

    def __init__(
        self, node_id: int, duties: LeaderDuties, now: Callable[[], float], wall_ms: Callable[[], int]
    ) -> None:
        """`now` returns monotonic seconds, `wall_ms` the time of day."""
        self.clocks = ClockWatch(node_id)
        self._node_id = node_id
        self._duties = duties
        self._now = now
        self._wall_ms = wall_ms

    def datagram(self, received: DatagramHeartbeat) -> bool:
        """Note a broker's heartbeat that came over UDP. Return whether to answer it: the heartbeat is
        valid, and this node is the active leader."""
        now = self._now()
        heartbeat = Heartbeat(
            received.broker_id,
            received.broker_epoch,
            received.incarnation,
            received.metadata_offset,
            received.loop_age_ms / 1000,
            received.counter,
            received.answered,
        )
        return self._duties.heard(heartbeat, now) and self._duties.answers(
            received.broker_id, received.counter, now
        )

    def heartbeat(self, session: BrokerSession, message: SessionHeartbeat) -> None:
        """Process a heartbeat over TCP, with the ends of the broker's logs and its requests to be unfenced or to shut
        down."""
        now, duties = self._now(), self._duties
        heartbeat = Heartbeat(
            session.broker_id,
            message.broker_epoch,
            session.incarnation,
            message.metadata_offset,
            message.loop_age_ms / 1000,
            answered=None if message.answered < 0 else message.answered,
        )
        if not duties.heard(heartbeat, now):
            return
        self._compare_clocks(session.broker_id, message.wall_ms)
        if message.number and duties.answers(session.broker_id, message.number, now):
            session.send(HeartbeatAnswer(number=message.number))
        for entry in message.progress:
            duties.progress.note(
                ReplicaProgress(
                    entry.topic_id,
                    entry.partition,
                    session.broker_id,
                    entry.leader_epoch,
                    entry.log_end_offset,
                    message.broker_epoch,
                )
            )
        told_offset = message.metadata_offset if message.told_offset < 0 else message.told_offset
        duties.progress.reported(session.broker_id, message.broker_epoch, told_offset)
        if duties.wishes(heartbeat, Wish(message.wants_unfence, message.wants_shutdown), now):
            session.send(ShutdownAllowed())

    def _compare_clocks(self, broker_id: int, wall_ms: int) -> None:
        if not self._duties.active:
            self.clocks.begin()
        elif wall_ms >= 0:
            self.clocks.keep(self._duties.taking_part())
            for remark in self.clocks.heard(broker_id, wall_ms, self._wall_ms()):
                self._log(remark)

    def _log(self, remark: ClockRemark) -> None:
        who = "this quorum node" if remark.node_id == self._node_id else f"broker {remark.node_id}"
        if remark.is_wrong:
            logger.warning(
                "the clock of %s is %.0f s %s the others: set it, and look at its time synchronization",
                who,
                abs(remark.skew_ms) / 1000,
                "ahead of" if remark.skew_ms > 0 else "behind",
            )
        else:
            logger.warning("the clock of %s agrees with the others again", who)
