"""The Produce requests in flight, and the detection of brokers that do not answer for too long."""

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

STALL_S = 0.5
"""Time in seconds after which another broker is asked for the leader: the silent one may hang and have been
replaced."""
_LOOK_AGAIN_S = 0.15
"""The least time in seconds until a broker is asked again whether a silent leader was replaced."""
_LOOK_AGAIN_PART = 1 / 6
"""The part of a leader's silence until the next question, so that a cluster that is only slow is asked ever less."""

Sent = list[tuple[PartitionQueue[Any], ProducerBatch[Any]]]
"""The queues and batches that one request carries."""


@dataclass(slots=True)
class _Outstanding:
    """The requests in flight on a connection, and the loop time of the last data from its broker."""

    heard_s: float
    requests: list[Sent] = field(default_factory=list)


class InFlight:
    """Produce requests by connection. Connections to leaders that went silent and were replaced are closed."""

    def __init__(self, cluster: Cluster, leaders: Leaders, spawn: Spawn) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._spawn = spawn
        self._by_connection: dict[Connection, _Outstanding] = {}
        self._stall_watch: asyncio.TimerHandle | None = None

    @property
    def none(self) -> bool:
        """True if no Produce request is in flight."""
        return not self._by_connection

    def count(self, connection: Connection) -> int:
        """Return the number of Produce requests in flight on a connection."""
        outstanding = self._by_connection.get(connection)
        return 0 if outstanding is None else len(outstanding.requests)

    def add(self, connection: Connection, sent: Sent) -> None:
        """Note a sent Produce request that will be answered."""
        outstanding = self._by_connection.get(connection)
        if outstanding is None:
            loop = asyncio.get_running_loop()
            outstanding = self._by_connection[connection] = _Outstanding(loop.time())
            if self._stall_watch is None:
                self._stall_watch = loop.call_later(STALL_S, self._look_for_stalls)
        outstanding.requests.append(sent)

    def answered(self, connection: Connection, sent: Sent) -> None:
        """Remove a Produce request that was answered, or will get no answer."""
        outstanding = self._by_connection[connection]
        outstanding.requests.remove(sent)
        outstanding.heard_s = asyncio.get_running_loop().time()
        if not outstanding.requests:
            del self._by_connection[connection]

    def close(self) -> None:
        """Stop watching for brokers that do not answer."""
        if self._stall_watch is not None:
            self._stall_watch.cancel()

    def _look_for_stalls(self) -> None:
        self._stall_watch = None
        if not self._by_connection:
            return
        loop = asyncio.get_running_loop()
        silence = loop.time() - min(outstanding.heard_s for outstanding in self._by_connection.values())
        if silence >= STALL_S:
            self._spawn(self._leave_stalled_leaders())
        self._cluster.keep_ready(self._next_leaders())
        self._stall_watch = loop.call_later(next_look_s(silence), self._look_for_stalls)

    def _next_leaders(self) -> set[int]:
        """Return the brokers that may become the partitions' leaders. Connections to them are made ahead of a
        failover."""
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
        """Close connections to brokers that went silent and no longer lead the partitions that they were sent."""
        with suppress(KafkaError):
            await self._cluster.refresh({queue.topic for queue in self._queues()})
        now = asyncio.get_running_loop().time()
        for connection, outstanding in list(self._by_connection.items()):
            silent = now - outstanding.heard_s >= STALL_S
            leaders = [self._leaders.of(queue) for sent in outstanding.requests for queue, _ in sent]
            if silent and any(
                leader is not None and leader[0] != connection.address.id for leader in leaders
            ):
                connection.close()


def next_look_s(silence_s: float) -> float:
    """Return the seconds until the watch looks again, after the longest silence of a broker with open requests."""
    if silence_s < STALL_S:
        return STALL_S - silence_s
    return max(_LOOK_AGAIN_S, silence_s * _LOOK_AGAIN_PART)
