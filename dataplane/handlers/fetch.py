"""Fetch (4-18), for consumers and for followers.

Consumers get records below the high watermark or, with read_committed, below the last stable offset. They get them from
the leader, or from the follower that the leader named (KIP-392). Records are slices of files, sent from there. A fetch
that finds less than `min_bytes` is parked until a high watermark moves far enough, or `max_wait_ms` is over. A last
stable offset moves only when a high watermark does.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import (
    CONSUMER_REPLICA_ID,
    FIRST_WITH_TOPIC_IDS,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
)
from ...protocol.messages.headers import decode_client_id
from ...protocol.settings.config_fields import setting
from ...protocol.wire.codec import decode, encode_parts
from ...protocol.wire.schema import Message
from ..cluster.endpoints import endpoints_of
from ..fetching.cold_reads import ColdReads
from ..fetching.follower_fetches import FollowerFetches
from ..fetching.long_fetches import LongFetch, is_long
from ..fetching.reading import ClientFetch, FetchReader, Round
from ..fetching.repeats import FetchRepeats, TailFetch
from ..fetching.replica_selection import Selector
from ..fetching.sessions import (
    FETCH_SESSION_BYTES_MAX,
    FINAL_EPOCH,
    NO_SESSION_ID,
    FetchSession,
    FetchSessionCache,
)
from ..quotas import ClientQuotas
from ..replication.fetch_codec import fetch_of
from ..replication.fetch_values import FIRST_EPOCH
from ..replication.replicas.replicas import Replicas
from ..security.authorization.needs import handler_asks
from ..server.connection import ClientConnection
from ..server.error_answers import ErrorAnswers
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, as_kafka_error, handles
from ..server.purgatory import Parked, Purgatory

_UNKNOWN = -1
_WAITING_UNCLAIMED_MAX = 100
"""Maximum number of partitions of a fetch that may wait without a memory claim. The number of connections is
bounded."""
_FIRST_WITH_REPLICA_STATE = 15
_FIRST_WITH_ENDPOINTS = 16


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The broker's settings for fetches.

    `max_bytes` is the maximum size of an answer, whatever the consumer asks for. `selector` is from
    replica.selector.class. `session_bytes` is the memory of all sessions.
    """

    max_bytes: int = setting("fetch.max.bytes")
    session_slots: int = setting("max.incremental.fetch.session.cache.slots")
    selector: Selector | None = None
    session_bytes: int = FETCH_SESSION_BYTES_MAX


_ERRORS = ErrorAnswers(
    arrays={"topics": "responses"},
    identifying={"partition": "partition_index"},
    values={"high_watermark": _UNKNOWN, "aborted_transactions": [], "records": b""},
    in_elements_only=frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED}),
)
"""The answers to failed fetches. A peer that has not proved to be the replica it names gets the error for each
partition, as in Kafka a follower that is not authorized for CLUSTER_ACTION."""


