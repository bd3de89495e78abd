"""The ends of logs, of which leaders may know less than was read before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ..backoff import Backoff
from ..records import TopicPartition

RETRY_MAX_MS: Final = 1000


async def ends_reaching(
    ask: Callable[[], Awaitable[Mapping[TopicPartition, int]]],
    offsets: Mapping[TopicPartition, int],
    patience_s: float,
) -> dict[TopicPartition, int]:
    """Return the ends of partitions once all have reached these offsets, or after `patience_s` seconds.

    `ask` asks the leaders for the ends of the partitions in `offsets`. A leader that does not know yet that it was
    replaced may return an earlier end. Raises as `ask` does.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    backoff = Backoff(RETRY_MAX_MS)
    while True:
        ends = await ask()
        if loop.time() > deadline or all(ends[partition] >= offset for partition, offset in offsets.items()):
            return dict(ends)
        await asyncio.sleep(backoff.next_s())
