"""The reactions of a broker's parts to each change of the metadata, in the loop iteration in which the image
changes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Protocol

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ..quorum.image_gate import ImageGate

logger = logging.getLogger(__name__)


class FollowingPart(Protocol):
    """A part of the broker that is notified of each change of the cluster image."""

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Apply a change of the cluster image to this part. `image` contains the change already."""
        ...


class ImageChanges:
    """The list of the broker's parts that follow the cluster image, in the order in which each change must reach
    them.
    """

    def __init__(self, followers: Sequence[FollowingPart]) -> None:
        """`followers` get each change in this order."""
        self.followers = followers

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Pass a change, which the image already contains, to all followers."""
        for follower in self.followers:
            follower.image_changed(image, delta)


class FollowersBehindGate:
    """Parts of the broker that follow the cluster image only once the gate opens: the image then contains all effects
    of this process's registration. Their first change is the whole image.

    If one of them fails, the process ends at once. The image contains the change already, so to continue would mean
    roles that no longer follow it.
    """

    def __init__(self, gate: ImageGate, followers: Sequence[FollowingPart]) -> None:
        """`followers` get each change that passes the gate in this order."""
        self._gate = gate
        self.followers = followers

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Pass a change to the followers, if the gate is open."""
        passed = self._gate.passed(image, delta)
        if passed is None:
            return
        try:
            for follower in self.followers:
                follower.image_changed(image, passed)
        except Exception:
            logger.critical("a change of the metadata cannot be followed: this broker ends", exc_info=True)
            os._exit(1)
