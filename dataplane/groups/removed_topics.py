"""The names of removed topics: a change of the image identifies them only by id, and offsets are kept by name."""

from __future__ import annotations

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from .coordinator import GroupCoordinator


class RemovedTopics:
    """A follower of the cluster image that reports removed topics to the groups by name."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups
        self._names: dict[bytes, str] = {}

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Have the groups forget the offsets of removed topics."""
        names = self._names
        gone = [names.pop(topic_id) for topic_id in delta.removed_topics if topic_id in names]
        names.update((topic_id, image.topics_by_id[topic_id].name) for topic_id in delta.topics)
        self._groups.topics_removed(gone)
