"""The server: its listeners and connections, and the checks of them once a second."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...network.tls.stream import TlsStream
from ...network.unauthenticated_limits import UnauthenticatedPeers
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.settings.config_fields import setting
from ...protocol.settings.config_key import LONG_MAX
from ...protocol.settings.security_protocol import SecurityProtocol
from ..quotas import ClientQuotas, QuotaWindows
from ..runtime.clocks import wall_ms
from ..security.authorization.access import Authorization
from ..security.listener_tls import ListenerTls
from ..security.peer_session import PeerSession
from ..security.principal import ANONYMOUS, Principal
from .admissions import AdmissionLimits, Admissions
from .authentication import AuthenticationSettings
from .authentications import Authentications
from .buffers import BufferPool
from .codec_warmup import warm_up_codecs
from .connection import ClientConnection, ConnectionLimits
from .delayed_closes import DelayedCloses
from .handler import ClientRequest, HandlerTable
from .handshakes import Handshakes, Newcomer
from .listener import ListeningSocket
from .peer_close import notify_closed_peers
from .purgatory import Purgatory
from .receive_budget import ReceiveBudget
from .request_times import RequestTimes
from .router import Router
from .socket_adapters import SocketAdapter, plain_adapter, tls_adapter
from .unread_answers import UNREAD_BYTES_MAX, UnreadAnswers

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 1.0
_HALF_CLOSED_SECONDS = 30.0
_TRIM_EVERY_SWEEPS = 10
_RECEIVE_BUDGET_BYTES = 256 * 1024 * 1024


def _idle_limit(idle_ms: int) -> int:
    """Return the milliseconds after which an idle connection is closed, from connections.max.idle.ms; a value of 0 or
    less disables that.
    """
    return idle_ms if idle_ms > 0 else LONG_MAX


def _receive_budget(budget_bytes: int) -> int:
    """Return the bytes of memory for incoming requests, from queued.max.request.bytes; for a value of 0 or less the
    server chooses.
    """
    return budget_bytes if budget_bytes > 0 else _RECEIVE_BUDGET_BYTES


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The limits of a whole server: of its connections, requests and memory."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    connections_max_idle_ms: int = setting("connections.max.idle.ms", _idle_limit)
    backlog: int = setting("socket.listen.backlog.size")
    # Memory for incomplete frames of all connections.
    receive_budget_bytes: int = setting("queued.max.request.bytes", _receive_budget)
    unread_bytes: int = UNREAD_BYTES_MAX
    quota_windows: QuotaWindows = field(default_factory=QuotaWindows)
    handshake_timeout_ms: int = setting("ssl.handshake.timeout.ms")
    # Limits of peers that have not proved their identity by a handshake or a login, in total and per address.
    max_unauthenticated: int = setting("max.unauthenticated.connections")
    max_unauthenticated_per_ip: int = setting("max.unauthenticated.connections.per.ip")


class Server:
    """A server that accepts connections and serves them with the handlers of a table."""

    def __init__(
        self,
        table: HandlerTable,
        config: ServerConfig | None = None,
        *,
        authorization: Authorization | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Without `authorization` every client may do everything."""
        self.authorization = authorization
        self.config = config or ServerConfig()
        self._loop = loop or asyncio.get_running_loop()
        self._table = table
        self._preparing: asyncio.Task[None] | None = None
        self.pool = BufferPool()
        self.budget: ReceiveBudget[ClientConnection] = ReceiveBudget(self.config.receive_budget_bytes)
        self.unread = UnreadAnswers(self.config.unread_bytes)
        self.purgatory = Purgatory(self._loop)
        self.times = RequestTimes()
        self.quotas = ClientQuotas(self.config.quota_windows)
        self.router = Router(table, self._loop, self.quotas, authorization)
        #: settings of logins by listener name; the other listeners require no login
        self.authentication: Mapping[str, AuthenticationSettings] = {}
        self._unauthenticated: UnauthenticatedPeers[Newcomer] = UnauthenticatedPeers(
            self.config.max_unauthenticated, self.config.max_unauthenticated_per_ip
        )
        self._delayed_closes = DelayedCloses(self._loop)
        self.authentications = Authentications(
            self._loop,
            wall_ms,
            self.config.limits,
            self.router.dispatch,
            self._answer_versions,
            self._unauthenticated,
            self._delayed_closes,
            table.waits_for_others,
        )
        self.listeners: list[ListeningSocket] = []
        self.handshakes = Handshakes(
            self.config.handshake_timeout_ms / 1000,
            self._shaken,
            self._not_shaken,
            self._unauthenticated.progressed,
            self._loop,
        )
        #: in order of arrival
        self.connections: dict[ClientConnection, None] = {}
        #: function that returns the offset of the broker's metadata image; each connection's `birth` is such an offset
        self.metadata_offset: Callable[[], int] = lambda: -1
        self._accepted = 0
        self.admissions = Admissions(AdmissionLimits(), self.config.quota_windows)
        self._sweeps = 0
        #: number of refused connections since the last sweep, by the setting that refused them
        self._refused: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def listen(
        self,
        name: str,
        host: str,
        port: int,
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        tls: ListenerTls | None = None,
    ) -> ListeningSocket:
        """Bind a named listener to an address, without accepting connections yet. The result has the bound port. Raises
        PortInUse or OSError.
        """

        def accept(listener: ListeningSocket, sock: socket.socket, peer: tuple[str, int]) -> None:
            session = PeerSession(ANONYMOUS, peer[0], name, security_protocol)
            deadline = self._loop.time() + self._proof_timeout_s(name)
            self._accept(listener, Newcomer(sock, session, peer[1], listener.empty_at, deadline), tls)

        listener = ListeningSocket(
            name,
            host,
            port,
            accept,
            backlog=self.config.backlog,
            loop=self._loop,
            position=lambda: self.metadata_offset(),
        )
        self.listeners.append(listener)
        return listener

    def start(self) -> None:
        """Begin to accept on every listener."""
        for listener in self.listeners:
            listener.start()
        self._timer = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        self._preparing = self._loop.create_task(warm_up_codecs(self._table), name="codecs")

    def image_changed(self, _image: ClusterImage, _delta: ImageDelta) -> None:
        """Let the listeners accept waiting connections now that the broker's metadata image has changed: each later
        connection is younger than the change.
        """
        for listener in self.listeners:
            listener.accept_waiting()

    def stop_accepting(self) -> None:
        """Close the listeners; connections remain open."""
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()

    def close(self) -> None:
        """Close the listeners and all connections, and cancel running handlers and parked requests."""
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
        if self._preparing is not None:
            self._preparing.cancel()
        self.handshakes.close()
        self.router.close()
        self.purgatory.close()
        for connection in list(self.connections):
            connection.close()
        self._delayed_closes.close_all()

    def _accept(self, listener: ListeningSocket, newcomer: Newcomer, tls: ListenerTls | None) -> None:
        host, now_ms = newcomer.session.host, self._loop.time() * 1000
        refusal = self.admissions.refusal(listener.name, host)
        if refusal is not None:
            self._refused[refusal] += 1
            newcomer.sock.close()
            return
        quota = self.quotas.connections
        if quota is not None:
            throttle_ms = quota.admit_address(host, 1, now_ms)
            if throttle_ms:
                # A peer that connects too often notices it by waiting.
                self._delayed_closes.close_later(newcomer.sock.close, throttle_ms)
                return
        wait_ms = self.admissions.came(listener.name, now_ms)
        if wait_ms:
            listener.pause(wait_ms / 1000)
        self.admissions.enter(listener.name, host)
        if self.admissions.is_full_beyond:
            self._close_longest_idle(listener.name)
        if tls is not None or newcomer.session.listener in self.authentication:
            self._admit_unauthenticated(newcomer)
        if tls is None:
            self._serve(plain_adapter(newcomer.sock, self._loop), newcomer, newcomer.session)
        else:
            self.handshakes.begin(newcomer, tls)

    def _proof_timeout_s(self, listener: str) -> float:
        """Return the time in seconds that a peer may take to prove its identity: by a login, or else by its
        handshake."""
        authentication = self.authentication.get(listener)
        if authentication is not None:
            return authentication.timeout_ms / 1000
        return self.config.handshake_timeout_ms / 1000

    def _admit_unauthenticated(self, newcomer: Newcomer) -> None:
        oldest = self._unauthenticated.admit(newcomer, newcomer.session.host)
        if oldest is not None:
            logger.info(
                "closing the connection of %s: too many have not proved who they are "
                "(max.unauthenticated.connections, max.unauthenticated.connections.per.ip)", oldest,
            )  # fmt: skip
            if not self.handshakes.cut_off(oldest):
                self.authentications.cut_off(oldest)

    def _close_longest_idle(self, but_not_on: str) -> None:
        """Close the longest idle client connection, to make room for a connection of a broker. Connections to the
        listener `but_not_on` are spared.
        """
        clients = [each for each in self.connections if each.session.listener != but_not_on]
        idle = min(clients, key=lambda each: (each.owes_replies, each.last_activity), default=None)
        if idle is not None:
            logger.info("closing the connection of %s: a broker takes its place (max.connections)", idle)
            idle.close()

    def _not_shaken(self, newcomer: Newcomer) -> None:
        self._unauthenticated.forget(newcomer)
        self.admissions.leave(newcomer.session.listener, newcomer.session.host)

    def _shaken(self, newcomer: Newcomer, stream: TlsStream, principal: Principal) -> None:
        adapter = tls_adapter(newcomer.sock, stream, self._loop, self.pool)
        self._serve(adapter, newcomer, replace(newcomer.session, principal=principal))

    def _serve(self, adapter: SocketAdapter, newcomer: Newcomer, session: PeerSession) -> None:
        self._accepted += 1
        connection = ClientConnection(
            adapter,
            session,
            newcomer.port,
            loop=self._loop,
            pool=self.pool,
            budget=self.budget,
            limits=self.config.limits,
            times=self.times,
            unread=self.unread,
            on_frame=self.router.dispatch,
            on_closed=self._closed,
            number=self._accepted,
            birth=newcomer.birth,
        )
        self.connections[connection] = None
        authentication = self.authentication.get(session.listener)
        if authentication is not None:
            self.authentications.begin(connection, newcomer, authentication)
        else:
            self._unauthenticated.forget(newcomer)

    def _answer_versions(self, request: ClientRequest, message: ApiVersionsRequest) -> ApiVersionsResponse:
        handler = self._table.get(ApiVersionsRequest.api_key)
        assert handler is not None, "a server without ApiVersions cannot have listeners that ask for a login"
        response: ApiVersionsResponse = handler.function(request, message)
        return response

    def _closed(self, connection: ClientConnection) -> None:
        self.connections.pop(connection, None)
        self.admissions.leave(connection.session.listener, connection.session.host)

    def _sweep(self) -> None:
        """Close idle and stuck connections, and shrink the pool. It runs once a second."""
        self._timer = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        now = self._loop.time()
        idle_since = now - self.config.connections_max_idle_ms / 1000
        for connection in [c for c in self.connections if self._is_overdue(c, now, idle_since)]:
            connection.close()
        notify_closed_peers({grant.owner for grant in self.budget.grants() if not grant.owner.is_reading})
        self._close_late(now)
        self.handshakes.log.sweep(now)
        self._sweeps += 1
        if self._sweeps % _TRIM_EVERY_SWEEPS == 0:
            self.pool.trim()
        if self._refused:
            counts = ", ".join(f"{count} by {setting}" for setting, count in sorted(self._refused.items()))
            logger.warning("refused connections: %s; %d are open", counts, self.admissions.open)
            self._refused.clear()

    def _is_overdue(self, connection: ClientConnection, now: float, idle_since: float) -> bool:
        last = connection.last_activity
        if connection.half_closed and last < now - _HALF_CLOSED_SECONDS:
            return True
        return last < idle_since and (connection.is_blocked_on_peer or not connection.owes_replies)

    def _close_late(self, now: float) -> None:
        """Close connections whose requests occupy memory for too long while others wait for it."""
        if self.budget.waiting:
            # They are judged by all received bytes, also by those below the low-water mark.
            for grant in list(self.budget.grants()):
                grant.owner.look()
        for connection in self.budget.late(now):
            logger.warning(
                "closing the connection of %s: its request arrives too slowly while others wait for memory "
                "(queued.max.request.bytes)", connection,
            )  # fmt: skip
            connection.close()
