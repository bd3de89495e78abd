"""Rebuilding of replicas with damaged logs from the data of other brokers.

A damaged replica is offline: it is in no ISR, and is never elected. As soon as another broker leads, this broker asks
the quorum to expect no records from it. Once that is decided, the damaged log is set aside, and the replica begins
empty, like one that was just assigned. If no broker leads, the damaged log may be the only one left, and is not
touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.offline_replica_commands import OfflineReplica, RenewReplicas
from ...quorum.access import Quorum
from ..fetch_values import PartitionKey

logger = logging.getLogger(__name__)

Rebuild = Callable[[Sequence[PartitionKey]], Awaitable[Sequence[PartitionKey]]]
"""A function that asks the quorum to take replicas back as empty ones. It returns the replicas for which the quorum did
so, and raises KafkaError if that is unknown."""

_AT_ONCE_MAX = 1000


class Rebuilding:
    """The damaged replicas that wait to be rebuilt. Owned by the event loop.

    `renewable` returns whether the cluster image has the replica offline and led by another broker. `begin` is called
    for each replica from which the quorum expects no records any more, in the loop iteration in which its answer
    arrives. `uncertain` is called for each replica whose outcome is unknown.
    """

    def __init__(
        self,
        renew: Rebuild,
        renewable: Callable[[PartitionKey], bool],
        begin: Callable[[PartitionKey], None],
        uncertain: Callable[[PartitionKey], None],
    ) -> None:
        self._renew = renew
        self._renewable = renewable
        self._begin = begin
        self._uncertain = uncertain
        self._damaged: dict[PartitionKey, None] = {}
        self._asked: frozenset[PartitionKey] = frozenset()
        self._asking: asyncio.Task[None] | None = None

    def __contains__(self, key: object) -> bool:
        return key in self._damaged

    def is_asked(self, key: PartitionKey) -> bool:
        """Return whether a request to the quorum to rebuild this replica is under way."""
        return key in self._asked

    def add(self, key: PartitionKey) -> None:
        """Add an offline replica whose log is damaged."""
        self._damaged[key] = None

    def discard(self, key: PartitionKey) -> None:
        """Remove a replica that is no longer assigned to this broker, or whose folder failed."""
        self._damaged.pop(key, None)

    def look(self) -> None:
        """Ask the quorum whether to rebuild the damaged replicas that are renewable now. The caller calls this after
        changes of the image and periodically.
        """
        if self._asking is None and any(map(self._renewable, self._damaged)):
            self._asking = asyncio.create_task(self._ask(), name="renew damaged replicas")
            self._asking.add_done_callback(self._asked_all)

    def _asked_all(self, _task: asyncio.Task[None]) -> None:
        self._asking = None

    async def _ask(self) -> None:
        wanted = list(islice(filter(self._renewable, self._damaged), _AT_ONCE_MAX))
        self._asked = frozenset(wanted)
        try:
            renewed = await self._renew(wanted)
        except KafkaError as error:
            if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                logger.warning("damaged replicas stay offline for now: %s", error)
                self._settle(wanted, ())
            return
        finally:
            self._asked = frozenset()
        self._settle(wanted, renewed)

    def _settle(self, wanted: Sequence[PartitionKey], renewed: Sequence[PartitionKey]) -> None:
        for key in wanted:
            if key not in self._damaged:
                continue
            if key in renewed:
                del self._damaged[key]
                self._begin(key)
            else:
                self._uncertain(key)

    def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()


async def rebuild_nothing(_keys: Sequence[PartitionKey]) -> Sequence[PartitionKey]:
    """Rebuild nothing, where there is no quorum."""
    return ()


def rebuild_with(quorum: Quorum, broker_id: int) -> Rebuild:
    """Return a function that asks `quorum` to expect no records from damaged replicas of this broker any more, so that
    the replicas can begin empty.
    """

    async def renew(keys: Sequence[PartitionKey]) -> Sequence[PartitionKey]:
        command = RenewReplicas(
            broker_id=broker_id,
            broker_epoch=quorum.broker_epoch,
            partitions=[OfflineReplica(topic_id=topic_id, partition=index) for topic_id, index in keys],
        )
        result = await quorum.submit(command)
        return [(replica.topic_id, replica.partition) for replica in result.renewed]

    return renew
