"""The replicas that this broker has lost to a failed disk, and their reports to the quorum."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from ....protocol.messages.offline_replica_commands import OfflineReplica, ReportOfflineReplicas
from ...quorum.access import Quorum
from ..fetch_values import PartitionKey
from .reports import Reports

Report = Callable[[Sequence[PartitionKey]], Awaitable[None]]


class OfflineReplicas:
    """The set of partitions whose replicas here are lost to a failed disk. New members are reported until the quorum
    has recorded them. Owned by the event loop.
    """

    def __init__(self, report: Report) -> None:
        self._members: set[PartitionKey] = set()
        self._reports: Reports[None] = Reports(lambda keys, _: report(keys), "lost replicas")

    def __contains__(self, key: object) -> bool:
        return key in self._members

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """Add replicas that cannot be used any more."""
        fresh = [key for key in keys if key not in self._members]
        self._members.update(fresh)
        self._reports.add(fresh, None)

    def again(self, key: PartitionKey) -> None:
        """Report a replica again, because the quorum does not have it as offline: not yet, or no longer, after it was
        moved away and back."""
        self._reports.add([key], None)

    def discard(self, key: PartitionKey) -> None:
        """Remove a replica that is no longer assigned to this broker."""
        self._members.discard(key)
        self._reports.discard(key)

    async def reported(self) -> None:
        """Wait until the quorum has recorded all replicas in this set as offline."""
        await self._reports.arrived()

    def close(self) -> None:
        """Stop reporting."""
        self._reports.close()


async def tell_nobody(_keys: Sequence[PartitionKey]) -> None:
    """Drop the report of lost replicas, for a broker without a quorum (in tests)."""


def report_to(quorum: Quorum, broker_id: int) -> Report:
    """Return a function that reports the lost replicas of this broker to `quorum`."""

    async def report(keys: Sequence[PartitionKey]) -> None:
        command = ReportOfflineReplicas(
            broker_id=broker_id,
            broker_epoch=quorum.broker_epoch,
            partitions=[OfflineReplica(topic_id=topic_id, partition=index) for topic_id, index in keys],
        )
        await quorum.submit(command)

    return report
