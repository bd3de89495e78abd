"""The shards of a coordinator: one for each partition of its internal topic that this broker leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from ...protocol.errors import ErrorCode, KafkaError

_RELOAD_S = 5.0

logger = logging.getLogger(__name__)


class LoadedShard(Protocol):
    """The interface of a shard, which is loaded from its log before it is served."""

    @property
    def loaded(self) -> bool:
        """Whether the shard's log was replayed."""

    @property
    def closed(self) -> bool:
        """Whether another broker leads the partition."""

    async def load(self) -> None:
        """Replay the log from its start."""

    def close(self) -> None:
        """Answer all waiting requests, as another broker leads the partition."""


AnyShard = TypeVar("AnyShard", bound=LoadedShard)


class LedShards(Generic[AnyShard]):
    """The shards of the partitions that this broker leads, by partition number.

    When a partition's leader changes, the new leader replays the partition, and the old leader closes its shard. No
    other data moves.
    """

    def __init__(self, topic: str, on_loaded: Callable[[AnyShard], None] = lambda _shard: None) -> None:
        """Create the shards of an internal topic. `on_loaded` gets each shard in the turn in which it is loaded."""
        self._topic = topic
        self._on_loaded = on_loaded
        self._shards: dict[int, AnyShard] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._unreadable: set[AnyShard] = set()

    def elected(self, partition: int, shard: AnyShard) -> None:
        """Begin to replay a partition that this broker leads from now on."""
        self.resigned(partition)
        self._shards[partition] = shard
        task = asyncio.get_running_loop().create_task(self._load(partition, shard))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    def resigned(self, partition: int) -> None:
        """Close the shard of a partition that this broker no longer leads."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()
            self._unreadable.discard(shard)

    def get(self, partition: int) -> AnyShard | None:
        """Return the shard of a partition, loaded or not; None if this broker does not lead the partition."""
        return self._shards.get(partition)

    def loaded(self, partition: int) -> AnyShard:
        """Return the loaded shard of a partition.

        Raises KafkaError: NOT_COORDINATOR if another broker leads the partition, COORDINATOR_LOAD_IN_PROGRESS while the
        partition is replayed.
        """
        shard = self._shards.get(partition)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._topic}-{partition} is led elsewhere")
        if not shard.loaded:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._topic}-{partition} is being read"
            )
        return shard

    def led(self) -> Mapping[int, AnyShard]:
        """Return the loaded shards of this broker by partition number."""
        return {partition: shard for partition, shard in self._shards.items() if shard.loaded}

    def __iter__(self) -> Iterator[AnyShard]:
        """Yield the loaded shards of this broker."""
        return (shard for shard in self._shards.values() if shard.loaded)

    @property
    def loading(self) -> int:
        """Number of shards that are being replayed, without unreadable shards."""
        return sum(not shard.loaded and shard not in self._unreadable for shard in self._shards.values())

    def close(self) -> None:
        """Close all shards, as the broker stops."""
        for partition in list(self._shards):
            self.resigned(partition)

    async def _load(self, partition: int, shard: AnyShard) -> None:
        while not (shard.loaded or shard.closed):
            try:
                await shard.load()
            except Exception:
                if shard.closed:
                    return
                # Clients of the partition's keys have to wait until the log can be read, or the partition moves.
                logger.exception("cannot read %s-%d", self._topic, partition)
                self._unreadable.add(shard)
                await asyncio.sleep(_RELOAD_S)
        self._unreadable.discard(shard)
        if not shard.closed:
            self._on_loaded(shard)
