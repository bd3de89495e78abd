"""The replicas that this broker has lost to a failed disk, and the quorum's being told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.offline_replica_commands import OfflineReplica, ReportOfflineReplicas
from ...quorum.access import Quorum
from ..fetch_values import PartitionKey

logger = logging.getLogger(__name__)

Report = Callable[[Sequence[PartitionKey]], Awaitable[None]]

_REPORTED_AT_ONCE_MAX = 1000
_RETRY_S = 0.5


class OfflineReplicas:
    """A set of partitions; whatever joins it is reported until the quorum has it. Owned by the event loop."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._members: set[PartitionKey] = set()
        self._unreported: dict[PartitionKey, None] = {}
        self._reporting: asyncio.Task[None] | None = None

    def __contains__(self, key: object) -> bool:
        return key in self._members

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """These replicas cannot be used any more."""
        fresh = [key for key in keys if key not in self._members]
        self._members.update(fresh)
        self._report_soon(fresh)

    def again(self, key: PartitionKey) -> None:
        """The quorum does not know of this one: not yet, or no longer, since it moved away and back meanwhile."""
        self._report_soon([key])

    def _report_soon(self, keys: Iterable[PartitionKey]) -> None:
        self._unreported.update(dict.fromkeys(keys))
        if self._unreported and (self._reporting is None or self._reporting.done()):
            self._reporting = asyncio.create_task(self._report_all(), name="offline replicas")

    def discard(self, key: PartitionKey) -> None:
        """The replica is not this broker's any more."""
        self._members.discard(key)
        self._unreported.pop(key, None)

    async def reported(self) -> None:
        """Wait until the quorum knows of all there are."""
        while self._reporting is not None and not self._reporting.done():
            await asyncio.wait([self._reporting])

    async def _report_all(self) -> None:
        while self._unreported:
            batch = list(islice(self._unreported, _REPORTED_AT_ONCE_MAX))
            try:
                await self._report(batch)
            except KafkaError as error:
                if error.code is ErrorCode.STALE_BROKER_EPOCH:
                    return  # Another process has this broker's id, and this one ends.
                logger.warning("the quorum does not know yet of %d lost replicas: %s", len(batch), error)
                await asyncio.sleep(_RETRY_S)
                continue
            for key in batch:
                self._unreported.pop(key, None)

    def close(self) -> None:
        """Stop reporting."""
        if self._reporting is not None:
            self._reporting.cancel()


async def tell_nobody(_keys: Sequence[PartitionKey]) -> None:
    """Where there is no quorum."""


def report_to(quorum: Quorum, broker_id: int) -> Report:
    """Report the lost replicas of this broker to `quorum`."""

    async def report(keys: Sequence[PartitionKey]) -> None:
        command = ReportOfflineReplicas(
            broker_id=broker_id,
            broker_epoch=quorum.broker_epoch,
            partitions=[OfflineReplica(topic_id=topic_id, partition=index) for topic_id, index in keys],
        )
        await quorum.submit(command)

    return report
