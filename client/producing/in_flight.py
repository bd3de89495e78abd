"""The Produce requests under way, and the brokers that leave them without an answer for too long."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...protocol.errors import KafkaError
from ..connections.cluster import Cluster
from ..connections.connection import Connection
from .accumulator import PartitionQueue, ProducerBatch
from .leaders import Leaders, Spawn

STALL_S = 1.0
"""A leader silent for so long is asked about elsewhere: it may hang while another one has taken over."""

Sent = list[tuple[PartitionQueue[Any], ProducerBatch[Any]]]
"""What one request carries."""


@dataclass(slots=True)
class _Outstanding:
    """The requests under way on one connection, and when the broker was last heard on it (loop time)."""

    heard_s: float
    requests: list[Sent] = field(default_factory=list)


class InFlight:
    """Requests by connection. Connections to leaders that went silent and were replaced are given up."""

    def __init__(self, cluster: Cluster, leaders: Leaders, spawn: Spawn) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._spawn = spawn
        self._by_connection: dict[Connection, _Outstanding] = {}
        self._stall_watch: asyncio.TimerHandle | None = None

    @property
    def none(self) -> bool:
        """Whether no request is under way."""
        return not self._by_connection

    def count(self, connection: Connection) -> int:
        """How many requests are under way on a connection."""
        outstanding = self._by_connection.get(connection)
        return 0 if outstanding is None else len(outstanding.requests)

    def add(self, connection: Connection, sent: Sent) -> None:
        """A request was sent that will be answered."""
        outstanding = self._by_connection.get(connection)
        if outstanding is None:
            loop = asyncio.get_running_loop()
            outstanding = self._by_connection[connection] = _Outstanding(loop.time())
            if self._stall_watch is None:
                self._stall_watch = loop.call_later(STALL_S, self._look_for_stalls)
        outstanding.requests.append(sent)

    def answered(self, connection: Connection, sent: Sent) -> None:
        """It was answered, or there will be no answer."""
        outstanding = self._by_connection[connection]
        outstanding.requests.remove(sent)
        outstanding.heard_s = asyncio.get_running_loop().time()
        if not outstanding.requests:
            del self._by_connection[connection]

    def close(self) -> None:
        """Watch no longer."""
        if self._stall_watch is not None:
            self._stall_watch.cancel()

    def _look_for_stalls(self) -> None:
        self._stall_watch = None
        if not self._by_connection:
            return
        loop = asyncio.get_running_loop()
        if any(loop.time() - outstanding.heard_s >= STALL_S for outstanding in self._by_connection.values()):
            self._spawn(self._leave_stalled_leaders())
        self._cluster.keep_ready(self._next_leaders())
        self._stall_watch = loop.call_later(STALL_S, self._look_for_stalls)

    def _next_leaders(self) -> set[int]:
        """The brokers that may take over what is under way: a failover does not wait for connections to them."""
        metadata = self._cluster.metadata
        partitions = (metadata.partition(queue.topic, queue.partition) for queue in self._queues())
        return {broker_id for info in partitions if info is not None for broker_id in info.replicas}

    def _queues(self) -> set[PartitionQueue[Any]]:
        return {
            queue
            for outstanding in self._by_connection.values()
            for sent in outstanding.requests
            for queue, _ in sent
        }

    async def _leave_stalled_leaders(self) -> None:
        """Give up connections to brokers that went silent and no longer lead what they were sent."""
        with suppress(KafkaError):
            await self._cluster.refresh({queue.topic for queue in self._queues()})
        now = asyncio.get_running_loop().time()
        for connection, outstanding in list(self._by_connection.items()):
            silent = now - outstanding.heard_s >= STALL_S
            leaders = [self._leaders.of(queue) for sent in outstanding.requests for queue, _ in sent]
            if silent and any(one is not None and one[0] != connection.address.id for one in leaders):
                connection.close()
