"""A gate that keeps a broker from acting on outdated images while the metadata feed is replayed to it."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta


class ImageGate:
    """A gate for changes of the image. It opens once the image has all consequences of this process's own registration.

    Images before that belong to the time of an earlier process with this broker's id. A broker that acted on them would
    lead where it led then (and acknowledge alone records that other brokers decide about now), assign epochs that its
    logs passed long ago, and delete logs of topics that are created at a later point of the stream.

    The record of the registration is not enough, since the resulting changes of thousands of partitions follow it in
    pieces.
    """

    def __init__(self, is_registered: Callable[[], bool]) -> None:
        """`is_registered` returns whether the image has all consequences of the registration."""
        self._is_registered = is_registered
        self.open = False

    def passed(self, image: ClusterImage, delta: ImageDelta) -> ImageDelta | None:
        """Return the changes of the image that the broker may act on.

        None before the gate opens, then the whole image at once, then each change as it comes.
        """
        if self.open:
            return delta
        if not self._is_registered():
            return None
        self.open = True
        return ImageDelta.between(ClusterImage(), image)
