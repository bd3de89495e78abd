"""The broker's image: a pure fold of the record stream.

Pushes are folded whole or not at all. A push that does not continue where the image stands is left alone (it
was on its way when the broker moved to another node), and one that leaves a gap asks for a new subscription.

Of transactions a broker is told only while they concern it: while something of them is outstanding on its replicas, or
while their client speaks through it. What it knows of others may be long past. When it is given a replica of a
partition it forgets the others that it believes to be outstanding there, as the quorum tells it next of all that are:
else it would owe markers that are written already, and take batches of transactions that are over.
"""

from enum import Enum

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.cluster.transaction_table import Place, TransactionMetadata
from ...protocol.messages.metadata_records import PartitionRecord, decode_record
from ...protocol.messages.quorum_session import FeedRecords, FeedSnapshotChunk


class Fold(Enum):
    """What became of a push that changed nothing."""

    NOTHING = "seen before, or a snapshot that is not complete yet"
    RESUBSCRIBE = "it does not fit: subscribe again from where the image stands"
    DIVERGED = "it continues another history than that of the image"


class ImageFollower:
    """Folds pushes into `image`, that of broker `broker_id`, which stays one and the same object.

    A snapshot is folded beside it and taken over at once when complete; `snapshots` counts them.
    """

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.image = ClusterImage()
        #: mark of the history that has made the image; 0 unknown
        self.history = 0
        self.snapshots = 0
        self._building: ClusterImage | None = None

    def records(self, push: FeedRecords) -> ImageDelta | Fold:
        """What these records changed."""
        if push.end_offset <= self.image.offset:
            return Fold.NOTHING
        if push.first_offset != self.image.offset:
            return Fold.RESUBSCRIBE
        if push.first_history and self.history and push.first_history != self.history:
            return Fold.DIVERGED
        delta = ImageDelta()
        for encoded in push.records:
            record = decode_record(encoded)
            delta.note(record)
            if isinstance(record, PartitionRecord) and self._broker_id in record.replicas:
                self._forget_what_was_not_told((record.topic_id, record.partition))
            self.image.apply(record)
        self.image.offset = push.end_offset
        self.history = push.end_history
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
        self.history = chunk.history
        delta = ImageDelta.between(self.image, building)
        self.image.become(building)
        self.snapshots += 1
        return delta

    def _forget_what_was_not_told(self, place: Place) -> None:
        """This broker has a replica of the partition from now on."""
        if self._has_replica(place):
            return
        table = self.image.transactions
        for transaction in list(table.at(place).values()):
            if not self._is_told_of(transaction):
                table.forget(transaction.transactional_id)

    def _is_told_of(self, transaction: TransactionMetadata) -> bool:
        return transaction.session[0] == self._broker_id or any(map(self._has_replica, transaction.lacking))

    def _has_replica(self, place: Place) -> bool:
        topic = self.image.topics_by_id.get(place[0])
        state = topic.partitions.get(place[1]) if topic is not None else None
        return state is not None and self._broker_id in state.replicas