class FetchHandlers:
    """The handler of Fetch: it reads from this broker's partitions, and holds fetches that wait for records."""

    def __init__(
        self,
        replicas: Replicas,
        purgatory: Purgatory,
        settings: FetchSettings | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        settings = settings or FetchSettings()
        self._replicas = replicas
        self._purgatory = purgatory
        self._quotas = quotas or ClientQuotas()
        self._reader = FetchReader(replicas, settings.selector, settings.max_bytes)
        self.sessions = FetchSessionCache(
            settings.session_slots, random.Random(os.urandom(16)), settings.session_bytes
        )
        self.cold_reads = ColdReads(asyncio.get_running_loop())
        self._followers = FollowerFetches(replicas.sessions, self.cold_reads)
        self._repeats = FetchRepeats(
            settings.max_bytes,
            self.cold_reads,
            self._quotas,
            purgatory.park,
            self._remember,
            self.forget,
            self._answer_now,
        )
        self._selects = settings.selector is not None
        self._waiting: dict[ClientConnection, dict[_ParkedFetch | LongFetch | TailFetch, None]] = {}

    @handles(
        FetchRequest,
        4,
        18,
        errors=_ERRORS,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("consumers: READ Topic; followers: a node of the cluster"),
        waits_for_others=True,
    )
    def fetch(self, request: ClientRequest, message: FetchRequest) -> FetchResponse | None:
        """Answer a fetch with the available records, or park it until there are enough."""
        version = request.api_version
        state = message.replica_state
        replica_id = state.replica_id if version >= _FIRST_WITH_REPLICA_STATE else message.replica_id
        if replica_id > CONSUMER_REPLICA_ID:
            if not request.connection.is_broker(replica_id):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            self._follower(request, message, replica_id, state.replica_epoch)
            return None
        fetch = self._in_session(request, message)
        if len(fetch.session.partitions) > _WAITING_UNCLAIMED_MAX and not fetch.incremental:
            self._claim_wait(fetch)
        if self._quotas.consumer is not None and request.session.is_metered:
            self._keep_to_window(request, message)
        if request.access.grants is not None:
            fetch.session.follow(request.access.grants)
        if is_long(fetch):
            self._read_in_time_slices(fetch)
            return None
        session = fetch.session
        found = self._reader.read(
            fetch, tuple(session.active) if fetch.incremental else session.partitions.values()
        )
        if (
            len(found.outcomes) == 1
            and not found.urgent
            and message.session_id == NO_SESSION_ID
            and message.session_epoch == FINAL_EPOCH
            and not (message.rack_id and self._selects)
            and (replica := found.outcomes[0].replica) is not None
        ):
            self._repeats.note(request, message, found.outcomes[0].partition, replica)
        if (
            found.urgent
            or found.size >= message.min_bytes
            or message.max_wait_ms <= 0
            or not session.partitions
        ):
            self.answer(fetch, found)
            return None
        found.release()
        self._waiting_of(request.connection)[_ParkedFetch(self, fetch)] = None
        return None

    def _read_in_time_slices(self, fetch: ClientFetch) -> None:
        waiting = self._waiting_of(fetch.request.connection)
        waiting[LongFetch(fetch, self._reader, self._answer_long, lambda key: waiting.pop(key, None))] = None

    # Sessions

    def _in_session(self, request: ClientRequest, message: FetchRequest) -> ClientFetch:
        """Return the fetch with its session: a new session, an existing session, or a temporary session for one
        fetch."""
        by_id = request.api_version >= FIRST_WITH_TOPIC_IDS
        session_id, epoch, owner = message.session_id, message.session_epoch, request.session.principal
        if epoch in (FINAL_EPOCH, FIRST_EPOCH):
            if session_id != NO_SESSION_ID:
                self.sessions.give_up(session_id, owner)
            session = FetchSession(owner, by_id=by_id, host=request.client_host)
            session.update(message.topics)
            session.isolate(message.isolation_level)
            return ClientFetch(request, message, session, wants_session=epoch == FIRST_EPOCH)
        session = self.sessions.get(session_id, epoch, owner, by_id=by_id)
        session.update(message.topics, message.forgotten_topics_data)
        session.isolate(message.isolation_level)
        self.sessions.proceed(session, _now_ms(request))
        if not session.partitions:
            self.sessions.close(session_id)
            return ClientFetch(request, message, FetchSession(owner, by_id=by_id, host=request.client_host))
        return ClientFetch(request, message, session, incremental=True)

    def _claim_wait(self, fetch: ClientFetch) -> None:
        """Claim the memory of a large fetch that waits. If it does not fit, the fetch is answered at once."""
        if not self.sessions.claim(fetch.session, _now_ms(fetch.request)):
            fetch.session.claim = None
            fetch.message.max_wait_ms = 0

    def _waiting_of(self, connection: ClientConnection) -> dict[_ParkedFetch | LongFetch | TailFetch, None]:
        """Return the unanswered fetches of a connection, which are dropped when it closes."""
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = self._waiting[connection] = {}
            connection.call_on_close(lambda: self._closed(connection))
            connection.on_expiry = lambda: self._session_expired(connection)
        return waiting

    def _session_expired(self, connection: ClientConnection) -> None:
        """Answer the waiting fetches of a connection, whose client's login has expired, with the records that were
        there before."""
        for fetch in list(self._waiting.get(connection, ())):
            fetch.expired()

    def _closed(self, connection: ClientConnection) -> None:
        for fetch in list(self._waiting.pop(connection, {})):
            fetch.abandon()

    def _remember(self, parked: TailFetch, connection: ClientConnection) -> None:
        self._waiting_of(connection)[parked] = None

    def forget(self, parked: _ParkedFetch | TailFetch, connection: ClientConnection) -> None:
        """Remove an answered fetch from the fetches that wait on a connection."""
        self._waiting.get(connection, {}).pop(parked, None)

    # Followers

    def _follower(
        self, request: ClientRequest, message: FetchRequest, replica_id: int, broker_epoch: int
    ) -> None:
        if request.api_version < _FIRST_WITH_REPLICA_STATE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"followers need Fetch version {_FIRST_WITH_REPLICA_STATE} or above, which has broker epochs",
            )

        self._followers.note(request, replica_id)
        self._followers.take(request, fetch_of(message, replica_id, broker_epoch), message.max_wait_ms)

    # Answers

    def read(self, fetch: ClientFetch, *, complete: bool) -> Round:
        """Read the session's partitions that may have news for the client (records, errors, moved offsets). With
        `complete`, read all partitions that an answer has to hold."""
        if complete and not fetch.incremental:
            return self._reader.read(fetch, fetch.session.partitions.values())
        return self._reader.read(fetch, tuple(fetch.session.active))

    def answer(self, fetch: ClientFetch, found: Round) -> None:
        """Send the results of reading as the answer to a fetch."""
        message = self._response(fetch, found)
        self.cold_reads.reply(fetch.request, encode_parts(message, fetch.request.api_version))

    def _answer_now(self, request: ClientRequest, frame: bytes) -> None:
        """Answer a fetch that came by the fast path, and waited, with the available records."""
        _, offset = decode_client_id(frame, request.api_key, request.api_version)
        message = decode(FetchRequest, frame, request.api_version, offset)
        message.max_wait_ms = 0
        response: Message | None
        try:
            response = self.fetch(request, message)
        except Exception as error:
            failure = as_kafka_error(error, f"a fetch of {request.connection}")
            response = _ERRORS.answer(message, failure, request.api_version)
        if response is not None:
            request.reply(response)

    async def _answer_long(self, fetch: ClientFetch, found: Round) -> None:
        """Send the records that were read, if their encoding takes long: a thread encodes them."""
        message = self._response(fetch, found)
        parts = await asyncio.to_thread(encode_parts, message, fetch.request.api_version)
        self.cold_reads.reply(fetch.request, parts)

    def _response(self, fetch: ClientFetch, found: Round) -> FetchResponse:
        request, session = fetch.request, fetch.session
        request.charge()
        if self._is_throttled(request, found.size):
            # The client is over its quota: it gets no records now, and the same records later.
            found.release()
            if not fetch.incremental:
                session.close()
            return FetchResponse(throttle_time_ms=request.throttle_ms, session_id=session.id)
        if fetch.wants_session:
            self.sessions.admit(session, _now_ms(request))
        message = FetchResponse(session_id=session.id, responses=_by_topic(fetch, found))
        if not session.id:
            session.close()
        if found.leaders and request.api_version >= _FIRST_WITH_ENDPOINTS:
            message.node_endpoints = [
                NodeEndpoint(node_id=place.broker_id, host=place.host, port=place.port, rack=place.rack)
                for place in endpoints_of(self._replicas.image, found.leaders, request.listener)
            ]
        return message

    def _keep_to_window(self, request: ClientRequest, message: FetchRequest) -> None:
        """Lower the fetch's `max_bytes` and `min_bytes` to the number of bytes that the client's quota permits in one
        window."""
        assert self._quotas.consumer is not None
        most = self._quotas.consumer.most_in_window(request.session.user, request.client_id)
        if most is not None:
            message.max_bytes = min(message.max_bytes, int(most))
            message.min_bytes = min(message.min_bytes, message.max_bytes)

    def _is_throttled(self, request: ClientRequest, size: int) -> bool:
        quota = self._quotas.consumer
        if quota is not None and request.session.is_metered and not request.throttle_ms:
            now_ms = asyncio.get_running_loop().time() * 1000
            request.throttle(quota.admit(request.session.user, request.client_id, size, now_ms))
        return request.throttle_ms > 0

    def expire_at(self, fetch: ClientFetch, parked: _ParkedFetch) -> Parked:
        """Park a fetch, so that `expired` is called once its `max_wait_ms` are over."""
        return self._purgatory.park(
            fetch.request.received_at + fetch.message.max_wait_ms / 1000, parked.expired
        )

    def close(self) -> None:
        """Release sessions and readers, as the broker stops."""
        self.sessions.clear()
        self.cold_reads.close()


