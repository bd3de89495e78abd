"""Which brokers clients are told of.

Some clients take a broker out of their list that Metadata does not name any more, and forget what waits for it:
librdkafka's `send_offsets_to_transaction` then never returns. Apache Kafka fences a killed broker after 9 s, and most
are back before. Here it is fenced within milliseconds, so that others lead, and listed for as long as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ottla.protocol.cluster_image import BrokerState, ClusterImage


class ListedBrokers:
    """Notes when the image showed that a broker is fenced, by the clock of this process.

    A registration of its next process counts as news of the broker: it is about to be back. What happened before this
    process began is not known, so a broker that the first image shows as fenced counts as fenced just now.
    """

    def __init__(self, linger_ms: int, now_ms: Callable[[], int]) -> None:
        self._linger_ms = linger_ms
        self._now_ms = now_ms
        self._listed_until_ms: dict[int, int] = {}
        """Of each fenced broker."""

    def image_changed(self, image: ClusterImage, broker_ids: Iterable[int]) -> None:
        """These brokers have changed."""
        until_ms = self._now_ms() + self._linger_ms
        for broker_id in broker_ids:
            broker = image.brokers.get(broker_id)
            if broker is not None and broker.fenced:
                self._listed_until_ms[broker_id] = until_ms
            else:
                self._listed_until_ms.pop(broker_id, None)

    def in_order(self, image: ClusterImage) -> Iterator[BrokerState]:
        """By id: those that take part, and those that were fenced a short while ago."""
        now_ms = self._now_ms()
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            if not broker.fenced or now_ms < self._listed_until_ms.get(broker_id, 0):
                yield broker
