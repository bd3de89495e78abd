"""The leaders of the partitions that a producer writes to: the connections to them, and the search for new leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Coroutine
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..connections.connection import Connection
from ..failures import AuthenticationFailed
from .accumulator import PartitionQueue

REFUSED_S = 0.02
"""Minimum time in seconds before an unreachable broker is tried again. Metadata is refreshed more often than that."""

LEADER_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Answers that mean: look up the current leader."""

Spawn = Callable[[Coroutine[None, None, None]], None]
"""A function that runs a coroutine as a task of the sender, until the sender is closed."""
_Queue = PartitionQueue[Any]


@dataclass(slots=True)
class _Unreachable:
    """A broker to which there is no connection. `timer` expires when it may be tried again."""

    backoff: Backoff
    may_be_tried: bool = True
    timer: asyncio.TimerHandle | None = None


class Leaders:
    """The leaders of the partitions that a producer's queues write to: their connections and failures, and the search
    for new leaders."""

    def __init__(
        self,
        cluster: Cluster,
        active: Collection[_Queue],
        retry_backoff_max_ms: int,
        spawn: Spawn,
        wake: Callable[[], None],
        refused: Callable[[_Queue, KafkaError], None],
    ) -> None:
        """`active` has at any time the queues with waiting batches; `wake` is called when more of them may be sent than
        before. `refused` is called with a queue whose leader refuses the client's authentication."""
        self._cluster = cluster
        self._active = active
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._spawn = spawn
        self._wake = wake
        self._refused = refused
        self._backoffs: dict[_Queue, Backoff] = {}
        self._connecting: set[int] = set()
        self._unreachable: dict[int, _Unreachable] = {}
        self._leaderless: dict[_Queue, None] = {}
        self._seeking = False
        self._closed = False

    def of(self, queue: _Queue) -> tuple[int, int] | None:
        """Return the broker id and leader epoch of the leader of a queue's partition; None if no leader is known."""
        info = self._cluster.metadata.partition(queue.topic, queue.partition)
        return None if info is None or info.leader < 0 else (info.leader, info.leader_epoch)

    def connection_for(self, queue: _Queue, leader: tuple[int, int] | None) -> Connection | None:
        """Return the open connection to the queue's leader. Without one, start to connect, or to search for another
        leader."""
        if leader is None:
            self._search_for(queue)
            return None
        broker_id = leader[0]
        connection = self._cluster.connected(broker_id)
        if connection is not None:
            self._unreachable.pop(broker_id, None)  # Other parts of the client open connections, too.
            return connection
        refused = self._unreachable.get(broker_id)
        if refused is not None:
            self._search_for(queue)
        if broker_id not in self._connecting and (refused is None or refused.may_be_tried):
            self._connecting.add(broker_id)
            self._spawn(self._connect(broker_id))
        return None

    def failed(self, queue: _Queue, *, moved: bool) -> None:
        """Note that an attempt failed and is to be repeated. `moved` is True if another broker may lead by now.

        If a newer leader is known already, it gets the batch at once.
        """
        leader = self.of(queue)
        if moved and leader is not None and leader != queue.sent_to:
            return
        backoff = self._backoffs.setdefault(queue, Backoff(self._retry_backoff_max_ms))
        queue.failed_leader = queue.sent_to
        queue.retry_at_s = asyncio.get_running_loop().time() + backoff.next_s()
        if moved:
            self._search_for(queue)

    def lost(self, broker_id: int) -> None:
        """Note that the connection to a broker ended with requests in flight. Its queues need another leader, or a new
        connection."""
        if broker_id not in self._unreachable:
            self._unreachable[broker_id] = _Unreachable(Backoff(self._retry_backoff_max_ms))
            self._search_for_all_of(broker_id)

    def succeeded(self, queue: _Queue) -> None:
        """Note that the leader of a queue's partition accepted a batch, and forget earlier failures."""
        queue.failed_leader = None
        self._backoffs.pop(queue, None)
        self._leaderless.pop(queue, None)

    def forget(self, queue: _Queue) -> None:
        """Forget the failed attempts for a queue that has no waiting batches any more."""
        self._backoffs.pop(queue, None)
        self._leaderless.pop(queue, None)

    def forget_brokers(self, known: Container[int]) -> None:
        """Forget the failures of all brokers except those known."""
        for broker_id in [broker_id for broker_id in self._unreachable if broker_id not in known]:
            if (timer := self._unreachable.pop(broker_id).timer) is not None:
                timer.cancel()

    def close(self) -> None:
        """Stop searching."""
        self._closed = True
        for refused in self._unreachable.values():
            if refused.timer is not None:
                refused.timer.cancel()

    async def _connect(self, broker_id: int) -> None:
        try:
            await self._cluster.connection(broker_id)
        except AuthenticationFailed as error:
            for queue in list(self._active):
                if (leader := self.of(queue)) is not None and leader[0] == broker_id:
                    self._refused(queue, error)
        except KafkaError:
            self._connecting.discard(broker_id)
            self._refused_by(broker_id)
            return
        self._connecting.discard(broker_id)
        self._unreachable.pop(broker_id, None)
        self._wake()

    def _refused_by(self, broker_id: int) -> None:
        """Note that a broker cannot be reached. The sender is not woken before the broker may be tried again."""
        self.lost(broker_id)
        refused = self._unreachable[broker_id]
        refused.may_be_tried = False
        wait_s = max(refused.backoff.next_s(), REFUSED_S)
        refused.timer = asyncio.get_running_loop().call_later(wait_s, self._try_again, refused)

    def _try_again(self, refused: _Unreachable) -> None:
        refused.may_be_tried = True
        self._wake()

    def _search_for_all_of(self, broker_id: int) -> None:
        for queue in self._active:
            if (leader := self.of(queue)) is not None and leader[0] == broker_id:
                queue.failed_leader = leader
                self._search_for(queue)

    def _search_for(self, queue: _Queue) -> None:
        self._leaderless[queue] = None
        if not self._seeking:
            self._seeking = True
            self._spawn(self._refresh_until_led())

    async def _refresh_until_led(self) -> None:
        """Refresh metadata until every leaderless queue has another leader than the one that failed."""
        backoff = Backoff(self._retry_backoff_max_ms)
        try:
            while self._leaderless and not self._closed:
                try:
                    await self._cluster.refresh({queue.topic for queue in self._leaderless})
                except AuthenticationFailed as error:
                    for queue in self._leaderless:
                        self._refused(queue, error)
                except KafkaError:
                    pass  # A broker that is unreachable now may be reachable soon.
                leaderless = {
                    queue: None
                    for queue in self._leaderless
                    if queue.waiting and not self._has_other_leader(queue)
                }
                if len(leaderless) < len(self._leaderless):
                    self._leaderless = leaderless
                    self._wake()
                if leaderless:
                    await asyncio.sleep(backoff.next_s(len(leaderless)))
        finally:
            self._seeking = False

    def _has_other_leader(self, queue: _Queue) -> bool:
        leader = self.of(queue)
        if leader is None or leader == queue.failed_leader:
            return False
        # A broker lost long ago may be back: no connection was tried since.
        lost = self._unreachable.get(leader[0])
        return lost is None or lost.may_be_tried