class _ParkedFetch:
    """A consumer's fetch that waits for records."""

    __slots__ = ("_due", "_fetch", "_handlers", "_loop", "_parked")

    def __init__(self, handlers: FetchHandlers, fetch: ClientFetch) -> None:
        self._handlers = handlers
        self._fetch = fetch
        self._loop = asyncio.get_running_loop()
        self._due = False
        self._parked: Parked | None = handlers.expire_at(fetch, self)
        fetch.session.parked = self

    def wake(self) -> None:
        """Read the partitions again at the end of this turn of the event loop, since a partition may have new
        records."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        if self._parked is None:
            return
        found = self._handlers.read(self._fetch, complete=False)
        if not (found.urgent or found.size >= self._fetch.message.min_bytes):
            found.release()
        elif self._fetch.incremental or len(self._fetch.session.partitions) == len(found.outcomes) == 1:
            self._finish()
            self._handlers.answer(self._fetch, found)
        else:
            found.release()
            self.expired()

    def expired(self) -> None:
        """Answer the fetch with the available records, since its `max_wait_ms` are over."""
        self._finish()
        self._handlers.answer(self._fetch, self._handlers.read(self._fetch, complete=True))

    def superseded(self, error: ErrorCode) -> None:
        """Answer the fetch with an error, since its fetch session goes on, or ends, without it."""
        if self._parked is not None:
            self._finish()
            self._fetch.request.reply(FetchResponse(error_code=error))

    def abandon(self) -> None:
        """Drop the waiting fetch, since its client has disconnected."""
        self._finish()
        if not self._fetch.session.id:
            self._fetch.session.close()

    def _finish(self) -> None:
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
        if self._fetch.session.parked is self:
            self._fetch.session.parked = None
        self._handlers.forget(self, self._fetch.request.connection)


def _now_ms(request: ClientRequest) -> int:
    return int(request.received_at * 1000)


def _by_topic(fetch: ClientFetch, found: Round) -> list[FetchableTopicResponse]:
    """Return the results to send to the client, by topic, and record in the session that the client knows them from now
    on."""
    topics: list[FetchableTopicResponse] = []
    last: str | bytes | None = None
    for outcome in found.outcomes:
        wanted = outcome.partition
        if fetch.incremental and not wanted.has_news(outcome.data, outcome.size):
            continue
        topic = wanted.key[0]
        if topic != last:
            topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]))
            last = topic
        topics[-1].partitions.append(outcome.data)
        wanted.sent(outcome.data, outcome.size)
        if outcome.replica is not None:
            outcome.replica.traffic.bytes_out += outcome.size
    return topics
