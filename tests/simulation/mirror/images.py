"""What the quorum of a cluster has decided, as far as any of its nodes has known it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.protocol.cluster.cluster_image import ClusterImage
from tests.simulation.cluster.cluster import Node, SimulatedCluster

Listener = Callable[[ClusterImage], None]


class NewestImage:
    """Tells its listeners of every image that is newer than all before: nodes apply before anybody acts upon it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._names = {node.name for node in cluster.quorum.values()}
        self._offset = -1
        self.image: ClusterImage | None = None
        self.listeners: list[Listener] = []

    def observe(self, node: Node) -> None:
        """An invariant that never fails by itself."""
        if node.name not in self._names:
            return
        image = node.image()
        if image is not None and image.offset > self._offset:
            self._offset, self.image = image.offset, image
            for listener in self.listeners:
                listener(image)
