"""The broker as a participant in transactions: the parts of this package, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ..quorum.access import Quorum
from ..quorum.shared_catch_up import SharedCatchUp
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from .completion_waits import CompletionWaits
from .markers import Markers, TransactionEnded
from .pending_writes import PendingTransactionWrites


class TransactionParticipant:
    """The broker's parts for transactions: markers, pending writes and waits for completion.

    They follow the broker's image in the turn of the loop that changes it (rule T1).
    """

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        image: Callable[[], ClusterImage],
        quorum: Quorum,
        coordinators: Mapping[str, TransactionEnded],
    ) -> None:
        self.catch_up = SharedCatchUp(broker_id, quorum)
        self.pending_writes = PendingTransactionWrites(
            lambda: image().transactions, quorum, self.catch_up, wall_ms
        )
        self.markers = Markers(broker_id, replicas, image, quorum, coordinators)
        self.completion_waits = CompletionWaits(image)

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Pass a change of the image to markers, pending writes and waits. The replicas have followed before: leaders
        have written the missing markers."""
        if delta.transactions:
            self.markers.image_changed(delta.transactions)
            self.pending_writes.image_changed()
        if delta.transactions or delta.partitions or delta.removed_topics:
            leaders_changed = bool(delta.partitions or delta.removed_topics)
            self.completion_waits.image_changed(delta.transactions, leaders_changed=leaders_changed)

    def elected(self, partition: Partition) -> None:
        """Write the missing markers of a partition that this broker leads from now on."""
        self.markers.elected(partition)

    def close(self) -> None:
        """Refuse the transactional writes that still wait, and write no more markers, as the broker stops."""
        self.pending_writes.close()
        self.markers.close()
