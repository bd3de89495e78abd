"""The replicas that this broker cannot write for now because their disk is full, and their reports to the quorum."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Sequence

from ....protocol.messages.offline_replica_commands import OfflineReplica, ReportWritability
from ...quorum.access import Quorum
from ..fetch_values import PartitionKey
from .reports import Reports

ReportWritable = Callable[[Sequence[PartitionKey], bool], Awaitable[None]]
"""A function that reports to the quorum whether these replicas can be written."""


class UnwritableReplicas:
    """The set of partitions whose replicas here cannot be written because their disk is full. The quorum is notified of
    each partition that joins the set, and of each that leaves it because its disk has space.

    A replica that is `lost` is never reported as writable. Owned by the event loop.
    """

    def __init__(self, report: ReportWritable, lost: Container[PartitionKey]) -> None:
        self._members: set[PartitionKey] = set()
        self._lost = lost
        self._reports: Reports[bool] = Reports(report, "replicas on full disks")

    def __contains__(self, key: object) -> bool:
        return key in self._members

    def __len__(self) -> int:
        return len(self._members)

    def become(self, keys: frozenset[PartitionKey]) -> frozenset[PartitionKey]:
        """Replace the set of unwritable replicas by `keys`. Returns the replicas that joined or left."""
        joined, left = keys - self._members, self._members - keys
        self._members = set(keys)
        self._reports.add(joined, False)
        self._reports.add([key for key in left if key not in self._lost], True)
        return joined | left

    def again(self, key: PartitionKey) -> None:
        """Report a member again, because the quorum does not count it as unwritable, or could not spare it before."""
        self._reports.add([key], False)

    def discard(self, key: PartitionKey) -> None:
        """Remove a replica that is lost, or no longer assigned to this broker."""
        self._members.discard(key)
        self._reports.discard(key)

    def close(self) -> None:
        """Stop reporting."""
        self._reports.close()


async def report_to_nobody(_keys: Sequence[PartitionKey], _writable: bool) -> None:
    """Drop the report about unwritable replicas, for a broker without a quorum (in tests)."""


def report_writability_to(quorum: Quorum, broker_id: int) -> ReportWritable:
    """Return a function that reports to `quorum` whether replicas of this broker can be written."""

    async def report(keys: Sequence[PartitionKey], writable: bool) -> None:
        command = ReportWritability(
            broker_id=broker_id,
            broker_epoch=quorum.broker_epoch,
            partitions=[OfflineReplica(topic_id=topic_id, partition=index) for topic_id, index in keys],
            writable=writable,
        )
        await quorum.submit(command)

    return report
