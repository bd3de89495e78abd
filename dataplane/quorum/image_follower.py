"""The broker's image: a pure fold of the record stream.

Pushes are folded whole or not at all. A push that does not continue where the image stands is left alone (it
was on its way when the broker moved to another node), and one that leaves a gap asks for a new subscription.
"""

from enum import Enum

from ...protocol.cluster_image import ClusterImage, ImageDelta
from ...protocol.messages.metadata_records import decode_record
from ...protocol.messages.quorum_session import FeedRecords, FeedSnapshotChunk


class Fold(Enum):
    """What became of a push that changed nothing."""

    NOTHING = "seen before, or a snapshot that is not complete yet"
    RESUBSCRIBE = "it does not fit: subscribe again from where the image stands"


class ImageFollower:
    """Folds pushes into `image`, which stays one and the same object.

    A snapshot is folded beside it and taken over at once when complete; `snapshots` counts them.
    """

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.snapshots = 0
        self._building: ClusterImage | None = None

    def records(self, push: FeedRecords) -> ImageDelta | Fold:
        """What these records changed."""
        if push.end_offset <= self.image.offset:
            return Fold.NOTHING
        if push.first_offset != self.image.offset:
            return Fold.RESUBSCRIBE
        delta = ImageDelta()
        for encoded in push.records:
            record = decode_record(encoded)
            delta.note(record)
            self.image.apply(record)
        self.image.offset = push.end_offset
        return delta

    def snapshot(self, chunk: FeedSnapshotChunk) -> ImageDelta | Fold:
        """What the snapshot changed, once complete. One that is older than the image is left alone."""
        if chunk.first:
            self._building = ClusterImage()
        building = self._building
        if building is None:
            return Fold.RESUBSCRIBE
        for encoded in chunk.records:
            building.apply(decode_record(encoded))
        if not chunk.last:
            return Fold.NOTHING
        self._building = None
        if chunk.end_offset <= self.image.offset:
            return Fold.NOTHING
        building.offset = chunk.end_offset
        delta = ImageDelta.between(self.image, building)
        self.image.become(building)
        self.snapshots += 1
        return delta
