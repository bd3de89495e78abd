"""Keeps a broker from acting on images of the past while the metadata feed is replayed to it."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta


class ImageGate:
    """Lets changes of the image through once the image has all that came of this process's own registration.

    Images before that are of the time of an earlier process with this broker's id. Acted on, they would have
    this broker lead where it led then (and acknowledge alone what others decide about now), assign epochs
    that its logs are long past, and delete logs of topics that stand at a later point of the stream.

    The record of the registration is not enough: what becomes of thousands of partitions follows it in pieces.
    """

    def __init__(self, is_registered: Callable[[], bool]) -> None:
        """`is_registered`: whether the image has all that came of the registration."""
        self._is_registered = is_registered
        self.open = False

    def passed(self, image: ClusterImage, delta: ImageDelta) -> ImageDelta | None:
        """What there is to act on: nothing yet, everything at once, and then each change as it comes."""
        if self.open:
            return delta
        if not self._is_registered():
            return None
        self.open = True
        return ImageDelta.between(ClusterImage(), image)
