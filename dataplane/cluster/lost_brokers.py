"""Brokers whose connection has just ended, until the image shows their new state.

A client asks another broker for the new leader within a millisecond after its connection to a killed broker ends. The
quorum needs slightly longer to elect one. A client that is referred to the dead leader again repeats its question only
after a timer: in librdkafka after a second, whatever its settings. So such an answer waits a moment for the new leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta

NEWS_S_MAX: Final = 0.1
"""Maximum wait after the end of a connection, in seconds. If the quorum may not consider a broker dead before its
session times out, a longer wait would not help, and it would delay later requests of the connection."""


class LostBrokers:
    """The brokers whose connection to this broker has ended while the image still shows them as usable. One writer: the
    event loop.
    """

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._news: dict[int, tuple[asyncio.Event, asyncio.TimerHandle]] = {}

    @property
    def ids(self) -> Collection[int]:
        """Ids of the lost brokers whose new state is awaited."""
        return self._news.keys()

    def lost(self, broker_id: int) -> None:
        """Add a broker whose connection has ended, if the image shows it as usable."""
        broker = self._image().brokers.get(broker_id)
        if broker_id in self._news or broker is None or not broker.usable:
            return
        timer = asyncio.get_running_loop().call_later(NEWS_S_MAX, self._settle, broker_id)
        self._news[broker_id] = asyncio.Event(), timer

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Remove lost brokers whose state has changed in the image."""
        for broker_id in self._news.keys() & delta.brokers:
            broker = image.brokers.get(broker_id)
            if broker is None or not broker.usable:
                self._settle(broker_id)

    async def settled(self) -> None:
        """Wait until the image shows the new state of all brokers that are lost now, at most `NEWS_S_MAX` seconds for
        each since its loss.
        """
        for news, _ in list(self._news.values()):
            await news.wait()

    def close(self) -> None:
        """End all waits."""
        for broker_id in list(self._news):
            self._settle(broker_id)

    def _settle(self, broker_id: int) -> None:
        news, timer = self._news.pop(broker_id)
        timer.cancel()
        news.set()
