"""A persister in memory, with states that a test may read, delay and refuse."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ottla.protocol.errors import ErrorCode, KafkaError

Key = tuple[str, bytes, int]


@dataclass(frozen=True, slots=True)
class Summary:
    state_epoch: int
    start_offset: int
    leader_epoch: int = 0
    delivery_complete_count: int = 0


class MemoryPersister:
    """States by group, topic id and partition. While `gate` is cleared, calls wait. `refusals` are errors by partition
    index."""

    def __init__(self) -> None:
        self.states: dict[Key, Summary] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.refusals: dict[int, ErrorCode] = {}

    async def _admit(self, partition: int) -> None:
        await self.gate.wait()
        await asyncio.sleep(0)
        if partition in self.refusals:
            raise KafkaError(self.refusals[partition])

    async def initialize(
        self, group_id: str, topic_id: bytes, partition: int, *, state_epoch: int, start_offset: int
    ) -> None:
        await self._admit(partition)
        self.states[group_id, topic_id, partition] = Summary(state_epoch, start_offset)

    async def delete(self, group_id: str, topic_id: bytes, partition: int) -> None:
        await self._admit(partition)
        self.states.pop((group_id, topic_id, partition), None)

    async def summary(self, group_id: str, topic_id: bytes, partition: int) -> Summary:
        await self._admit(partition)
        return self.states[group_id, topic_id, partition]
