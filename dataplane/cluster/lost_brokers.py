"""Brokers whose connection has just ended, until the image says what became of them.

A client asks another broker for the new leader as soon as its own connection to a killed one ends, within a
millisecond. The quorum takes some more to name one. A client that is told of the dead leader once more asks again only
when a timer of its own runs out: after a second in librdkafka, whatever its settings. So such an answer waits a moment
for the news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage

NEWS_S_MAX: Final = 0.1
"""How long after the end of a connection anybody waits. Where the quorum may not believe that a broker is dead before
its session has timed out, no longer wait would help; and later requests of the connection wait for the answer."""


class LostBrokers:
    """Those that the image has as usable. One writer: the event loop."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._news: dict[int, tuple[asyncio.Event, asyncio.TimerHandle]] = {}

    @property
    def ids(self) -> Collection[int]:
        """The brokers of which news is awaited."""
        return self._news.keys()

    def lost(self, broker_id: int) -> None:
        """The connection to a broker that had proved itself has ended."""
        broker = self._image().brokers.get(broker_id)
        if broker_id in self._news or broker is None or not broker.usable:
            return
        timer = asyncio.get_running_loop().call_later(NEWS_S_MAX, self._settle, broker_id)
        self._news[broker_id] = asyncio.Event(), timer

    def image_changed(self, image: ClusterImage, broker_ids: Iterable[int]) -> None:
        """These brokers have changed in the image."""
        for broker_id in self._news.keys() & broker_ids:
            broker = image.brokers.get(broker_id)
            if broker is None or not broker.usable:
                self._settle(broker_id)

    async def settled(self) -> None:
        """Return once there is news of all that are lost now, or none in time."""
        for told, _ in list(self._news.values()):
            await told.wait()

    def close(self) -> None:
        """Nobody waits any more."""
        for broker_id in list(self._news):
            self._settle(broker_id)

    def _settle(self, broker_id: int) -> None:
        told, timer = self._news.pop(broker_id)
        timer.cancel()
        told.set()
