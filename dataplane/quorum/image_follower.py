"""The broker's image: a pure fold of the record stream.

A push is folded whole or not at all. A push that begins before the image's offset was on its way when the broker moved
to another node, and is ignored. A push that leaves a gap leads to a new subscription.

The quorum sends a broker the records of a transaction only while the transaction concerns it: while a marker is
outstanding on its replicas, or while the transaction's client speaks through it. The broker's state of other
transactions may be long out of date. When it gets a replica of a partition, it forgets the other transactions that its
image lists as outstanding there, because the quorum next sends all that really are. Otherwise it would wait for markers
that are written already, and accept batches of transactions that have ended.
"""

from enum import Enum

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.cluster.transaction_table import Place, TransactionMetadata
from ...protocol.messages.metadata_records import PartitionRecord, decode_record
from ...protocol.messages.quorum_session import FeedRecords, FeedSnapshotChunk


class Fold(Enum):
    """The reason why a push of metadata records or of a snapshot did not change the image."""

    NOTHING = "the push was folded before, or belongs to a snapshot that is not complete yet"
    RESUBSCRIBE = "the push leaves a gap: subscribe again from the image's offset"
    DIVERGED = "the push continues another history than the image's"


class ImageFollower:
    """The broker's image and the metadata pushes that are applied to it. `image` belongs to broker `broker_id` and
    stays the same object.

    A snapshot is folded into a separate image, which replaces the content at once when it is complete; `snapshots`
    counts them.
    """

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.image = ClusterImage()
        #: mark of the history that led to the image; 0 if unknown
        self.history = 0
        self.snapshots = 0
        self._building: ClusterImage | None = None

    def records(self, push: FeedRecords) -> ImageDelta | Fold:
        """Apply pushed metadata records to the image. Return the changes, or the reason why there are none."""
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
                self._forget_unreported((record.topic_id, record.partition))
            self.image.apply(record)
        self.image.offset = push.end_offset
        self.history = push.end_history
        return delta

    def snapshot(self, chunk: FeedSnapshotChunk) -> ImageDelta | Fold:
        """Take a chunk of a metadata snapshot. Return the changes to the image once the snapshot is complete, and a
        reason before.

        A snapshot older than the image is ignored.
        """
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

    def _forget_unreported(self, place: Place) -> None:
        """Forget the transactions at a partition that this broker got no records of, as it now gets a replica of the
        partition."""
        if self._has_replica(place):
            return
        table = self.image.transactions
        for transaction in list(table.at(place).values()):
            if not self._is_reported(transaction):
                table.forget(transaction.transactional_id)

    def _is_reported(self, transaction: TransactionMetadata) -> bool:
        return transaction.session[0] == self._broker_id or any(map(self._has_replica, transaction.lacking))

    def _has_replica(self, place: Place) -> bool:
        topic = self.image.topics_by_id.get(place[0])
        state = topic.partitions.get(place[1]) if topic is not None else None
        return state is not None and self._broker_id in state.replicas
