"""The cluster, as a client uses it: connections by broker id, fresh metadata, and requests to the right brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ...protocol.wire.codec import MalformedMessage
from ...protocol.wire.schema import Message, Request
from ..backoff import Backoff
from ..failures import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionLost,
    NoBrokerReachable,
    RequestTimedOut,
    cluster_error,
)
from ..security.security import Security
from .connection import Connection
from .followed import FollowedTopics
from .metadata import BrokerAddress, ClusterMetadata, parse_bootstrap
from .opening import connect
from .refreshing import Refreshing

METADATA_TIMEOUT_MS = 3_000
"""The time after which a metadata request breaks its connection."""
CONNECT_TIMEOUT_MS = 10_000
HEDGE_AFTER_MS = 300
"""The silence after which a request that any broker can answer goes to another broker, too.

A paused broker keeps its connections, and would otherwise delay the request until the timeout.
"""
READ_PER_TURN = 5_000
"""The number of partitions of a Metadata response that are read before other tasks get a turn."""
TOPIC_TAKES = 20
"""The cost of reading a topic without partitions, in partitions."""
TOPICS_AT_A_TIME = 2_000
"""The limit of topics per request: brokers refuse larger requests, and the answer would be late."""
METADATA_MAX_IDLE_MS = 300_000
FORGETTING_TURNS = 10
"""The number of times within the idle time that refreshes look for topics to forget."""

AnswerT = TypeVar("AnswerT")
ResponseT = TypeVar("ResponseT", bound=Message)
_Line = tuple[BrokerAddress, str]
"""The key of a connection: its address and its lane."""
InUse = Callable[[float], Set[str]]
"""A function that drops its state of topics unused since a loop time, and returns the topics still in use."""


class Cluster:
    """Connections and metadata of one client: one per producer, consumer or admin, on one event loop."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "ottla",
        request_timeout_ms: int = 30_000,
        connect_timeout_ms: int | None = None,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_idle_ms: int = METADATA_MAX_IDLE_MS,
        security: Security | None = None,
    ) -> None:
        """Create a cluster without connections.

        `connect_timeout_ms`: by default CONNECT_TIMEOUT_MS or, if that is shorter, `request_timeout_ms`, so that the
        wait for a host that fails during the connect is no longer than the wait for one that fails later.
        """
        self.metadata = ClusterMetadata()
        self.request_timeout_ms = request_timeout_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._client_id = client_id
        self._security = security
        self._connect_timeout_ms = (
            min(CONNECT_TIMEOUT_MS, request_timeout_ms) if connect_timeout_ms is None else connect_timeout_ms
        )
        self._connections: dict[_Line, Connection] = {}
        self._opening: dict[_Line, asyncio.Task[Connection]] = {}
        self._refused_s: dict[
            BrokerAddress, float
        ] = {}  # loop time at which a broker last refused the client
        self.users: list[InUse] = []
        """The functions of the parts of this client that know which topics they use."""
        self._topics = FollowedTopics(metadata_max_idle_ms / 1000)
        self._forgot_s = 0.0
        self._refreshing = Refreshing(partial(self._refresh, create=False))
        self._creating = Refreshing(partial(self._refresh, create=True))
        self._refreshing_on: asyncio.Task[None] | None = None
        self._turn = 0
        self._closed = False

    async def __aenter__(self) -> Cluster:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to the cluster, by a first request that some broker answers. Raises NoBrokerReachable, TlsFailed and
        AuthenticationFailed."""
        await self.refresh()

    async def close(self) -> None:
        """Close every connection to the cluster's brokers; idempotent."""
        self._closed = True
        tasks: list[asyncio.Task[Any]] = list(self._opening.values())
        if self._refreshing_on is not None:
            tasks.append(self._refreshing_on)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._refreshing.close(), self._creating.close(), return_exceptions=True)
        for connection in list(self._connections.values()):
            connection.close()

    @property
    def user(self) -> str | None:
        """The user of the client's login; None if the client does not know it."""
        return None if self._security is None else self._security.user

    def log_in_as(self, other: Cluster) -> None:
        """Share the credentials of another client, so that one token serves both.

        This client must not have been started, and both must be on the same event loop.
        """
        self._security = other._security

    def failure(
        self,
        code: ErrorCode,
        where: str,
        server_message: str | None = None,
        *,
        operation: str = "",
        name: str = "",
    ) -> KafkaError:
        """Return the exception for an error code of the cluster, not raised yet. A denial names the user of this
        client."""
        return cluster_error(code, where, server_message, operation=operation, name=name, user=self.user)

    # connections

    def connected(self, broker_id: int) -> Connection | None:
        """Return the open connection to a broker, None if there is none now."""
        address = self.metadata.brokers.get(broker_id)
        return None if address is None else self._connections.get((address, ""))

    async def connection(self, broker_id: int, lane: str = "") -> Connection:
        """Return the connection to a broker, opened if necessary. Raises ConnectionLost or RequestTimedOut.

        A broker answers in order. Requests that wait at the broker (Fetch, JoinGroup) therefore name a `lane`, which
        has a dedicated connection.
        """
        address = self.metadata.brokers.get(broker_id)
        if address is None:
            raise ConnectionLost(f"broker {broker_id} is not in the cluster's metadata")
        return await self._connection_to(address, lane)

    def keep_ready(self, broker_ids: Iterable[int]) -> None:
        """Open missing connections to these brokers in the background, so that later requests need not wait.

        Unreachable brokers are ignored.
        """
        for broker_id in broker_ids:
            address = self.metadata.brokers.get(broker_id)
            if address is None or self._closed:
                continue
            line = (address, "")
            if line not in self._connections and line not in self._opening:
                self._begin_opening(line)

    def close_lane(self, lane: str) -> None:
        """Close the connections that were opened for `lane`, the name of a use with dedicated connections."""
        for line in [line for line in self._opening if line[1] == lane]:
            self._opening.pop(line).cancel()
        for line, connection in list(self._connections.items()):
            if line[1] == lane:
                connection.close()

    async def any_connection(self) -> Connection:
        """Return a connection to a broker that just answered, for requests that must not be sent twice.

        Raises NoBrokerReachable with the last reason, or the failure of the last of several brokers.
        """
        nothing = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        connection, _ = await self._first_answer(lambda connection: connection.request(nothing))
        return connection

    async def ask_any(self, message: Request[ResponseT], *, timeout_ms: float | None = None) -> ResponseT:
        """Send a request to any broker, and to another one if the connection breaks or is silent for HEDGE_AFTER_MS.

        Several brokers may execute the request, so it must be idempotent. Raises NoBrokerReachable, or the failure of
        the last of several brokers.
        """
        _, answer = await self._first_answer(
            lambda connection: connection.request(message, timeout_ms=timeout_ms)
        )
        return answer

    async def ask_metadata(
        self, request: MetadataRequest, into: ClusterMetadata, *, timeout_ms: float | None = None
    ) -> None:
        """Request metadata from any broker, preferably an idle one, and merge the response into `into`.

        Other tasks get turns while it is read. Raises like `ask_any`.
        """

        async def ask(connection: Connection) -> None:
            patience_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
            answer = await connection.request_aside(request, timeout_ms=patience_ms)
            read = 0
            try:
                for partitions in into.read(answer.frame, answer.version, answer.position):
                    read += partitions + TOPIC_TAKES
                    if read >= READ_PER_TURN:
                        read = 0
                        await asyncio.sleep(0)
            except MalformedMessage as error:
                raise connection.unreadable(error) from None

        await self._first_answer(ask, idle_first=True)

    async def ask(
        self, broker_id: int, message: Request[ResponseT], *, lane: str = "", timeout_ms: float | None = None
    ) -> ResponseT:
        """Send a request to one broker, over its connection for `lane`, and return the answer. Raises ConnectionLost or
        RequestTimedOut."""
        connection = await self.connection(broker_id, lane)
        return await connection.request(message, timeout_ms=timeout_ms)

    # metadata

    def follow(self, holder: Hashable, topics: Iterable[str]) -> None:
        """Set the topics whose metadata full refreshes request on behalf of `holder`; without topics, none."""
        self._topics.hold(holder, topics)

    def unfollow(self, topics: Iterable[str]) -> None:
        """Stop refreshing the metadata of topics that `partitions_of` was called for."""
        self._topics.drop(topics)

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> None:
        """Fetch fresh metadata of `topics`; by default, of all topics that are followed or in use.

        Concurrent callers share requests. With `create` the brokers may create a missing topic, if they are configured
        to do so. Raises NoBrokerReachable or RequestTimedOut.
        """
        if self._closed:
            raise ClientClosed("the client was closed")
        now = asyncio.get_running_loop().time()
        self._forget_idle(now)
        wanted = self._topics.all()
        if topics is not None:
            wanted = set(topics)
            self._topics.ask(wanted, now)
        refreshing = self._creating if create else self._refreshing
        for some in _slices(wanted):  # Between two slices, a request for other topics gets a turn.
            await refreshing.of(set(some))

    def refresh_every(self, seconds: float) -> None:
        """Fetch fresh metadata at this interval from now on, since brokers do not announce added partitions."""
        self._refreshing_on = asyncio.ensure_future(self._refresh_every(seconds))

    async def partitions_of(
        self, topic: str, *, patience_s: float, backoff_max_ms: float, partition: int | None = None
    ) -> list[int]:
        """Return the partitions of `topic`, waiting up to `patience_s` for it to exist and to have `partition`.

        `patience_s` is a part of max_block_ms. The brokers may create a missing topic. Raises KafkaError.
        """
        loop = asyncio.get_running_loop()
        self._topics.use((topic,), loop.time())
        deadline = loop.time() + patience_s
        backoff = Backoff(backoff_max_ms)
        while True:
            info = self.metadata.topics.get(topic)
            if info is not None and info.partitions and (partition is None or partition in info.partitions):
                return list(info.partitions)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error
            if info is not None and not error.retriable and error != ErrorCode.NONE:
                where = f"topic {topic!r}"
                raise self.failure(error, where, operation="DESCRIBE", name=topic)
            if loop.time() > deadline and info is not None and info.partitions:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has {len(info.partitions)} partitions, there is none numbered {partition}, and "
                    f"none appeared in {patience_s:g} s of max_block_ms",
                )
            if loop.time() > deadline:
                raise KafkaError(error, f"topic {topic!r} did not appear in {patience_s:g} s")
            if info is not None:
                await asyncio.sleep(backoff.next_s())
            await self.refresh([topic], create=True)

    async def _refresh_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            with suppress(KafkaError):  # senders notice it, too, and refresh more often
                await self.refresh()

    def _forget_idle(self, now_s: float) -> None:
        if now_s - self._forgot_s < self._topics.idle_s / FORGETTING_TURNS:
            return
        self._forgot_s = now_s
        since_s = now_s - self._topics.idle_s
        in_use = {topic for user in self.users for topic in user(since_s)}
        self.metadata.keep(self._topics.forget(now_s, in_use))

    async def _refresh(self, topics: Sequence[str], *, create: bool) -> None:
        for some in _slices(topics):  # Several callers together may again exceed the limit.
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=topic) for topic in some],
                allow_auto_topic_creation=create,
            )
            await self.ask_metadata(request, self.metadata, timeout_ms=METADATA_TIMEOUT_MS)

    async def _first_answer(
        self, ask: Callable[[Connection], Awaitable[AnswerT]], *, idle_first: bool = False
    ) -> tuple[Connection, AnswerT]:
        """Ask one broker after the other, with a short wait for each, until one has answered.

        `idle_first`: ask brokers last that have other requests to answer.
        """
        left = self._candidates(idle_first=idle_first)
        asked: dict[asyncio.Task[tuple[Connection, AnswerT]], BrokerAddress] = {}
        reason: KafkaError | None = None
        try:
            while not self._closed:
                busy = {address.place for address in asked.values()}
                address = next((candidate for candidate in left if candidate.place not in busy), None)
                if address is not None:
                    left.remove(address)
                    asked[asyncio.ensure_future(self._ask_at(address, ask))] = address
                elif not asked:
                    break
                patience_s = HEDGE_AFTER_MS / 1000 if left else None
                await asyncio.wait(asked, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in asked if task.done()]:
                    del asked[task]
                    try:
                        return task.result()
                    except (ConnectionLost, RequestTimedOut, NoBrokerReachable) as error:
                        reason = error
        finally:
            for task in asked:
                task.cancel()
        if reason is None:
            raise ClientClosed("the client was closed")
        raise self._nobody_at_all(reason) if isinstance(reason, NoBrokerReachable) else reason

    async def _ask_at(
        self, address: BrokerAddress, ask: Callable[[Connection], Awaitable[AnswerT]]
    ) -> tuple[Connection, AnswerT]:
        """Send a request to one address. Raises NoBrokerReachable if no connection can be opened."""
        try:
            connection = await self._connection_to(address, "")
        except (ConnectionLost, RequestTimedOut) as error:
            raise NoBrokerReachable(error.message) from None
        return connection, await ask(connection)

    def _nobody_at_all(self, reason: KafkaError) -> NoBrokerReachable:
        servers = ", ".join(f"{address.host}:{address.port}" for address in self._bootstrap)
        return NoBrokerReachable(f"no broker answers at {servers} ({reason.message})")

    def _candidates(self, *, idle_first: bool) -> list[BrokerAddress]:
        """Return the addresses to ask, rotated at each call.

        Open connections come first, then the brokers known from metadata (again, as a connection may have broken), then
        the bootstrap servers.
        """
        self._turn += 1
        open_ones = _rotated([address for address, lane in self._connections if not lane], self._turn)
        if idle_first:
            open_ones.sort(key=lambda address: self._connections[address, ""].in_flight > 0)
        known = list(self.metadata.brokers.values())
        return [
            *open_ones,
            *dict.fromkeys(chain(_rotated(known, self._turn), self._bootstrap)),
        ]

    async def _connection_to(self, address: BrokerAddress, lane: str) -> Connection:
        if self._closed:
            raise ClientClosed("the client was closed")
        line = (address, lane)
        if (connection := self._connections.get(line)) is not None:
            return connection
        task = self._opening.get(line)
        return await asyncio.shield(task or self._begin_opening(line))

    def _begin_opening(self, line: _Line) -> asyncio.Task[Connection]:
        task = self._opening[line] = asyncio.ensure_future(self._open(line))
        # Retrieves the exception, since the waiter may have given up by then.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _open(self, line: _Line) -> Connection:
        address = line[0]
        try:
            await self._pause_after_refusal(address)
            connection = await connect(
                address,
                client_id=self._client_id,
                timeout_ms=self._connect_timeout_ms,
                request_timeout_ms=self.request_timeout_ms,
                security=self._security,
            )
        except AuthenticationFailed:
            now = asyncio.get_running_loop().time()
            pause_s = self.retry_backoff_max_ms / 1000
            self._refused_s = {
                refusing: at_s for refusing, at_s in self._refused_s.items() if at_s + pause_s > now
            }
            self._refused_s[address] = now
            raise
        finally:
            self._opening.pop(line, None)
        self._refused_s.pop(address, None)
        if connection.lost is not None:
            raise connection.lost
        self._connections[line] = connection
        connection.on_lost = self._forget
        return connection

    async def _pause_after_refusal(self, address: BrokerAddress) -> None:
        """Wait after a refused login, as logins are expensive for both ends."""
        if (refused_s := self._refused_s.get(address)) is not None:
            again_s = refused_s + self.retry_backoff_max_ms / 1000
            await asyncio.sleep(max(0.0, again_s - asyncio.get_running_loop().time()))

    def _forget(self, connection: Connection) -> None:
        for line, known in list(self._connections.items()):
            if known is connection:
                del self._connections[line]


def _rotated(addresses: list[BrokerAddress], turn: int) -> list[BrokerAddress]:
    start = turn % len(addresses) if addresses else 0
    return addresses[start:] + addresses[:start]


def _slices(topics: Iterable[str]) -> Iterator[Sequence[str]]:
    """Yield the sorted topics in slices of TOPICS_AT_A_TIME, one for each Metadata request. Without topics yield one
    empty slice, which requests the brokers alone."""
    ordered = sorted(topics)
    for first in range(0, len(ordered) or 1, TOPICS_AT_A_TIME):
        yield ordered[first : first + TOPICS_AT_A_TIME]
