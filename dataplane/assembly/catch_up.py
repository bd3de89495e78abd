"""Whether the replicas of a broker have caught up since its start."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.cluster_image import ClusterImage


class CatchUp:
    """Whether the replicas of a broker have been in sync since its start.

    A rolling update that waits for this takes no second replica away. Later lag does not count: clients still need
    what the broker leads.
    """

    def __init__(self, broker_id: int, image: Callable[[], ClusterImage]) -> None:
        self._broker_id = broker_id
        self._image = image
        self._caught_up = False

    def behind(self) -> int:
        """Replicas here that are not in the ISR though their log can be used; 0 once there have been none."""
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
