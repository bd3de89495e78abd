"""The decisions of a cluster's quorum, as the most advanced node has known them."""

from __future__ import annotations

from collections.abc import Callable

from ottla.protocol.cluster.cluster_image import ClusterImage
from tests.simulation.cluster.cluster import Node, SimulatedCluster

Listener = Callable[[ClusterImage], None]


class NewestImage:
    """A notifier of every image that is newer than all before; nodes apply an image before any broker acts upon it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._names = {node.name for node in cluster.quorum.values()}
        self._offset = -1
        self.image: ClusterImage | None = None
        self.listeners: list[Listener] = []

    def observe(self, node: Node) -> None:
        """Notice new images. This never fails."""
        if node.name not in self._names:
            return
        image = node.image()
        if image is not None and image.offset > self._offset:
            self._offset, self.image = image.offset, image
            for listener in self.listeners:
                listener(image)
