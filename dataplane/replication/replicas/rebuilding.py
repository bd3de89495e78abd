"""Replicas whose logs are damaged, made anew from what others have.

A damaged replica is offline: the quorum has it in no ISR and elects it nowhere. As soon as another broker leads,
this one asks the quorum to count on nothing of what it has; when that is decided, the damaged log is set aside and
the replica begins empty, as one that was just assigned. Where nobody leads, the damaged log may be all that is left:
it is not touched.
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
"""Asks the quorum to take these back as replicas that have nothing; which it did. KafkaError if that is not known."""

_AT_ONCE_MAX = 1000


class Rebuilding:
    """Which damaged replicas wait to be made anew. Owned by the event loop.

    `renewable` says whether the cluster image has the replica offline and led by another; `begin` is called, in the
    turn in which the answer comes, for each replica that the quorum counts on no more, and `uncertain` for each about
    which nothing is certain.
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
        """Whether the quorum may be deciding about this one right now."""
        return key in self._asked

    def add(self, key: PartitionKey) -> None:
        """The log of this replica is damaged, and it is offline."""
        self._damaged[key] = None

    def discard(self, key: PartitionKey) -> None:
        """The replica is not this broker's any more, or its folder failed."""
        self._damaged.pop(key, None)

    def look(self) -> None:
        """Something changed, or time passed: ask for those that can be made anew now."""
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
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()


async def rebuild_nothing(_keys: Sequence[PartitionKey]) -> Sequence[PartitionKey]:
    """Where there is no quorum."""
    return ()


def rebuild_with(quorum: Quorum, broker_id: int) -> Rebuild:
    """Have replicas of this broker taken back by `quorum`."""

    async def renew(keys: Sequence[PartitionKey]) -> Sequence[PartitionKey]:
        command = RenewReplicas(
            broker_id=broker_id,
            broker_epoch=quorum.broker_epoch,
            partitions=[OfflineReplica(topic_id=topic_id, partition=index) for topic_id, index in keys],
        )
        result = await quorum.submit(command)
        return [(one.topic_id, one.partition) for one in result.renewed]

    return renew
