"""Fetches of followers, from their frames to their sessions, and the answers to them.

Each record of acks=all waits for one such fetch from each follower. The first fetch on a connection is handled like all
requests. The following ones have the same header, which the connection keeps. Such a frame is read with one struct and
goes straight to its session. All other frames go to the handler, which knows all rules: frames of another form, with
another broker id, or from a peer that has authenticated itself again.
"""

from __future__ import annotations

import logging
import struct
from functools import partial
from typing import Final

from ...protocol.messages.fetch import FetchRequest
from ..log import LogSlice
from ..replication.fetch_codec import encode_answer, to_send
from ..replication.fetch_layout import ANSWER_END, VERSION, read_fetch, write_head
from ..replication.fetch_values import NO_SESSION, FollowerFetch, SessionAnswer
from ..replication.leader.follower_sessions import FollowerSessions
from ..server.connection import ClientConnection
from ..server.handler import ClientRequest, as_kafka_error
from ..server.request_times import FOLLOWER_FETCH
from .cold_reads import ColdReads

logger = logging.getLogger(__name__)

_CORRELATION = struct.Struct(">i")
_CORRELATION_AT: Final = 4
_CLIENT_ID_AT: Final = 8


class FollowerFetches:
    """The receiver of followers' fetches: it passes each to the follower's fetch session, and sends the session's
    answers."""

    def __init__(self, sessions: FollowerSessions, cold_reads: ColdReads) -> None:
        self._sessions = sessions
        self._cold_reads = cold_reads

    def take(self, request: ClientRequest, fetch: FollowerFetch, max_wait_ms: int) -> None:
        """Answer a follower's fetch now, or within `max_wait_ms` once there are records. The peer has proved to be the
        broker that fetches."""
        request.timed_as = FOLLOWER_FETCH
        request.meter = None  # Quotas apply to clients only.
        self._sessions.fetch(
            fetch, max_wait_ms / 1000, partial(self.reply, request), request.connection.number
        )

    def reply(self, request: ClientRequest, answer: SessionAnswer) -> None:
        """Send the session's answer to a follower. An answer about one partition with few records is sent as one
        buffer."""
        partitions = answer.partitions
        if (
            len(partitions) != 1
            or not partitions[0].is_usual
            or request.api_version != VERSION
            or request.throttle_ms
        ):
            self._cold_reads.reply(request, encode_answer(answer, request.api_version))
            return
        records = partitions[0].records
        if records is not None:
            records = to_send(records)
        if isinstance(records, LogSlice):
            head = write_head(request.correlation_id, answer, records.size)
            self._cold_reads.answer(request, head, records, ANSWER_END)
        elif records is None:
            frame = write_head(request.correlation_id, answer, 0) + ANSWER_END
            request.connection.answer(request, (frame,))
        else:
            head = write_head(request.correlation_id, answer, len(records))
            request.connection.answer(request, (b"".join((head, records, ANSWER_END)),))

    def note(self, request: ClientRequest, broker_id: int) -> None:
        """Set a shortcut on the connection, which reads further fetches of this follower without decoding a message.
        The peer has proved to be `broker_id`."""
        frame, session = request.frame, request.session
        if frame is None or request.api_version != VERSION or session.expires_at is not None:
            return
        known = request.connection.shortcut
        if isinstance(known, _Shortcut) and known.session is session:
            return
        at = (
            _CLIENT_ID_AT
            + 2
            + max(0, int.from_bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + 2], "big", signed=True))
        )
        if frame[at] == 0:  # A zero byte: no tagged fields.
            request.connection.shortcut = _Shortcut(self, request, frame, at + 1, broker_id)


class _Shortcut:
    """A shortcut for the fetches of one follower on one connection, which all begin with the same header. Called with a
    frame, it handles the fetch if the header matches."""

    __slots__ = ("_at", "_broker_id", "_client_id", "_fetches", "_header", "_kind", "session")

    def __init__(
        self, fetches: FollowerFetches, request: ClientRequest, frame: memoryview, at: int, broker_id: int
    ) -> None:
        self._fetches = fetches
        self.session = request.session
        self._client_id = request.client_id
        self._kind = bytes(frame[:_CORRELATION_AT])
        self._header = bytes(frame[_CLIENT_ID_AT:at])
        self._at = at
        self._broker_id = broker_id

    def __call__(self, connection: ClientConnection, frame: memoryview, now: float) -> bool:
        """Handle the fetch in this frame. Returns False if the handler of Fetch must decode it instead."""
        at = self._at
        if (
            connection.session is not self.session
            or frame[:_CORRELATION_AT] != self._kind
            or frame[_CLIENT_ID_AT:at] != self._header
        ):
            return False
        found = read_fetch(frame, at)
        if found is None:
            return False
        fetch, max_wait_ms = found
        if fetch.broker_id != self._broker_id:
            return False
        (correlation_id,) = _CORRELATION.unpack_from(frame, _CORRELATION_AT)
        request = ClientRequest(
            connection, FetchRequest.api_key, VERSION, correlation_id, self._client_id, now
        )
        connection.expect(request)
        try:
            self._fetches.take(request, fetch, max_wait_ms)
        except Exception as error:
            refusal = as_kafka_error(error, f"a fetch of broker {self._broker_id}")
            if request.parts is None:
                self._fetches.reply(request, SessionAnswer(NO_SESSION, error=refusal.code))
        return True
