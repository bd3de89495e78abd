"""The server: its listeners and connections, and the checks that run over them once a second."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol.security_protocol import SecurityProtocol
from ..quotas import ClientQuotas, QuotaWindows
from ..security.authorization.access import Authorization
from ..security.peer_session import PeerSession
from ..security.principal import ANONYMOUS
from .buffers import BufferPool
from .connection import ClientConnection, ConnectionLimits
from .handler import HandlerTable
from .hang_ups import tell_hang_ups
from .listener import ListeningSocket
from .preparation import prepare_codecs
from .purgatory import Purgatory
from .receive_budget import ReceiveBudget
from .request_times import RequestTimes
from .router import Router

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 1.0
_HALF_CLOSED_SECONDS = 30.0
_TRIM_EVERY_SWEEPS = 10
_WAITING_TO_CLOSE_MAX = 1000


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Limits of a whole server."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: int = 2_147_483_647
    max_connections_per_ip: int = 2_147_483_647
    connections_max_idle_ms: int = 600_000
    backlog: int = 512
    # Memory for frames that have begun to arrive, over all connections.
    receive_budget_bytes: int = 256 * 1024 * 1024
    quota_windows: QuotaWindows = field(default_factory=QuotaWindows)


class Server:
    """Accepts connections and serves them with the handlers of a table."""

    def __init__(
        self,
        table: HandlerTable,
        config: ServerConfig | None = None,
        *,
        authorization: Authorization | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Without `authorization` everybody may do everything."""
        self.authorization = authorization
        self.config = config or ServerConfig()
        self._loop = loop or asyncio.get_running_loop()
        self._table = table
        self._preparing: asyncio.Task[None] | None = None
        self.pool = BufferPool()
        self.budget: ReceiveBudget[ClientConnection] = ReceiveBudget(self.config.receive_budget_bytes)
        self.purgatory = Purgatory(self._loop)
        self.times = RequestTimes()
        self.quotas = ClientQuotas(self.config.quota_windows)
        self.router = Router(table, self._loop, self.quotas, authorization)
        self.listeners: list[ListeningSocket] = []
        #: in the order in which they came
        self.connections: dict[ClientConnection, None] = {}
        #: connections of each address
        self._of_address: Counter[str] = Counter()
        #: where the broker's image of the metadata stands; what connections are older than is told by it
        self.metadata_offset: Callable[[], int] = lambda: -1
        self._accepted = 0
        #: these may change while the server runs
        self.max_connections = self.config.max_connections
        self.max_connections_per_ip = self.config.max_connections_per_ip
        self._waiting_to_close: dict[socket.socket, None] = {}
        self._sweeps = 0
        self._refused = 0
        self._timer: asyncio.TimerHandle | None = None

    def listen(self, name: str, host: str, port: int) -> ListeningSocket:
        """Bind an address without accepting yet; the listener tells the port. Raises PortInUse or OSError."""
        listener = ListeningSocket(
            name,
            host,
            port,
            self._accept,
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
        self._preparing = self._loop.create_task(prepare_codecs(self._table), name="codecs")

    def metadata_moved(self) -> None:
        """Tell the listeners that the broker's image has changed."""
        for listener in self.listeners:
            listener.accept_waiting()

    def stop_accepting(self) -> None:
        """Close the listeners; connections go on."""
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()

    def close(self) -> None:
        """Close the listeners and all connections, cancel running handlers and everything parked."""
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
        if self._preparing is not None:
            self._preparing.cancel()
        self.router.close()
        self.purgatory.close()
        for connection in list(self.connections):
            connection.close()
        for sock in list(self._waiting_to_close):
            self._close_waiting(sock)

    def _accept(self, listener: ListeningSocket, sock: socket.socket, peer: tuple[str, int]) -> None:
        if (
            len(self.connections) >= self.max_connections
            or self._of_address[peer[0]] >= self.max_connections_per_ip
        ):
            self._refused += 1
            sock.close()
            return
        quota = self.quotas.connections
        if quota is not None:
            throttle_ms = quota.admit_address(peer[0], 1, self._loop.time() * 1000)
            if throttle_ms:
                self._delayed_close(sock, throttle_ms)
                return
        self._accepted += 1
        host, port = peer
        connection = ClientConnection(
            sock,
            PeerSession(ANONYMOUS, host, listener.name, SecurityProtocol.PLAINTEXT),
            port,
            loop=self._loop,
            pool=self.pool,
            budget=self.budget,
            limits=self.config.limits,
            times=self.times,
            on_frame=self.router.dispatch,
            on_closed=self._closed,
            number=self._accepted,
            birth=listener.empty_at,
        )
        self.connections[connection] = None
        self._of_address[host] += 1

    def _closed(self, connection: ClientConnection) -> None:
        self.connections.pop(connection, None)
        host = connection.session.host
        left = self._of_address[host] - 1
        if left:
            self._of_address[host] = left
        else:
            del self._of_address[host]

    def _delayed_close(self, sock: socket.socket, throttle_ms: int) -> None:
        """A peer that connects too often learns it by waiting, unless too many wait already."""
        if len(self._waiting_to_close) >= _WAITING_TO_CLOSE_MAX:
            sock.close()
            return
        self._waiting_to_close[sock] = None
        self._loop.call_later(throttle_ms / 1000, self._close_waiting, sock)

    def _close_waiting(self, sock: socket.socket) -> None:
        self._waiting_to_close.pop(sock, None)
        sock.close()

    def _sweep(self) -> None:
        """Once a second: close what is idle or stuck, and let the pool shrink."""
        self._timer = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        now = self._loop.time()
        idle_since = now - self.config.connections_max_idle_ms / 1000
        for connection in [c for c in self.connections if self._is_overdue(c, now, idle_since)]:
            connection.close()
        tell_hang_ups({grant.owner for grant in self.budget.grants() if not grant.owner.is_reading})
        self._close_late(now)
        self._sweeps += 1
        if self._sweeps % _TRIM_EVERY_SWEEPS == 0:
            self.pool.trim()
        if self._refused:
            logger.warning(
                "refused %d connections: %d are open, max.connections is %d, max.connections.per.ip %d",
                self._refused, len(self.connections), self.max_connections, self.max_connections_per_ip,
            )  # fmt: skip
            self._refused = 0

    def _is_overdue(self, connection: ClientConnection, now: float, idle_since: float) -> bool:
        last = connection.last_activity
        if connection.half_closed and last < now - _HALF_CLOSED_SECONDS:
            return True
        return last < idle_since and (connection.is_blocked_on_peer or not connection.owes_replies)

    def _close_late(self, now: float) -> None:
        """Others wait for memory: close those whose requests take it for too long."""
        for connection in self.budget.late(now):
            logger.warning(
                "closing the connection of %s: its request arrives too slowly while others wait for memory "
                "(queued.max.request.bytes)", connection,
            )  # fmt: skip
            connection.close()
