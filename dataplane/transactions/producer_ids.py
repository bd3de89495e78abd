"""Producer ids, which the quorum allocates in blocks.

Each block belongs to one broker, so an id is never handed out twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...protocol.messages.broker_commands import AllocateProducerIds
from ..quorum.access import Quorum

NextBlock = Callable[[], Awaitable[tuple[int, int]]]
"""A function that has the quorum allocate a block: first id and count. Raises KafkaError if the quorum does not
answer."""

_REFILL_BELOW = 0.1


def blocks_from(quorum: Quorum, broker_id: int) -> NextBlock:
    """Return a function that gets blocks of ids for this broker from `quorum`."""

    async def next_block() -> tuple[int, int]:
        command = AllocateProducerIds(broker_id=broker_id, broker_epoch=quorum.broker_epoch)
        block = await quorum.submit(command)
        return block.first, block.count

    return next_block


class ProducerIds:
    """A source of new producer ids from this broker's block; the next block is fetched before the present block is used
    up."""

    def __init__(self, next_block: NextBlock) -> None:
        self._next_block = next_block
        self._next = self._end = 0
        self._refill_below = 0
        self._following: tuple[int, int] | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def take(self) -> int:
        """Return a producer id that no other client gets. Raises KafkaError if the quorum does not answer."""
        while self._next == self._end:
            if self._following is not None:
                first, count = self._following
                self._following = None
                self._next, self._end = first, first + count
                self._refill_below = int(count * _REFILL_BELOW)
            else:
                await asyncio.shield(self._fetch())
        producer_id = self._next
        self._next += 1
        if self._end - self._next < self._refill_below and self._following is None:
            self._fetch()
        return producer_id

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._allocate())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    async def _allocate(self) -> None:
        self._following = await self._next_block()

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # A caller that waits for an id gets it, too; a refill ahead of need is tried again.
