"""What brokers' heartbeats say, over TCP and UDP, in the terms of the leader's duties."""

from __future__ import annotations

from collections.abc import Callable

from ..protocol.liveness_datagrams import DatagramHeartbeat
from ..protocol.messages.quorum_session import HeartbeatAnswer, SessionHeartbeat, ShutdownAllowed
from .broker_sessions import BrokerSession
from .leader_duties import LeaderDuties, Wish
from .liveness import Heartbeat, ReplicaProgress


class SignsOfLife:
    """Passes heartbeats to the leader's duties, and answers them."""

    def __init__(self, duties: LeaderDuties, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self._duties = duties
        self._now = now

    def datagram(self, told: DatagramHeartbeat) -> bool:
        """A sign of life over UDP. Whether it is to be answered."""
        now = self._now()
        heartbeat = Heartbeat(
            told.broker_id,
            told.broker_epoch,
            told.incarnation,
            told.metadata_offset,
            told.loop_age_ms / 1000,
            told.counter,
            told.answered,
        )
        return self._duties.heard(heartbeat, now) and self._duties.answers(told.broker_id, told.counter, now)

    def heartbeat(self, session: BrokerSession, message: SessionHeartbeat) -> None:
        """A sign of life over TCP, with the ends of the broker's logs and its wishes."""
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
        duties.progress.told(session.broker_id, message.broker_epoch, told_offset)
        if duties.wishes(heartbeat, Wish(message.wants_unfence, message.wants_shutdown), now):
            session.send(ShutdownAllowed())
