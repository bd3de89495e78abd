"""The state of a broker's replicas since its start: whether all have caught up."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.cluster_image import ClusterImage


class CatchUp:
    """A check whether all replicas of a broker have been in sync since its start.

    A rolling update that waits for it never takes a second replica away. Later lag does not count, since clients still
    need the partitions that the broker leads.
    """

    def __init__(self, broker_id: int, image: Callable[[], ClusterImage]) -> None:
        self._broker_id = broker_id
        self._image = image
        self._caught_up = False

    def behind(self) -> int:
        """Return the number of replicas here that are not in the ISR although their log is usable; always 0 after it
        was 0 once."""
        if self._caught_up:
            return 0
        own = self._broker_id
        behind = sum(
            own in state.replicas and own not in state.isr and own not in state.offline_replicas
            for topic in self._image().topics.values()
            for state in topic.partitions.values()
        )
        self._caught_up = behind == 0
        return behind
