"""The brokers that Metadata and DescribeCluster report to clients.

A client drops a broker that Metadata no longer contains, together with the requests for that broker. librdkafka's
`send_offsets_to_transaction` then never returns. Apache Kafka fences a killed broker after 9 s, and most brokers are
back before that. Ottla fences it within milliseconds, so that other brokers lead, and still lists it for those 9 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...protocol.cluster.cluster_image import BrokerState, ClusterImage
from ...protocol.cluster.image_delta import ImageDelta


class ListedBrokers:
    """The fenced brokers that are still reported to clients, each with the time until which it is, by the clock of this
    process.

    They count from the first image that shows the broker as fenced. A new registration of a fenced broker restarts its
    time, since the broker is about to return. A broker that is fenced in the first image counts as fenced just now,
    because this process does not know since when.
    """

    def __init__(self, linger_ms: int, now_ms: Callable[[], int]) -> None:
        self._linger_ms = linger_ms
        self._now_ms = now_ms
        self._listed_until_ms: dict[int, int] = {}
        """End of the time of each fenced broker."""

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Begin, restart or end the listing of brokers whose state has changed in the image."""
        until_ms = self._now_ms() + self._linger_ms
        for broker_id in delta.brokers:
            broker = image.brokers.get(broker_id)
            if broker is not None and broker.fenced:
                self._listed_until_ms[broker_id] = until_ms
            else:
                self._listed_until_ms.pop(broker_id, None)

    def in_order(self, image: ClusterImage) -> Iterator[BrokerState]:
        """Yield the live brokers, and those that were fenced a short while ago, in the order of their ids."""
        now_ms = self._now_ms()
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            if not broker.fenced or now_ms < self._listed_until_ms.get(broker_id, 0):
                yield broker
