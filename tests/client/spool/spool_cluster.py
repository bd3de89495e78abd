"""The transactional brokers of the tests, with a group that keeps the position of a spool, and its owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.wire.schema import Message, Request
from tests.client.fake_cluster import Fault
from tests.client.fake_transactions import Owned, TransactionalCluster


class SpoolCluster(TransactionalCluster):
    """Topic `t`, and one group."""

    def __init__(self, partitions: int, version: int, fault: Callable[[], Fault]) -> None:
        super().__init__(partitions, version, fault)
        self.owner = ""
        self._pending_owner = ""
        self.served += [OffsetFetchRequest]

    def answer_other(self, broker: int, request: Request[Message], version: int) -> Message | None:
        if not isinstance(request, OffsetFetchRequest):
            return super().answer_other(broker, request, version)
        assert request.require_stable
        asked = None if request.topics is None else {topic.name for topic in request.topics}
        unstable = any(owned.offsets for owned in self.ids.values())
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=partition,
                            committed_offset=offset,
                            metadata=self.owner,
                            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else ErrorCode.NONE,
                        )
                    ],
                )
                for (topic, partition), offset in self.group_offsets.items()
                if asked is None or topic in asked
            ]
        )

    def _offsets(self, request: Any, version: int, code: ErrorCode) -> Any:
        self._pending_owner = request.topics[0].partitions[0].committed_metadata
        return super()._offsets(request, version, code)

    def _settle(self, owned: Owned, chosen: set[int]) -> None:
        if owned.offsets and owned.producer_id in chosen:
            self.owner = self._pending_owner
        super()._settle(owned, chosen)


@asynccontextmanager
async def spool_cluster(
    version: int = 2,
    *,
    brokers: int = 1,
    partitions: int = 1,
    fault: Callable[[], Fault] = lambda: Fault.NONE,
) -> AsyncIterator[SpoolCluster]:
    """Run brokers that serve topic `t` until the block ends."""
    cluster = SpoolCluster(partitions, version, fault)
    await cluster.start(brokers)
    try:
        yield cluster
    finally:
        await cluster.stop()
