"""Connections to the leaders that this broker follows. There is one connection to each broker, kept open even while
this broker follows no partition there.

Each is a non-blocking socket on the event loop. An answer is appended straight from the receive buffer. The next
request, which acknowledges it, is sent in the same iteration of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ....protocol.session.node_proof import NodeCredentials
from ....protocol.settings.config_fields import setting
from ...peers.link import PeerLink, PeerLinkSettings
from ..fetch_codec import decode_any_answer
from ..fetch_layout import read_answer, write_fetch
from ..fetch_values import PartitionKey
from ..replica.partition import Partition
from .fetching import NO_THROTTLE, FetchLimits, FetchThrottle, LeaderSession

# A leader may end a session because its image does not have this broker's registration yet, which passes soon.
_NEW_SESSION_AFTER_S = 0.01


@dataclass(frozen=True, slots=True)
class LinkSettings(PeerLinkSettings):
    """Timing and limits of the connections over which this broker fetches. A first batch may exceed the answer's size
    limit, up to `frame_max_bytes`."""

    fetch_wait_max_ms: int = setting("replica.fetch.wait.max.ms")


class LeaderLink(PeerLink):
    """The connection to one broker from whose leaders this broker fetches, and the fetch session on the connection."""

    _purpose = "followed"

    def __init__(
        self,
        peer_id: int,
        credentials: NodeCredentials,
        session: Callable[[Callable[[PartitionKey, float], None]], LeaderSession],
        settings: LinkSettings,
        endpoint: Callable[[], tuple[str, int] | None],
        broker_epoch: Callable[[], int],
        on_lost: Callable[[int], None],
    ) -> None:
        super().__init__(peer_id, credentials, settings, endpoint)
        self.session = session(self._retry)
        self._fetch_wait_max_ms = settings.fetch_wait_max_ms
        self._broker_epoch = broker_epoch
        self._on_lost = on_lost
        self._send_is_due = False

    # Followed partitions

    def follow(self, partition: Partition) -> None:
        """Fetch the partition over this link from now on: the broker at its other end leads the partition."""
        self.session.follow(partition)
        self._send_soon()

    def forget(self, key: PartitionKey) -> None:
        """Stop fetching the partition over this link."""
        self.session.forget(key)

    def again(self, key: PartitionKey) -> None:
        """Name the partition in the next Fetch request of this link."""
        self.session.again(key)
        self._send_soon()

    def _retry(self, key: PartitionKey, delay_s: float) -> None:
        self._loop.call_later(delay_s, self.again, key)

    def _send_soon(self) -> None:
        # Sending waits until the end of the loop iteration, since one image delta may change the leader of many
        # partitions.
        if not self._send_is_due:
            self._send_is_due = True
            self._loop.call_soon(self._ask)

    # Requests

    def _ask(self) -> None:
        self._send_is_due = False
        if not self.is_connected:
            self.connect()
            return
        if not self.may_ask:
            return
        fetch = self.session.next_fetch(self._broker_epoch())
        if fetch is None:
            return
        self.write(write_fetch(fetch, self._fetch_wait_max_ms, self.next_correlation_id()))
        if self.session.has_more_to_say:
            self._send_soon()

    # Answers

    def _answered(self, frame: memoryview) -> None:
        correlation_id, answer = read_answer(frame) or decode_any_answer(frame)
        self.expect(correlation_id)
        if self.session.answered(answer):
            self._ask()
        else:
            self._loop.call_later(_NEW_SESSION_AFTER_S, self._open_session)

    def _lost(self, *, had_proved_itself: bool) -> None:
        self.session.disconnected()
        self.reconnect_later()
        if had_proved_itself and not self.is_closed:
            self._on_lost(self.peer_id)

    def _peer_proved(self) -> None:
        # The first fetch has been sent already: it tells the peer nothing that a client may not know.
        pass

    def _unreachable(self) -> None:
        self.reconnect_later()

    def _open_session(self) -> None:
        self.session.open_anew()
        self._ask()


class Fetchers:
    """The links of this broker, one to each other broker, and the link over which each partition is fetched."""

    def __init__(
        self,
        credentials: NodeCredentials,
        limits: FetchLimits,
        settings: LinkSettings,
        endpoint_of: Callable[[int], tuple[str, int] | None],
        broker_epoch: Callable[[], int],
        on_failure: Callable[[Partition, Exception], None],
        throttle: FetchThrottle = NO_THROTTLE,
        on_lost: Callable[[int], None] = lambda _broker_id: None,
    ) -> None:
        """`on_lost` is called with the id of each broker whose connection has ended after the broker proved its
        identity.
        """
        self._throttle = throttle
        self._on_lost = on_lost
        self._credentials = credentials
        self._limits = limits
        self._settings = settings
        self._endpoint_of = endpoint_of
        self._broker_epoch = broker_epoch
        self._on_failure = on_failure
        self._links: dict[int, LeaderLink] = {}
        self._leader_of: dict[PartitionKey, int] = {}
        self._loop = asyncio.get_running_loop()
        self._timeouts = self._loop.call_later(settings.socket_timeout_s / 4, self._check_timeouts)

    def connect(self, peer_id: int) -> None:
        """Connect to a broker that has come up, so that the connection is ready before it is needed."""
        self._link(peer_id).connect(at_once=True)

    def disconnect(self, peer_id: int) -> None:
        """Close the link to a broker that was removed."""
        link = self._links.pop(peer_id, None)
        if link is not None:
            link.close()

    def heard_at(self, peer_id: int) -> float | None:
        """Return the time of the event loop at which the last bytes of a broker arrived over its link; None if none
        did."""
        link = self._links.get(peer_id)
        return None if link is None else link.heard_at

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Fetch the partition from `leader_id` in its new leader epoch."""
        key = (partition.topic_id, partition.index)
        previous = self._leader_of.get(key)
        if previous is not None and previous != leader_id and previous in self._links:
            self._links[previous].forget(key)
        self._leader_of[key] = leader_id
        self._link(leader_id).follow(partition)

    def forget(self, partition: Partition) -> None:
        """Stop fetching the partition from any leader."""
        key = (partition.topic_id, partition.index)
        link = self._links.get(self._leader_of.pop(key, -1))
        if link is not None:
            link.forget(key)

    def again(self, partition: Partition) -> None:
        """Name the partition in the next Fetch request to its leader, since fetched records are flushed and can be
        acknowledged.
        """
        key = (partition.topic_id, partition.index)
        link = self._links.get(self._leader_of.get(key, -1))
        if link is not None:
            link.again(key)

    def _link(self, peer_id: int) -> LeaderLink:
        link = self._links.get(peer_id)
        if link is None:
            link = self._links[peer_id] = LeaderLink(
                peer_id,
                self._credentials,
                lambda retry: LeaderSession(
                    self._credentials.node_id, self._limits, retry, self._on_failure, self._throttle
                ),
                self._settings,
                lambda: self._endpoint_of(peer_id),
                self._broker_epoch,
                self._on_lost,
            )
        return link

    def _check_timeouts(self) -> None:
        self._timeouts = self._loop.call_later(self._settings.socket_timeout_s / 4, self._check_timeouts)
        for link in self._links.values():
            link.check_timeout()

    def close(self) -> None:
        """Close all connections."""
        self._timeouts.cancel()
        for link in self._links.values():
            link.close()
        self._links.clear()
