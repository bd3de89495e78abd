"""The moment at which a broker makes the parts that serve the records of share groups: the first request for records.

Until then it does not load their code, since many clusters have no share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...protocol.exposition import Family
from ..handlers.dead_letters import DeadLetterHandlers
from ..handlers.share_acknowledge import ShareAcknowledgeHandlers
from ..handlers.share_fetch import ShareFetchHandlers
from ..handlers.txn_share_acknowledge import TxnShareAcknowledgeHandlers
from ..replication.replica.partition import Partition

if TYPE_CHECKING:
    from .share_parts import ShareParts


class LateShareParts:
    """The parts that serve the records of share groups, from the first request on.

    A new share partition looks up the role of its replica, so it misses no earlier election.
    """

    def __init__(self, make: Callable[[], ShareParts]) -> None:
        """`make` is called at the first request."""
        self._make = make
        self.made: ShareParts | None = None
        """The parts; None before the first request."""

    def parts(self) -> ShareParts:
        """Return the parts, which are made by the first call."""
        if self.made is None:
            self.made = self._make()
        return self.made

    def handlers(self) -> Iterator[object]:
        """Yield the handlers of requests that take and acknowledge records, or write dead letters."""
        yield ShareFetchHandlers(lambda: self.parts().fetches)
        yield ShareAcknowledgeHandlers(lambda: self.parts().acknowledgements)
        yield TxnShareAcknowledgeHandlers(lambda: self.parts().acknowledgements)
        yield DeadLetterHandlers(lambda: self.parts().letter_writes)

    def elected(self, partition: Partition) -> None:
        """Drop the share partitions of earlier leader epochs."""
        if self.made is not None:
            self.made.partitions.elected(partition)

    def resigned(self, topic: str, index: int) -> None:
        """Drop the share partitions of a partition that this broker no longer leads."""
        if self.made is not None:
            self.made.partitions.resigned(topic, index)

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics."""
        if self.made is not None:
            yield from self.made.metrics.metric_families()

    def close(self) -> None:
        """Stop all work, as the broker stops."""
        if self.made is not None:
            self.made.partitions.close()
