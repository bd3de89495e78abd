"""The fetch sessions of all followers. A request belongs to a session by its id and epoch (KIP-227)."""

from __future__ import annotations

import random
from collections.abc import Collection

from ....protocol.errors import ErrorCode
from ..fetch_values import FIRST_EPOCH, FollowerFetch, PartitionKey, SessionAnswer, next_epoch
from ..throttle import Throttle
from .follower_session import WATERMARK_DELAY_S, Followed, FollowerSession, Reply, Scheduler


class FollowerSessions:
    """All fetch sessions in which brokers follow this broker, at most one for each. A new session replaces the previous
    one.
    """

    def __init__(
        self,
        followed: Followed,
        scheduler: Scheduler,
        randomness: random.Random | None = None,
        throttle: Throttle | None = None,
        watermark_delay_s: float = WATERMARK_DELAY_S,
    ) -> None:
        self._throttle = throttle or Throttle(scheduler.time)
        self._watermark_delay_s = watermark_delay_s
        self._followed = followed
        self._scheduler = scheduler
        self._randomness = randomness or random.SystemRandom()
        self._sessions: dict[int, FollowerSession] = {}
        self._heard_at: dict[int, float] = {}

    def fetch(self, fetch: FollowerFetch, max_wait_s: float, reply: Reply, connection: int) -> None:
        """Pass a follower's fetch to its session, or answer with the error that makes it open a new session.

        `connection` is a number that rises with each connection. A follower has one connection at a time. A request on
        an older connection is late: it must not open a session that replaces the current one.
        """
        known_epoch = self._followed.broker_epoch_of(fetch.broker_id)
        if known_epoch < 0 or fetch.broker_epoch < known_epoch:
            reply(SessionAnswer(0, error=ErrorCode.STALE_BROKER_EPOCH))
            return
        self._heard_at[fetch.broker_id] = self._scheduler.time()
        session = self._sessions.get(fetch.broker_id)
        if fetch.session_epoch == FIRST_EPOCH:
            if session is not None:
                if connection < session.connection:
                    reply(SessionAnswer(0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
                    return
                session.close(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session = self._sessions[fetch.broker_id] = FollowerSession(
                self._randomness.randint(1, 0x7FFFFFFF),
                fetch.broker_id,
                fetch.broker_epoch,
                self._followed,
                self._scheduler,
                self._throttle,
                self._watermark_delay_s,
                connection,
            )
        elif session is None or session.session_id != fetch.session_id:
            reply(SessionAnswer(0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
            return
        elif fetch.session_epoch != session.expected_epoch:
            reply(SessionAnswer(fetch.session_id, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
            return
        else:
            session.expected_epoch = next_epoch(session.expected_epoch)
        session.fetch(fetch, max_wait_s, reply)

    def heard_at(self, broker_id: int) -> float | None:
        """Return the scheduler's time of the last fetch of a broker; None before its first."""
        return self._heard_at.get(broker_id)

    def replicas_made(self, keys: Collection[PartitionKey]) -> None:
        """Process the positions of followers that were kept because these replicas did not exist yet. By now each
        replica exists, or its creation has failed.
        """
        for session in self._sessions.values():
            session.replicas_made(keys)

    def offer(self, broker_id: int, key: PartitionKey) -> None:
        """Let a follower join the ISR of a partition, if it has a fetch session here and is eligible."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.offer(key)

    def drop(self, broker_id: int) -> None:
        """End the session of a broker that was removed or restarted."""
        session = self._sessions.pop(broker_id, None)
        if session is not None:
            session.close(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def close(self) -> None:
        """End all sessions when the broker stops."""
        for broker_id in list(self._sessions):
            self.drop(broker_id)
