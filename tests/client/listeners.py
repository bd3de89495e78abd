"""A rebalance listener that keeps its notifications."""

from __future__ import annotations

from ottla import RebalanceListener, TopicPartition


class KeptEvents(RebalanceListener):
    """A listener that keeps all its notifications in order, with the numbers of the partitions, for groups that read
    one topic.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, set[int]]] = []

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self._keep("assigned", partitions)

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self._keep("revoked", partitions)

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self._keep("lost", partitions)

    def all(self, *kinds: str) -> set[int]:
        """Return the partitions in notifications of these kinds."""
        return {partition for kind, partitions in self.events if kind in kinds for partition in partitions}

    def _keep(self, kind: str, partitions: set[TopicPartition]) -> None:
        self.events.append((kind, {partition.partition for partition in partitions}))
