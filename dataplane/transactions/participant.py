"""A broker's part in transactions, put together."""

from __future__ import annotations

from collections.abc import Callable

from ottla.protocol.cluster_image import ClusterImage, ImageDelta

from ..quorum.access import Quorum
from ..replication.replica.partition import Partition
from ..replication.replicas.replicas import Replicas
from ..runtime.clocks import wall_ms
from .completion_waits import CompletionWaits
from .gate import TransactionGate
from .markers import Markers, OffsetsEnded


class TransactionParticipant:
    """What follows the image of the metadata, in the turn of the loop in which that changes (rule T1)."""

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        image: Callable[[], ClusterImage],
        quorum: Quorum,
        offsets_ended: OffsetsEnded,
    ) -> None:
        self.gate = TransactionGate(broker_id, lambda: image().transactions, quorum, wall_ms)
        self.markers = Markers(broker_id, replicas, image, quorum, offsets_ended)
        self.completion_waits = CompletionWaits(image)

    def image_changed(self, delta: ImageDelta) -> None:
        """The replicas have followed this change already: whoever leads now has written what its partitions lacked."""
        if delta.transactions:
            self.markers.image_changed(delta.transactions)
            self.gate.image_changed()
        if delta.transactions or delta.partitions or delta.removed_topics:
            leaders_changed = bool(delta.partitions or delta.removed_topics)
            self.completion_waits.image_changed(delta.transactions, leaders_changed=leaders_changed)

    def elected(self, partition: Partition) -> None:
        """This broker leads a partition now."""
        self.markers.elected(partition)

    def close(self) -> None:
        """Refuse what waits, write no more markers."""
        self.gate.close()
        self.markers.close()
