"""A reader of a stretch of one partition as it stands in the log, including markers and open transactions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Self

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.list_offsets import EARLIEST
from ...protocol.wire.schema import ZERO_UUID
from ..connections.cluster import Cluster
from ..failures import RequestTimedOut
from ..records import TopicPartition
from .assigned import AssignedPartition, FetchOptions
from .fetched import FetchedRecords
from .fetcher import Fetcher

LOOK_S = 0.2
"""The interval at which failures are checked while no records arrive."""
GONE_AFTER_S = 3.0
"""The time after which a topic that no broker knows counts as deleted; a new topic may be unknown to some brokers for a
moment.
"""


class SliceReader:
    """A reader of one partition's fetched chunks from an offset on, which fetches the next chunks in advance.

    The caller decides where the slice (the range of offsets to read) ends: chunks after its end may be fetched in vain.
    With `read_committed` the chunks leave out aborted records, and end at the last stable offset. Damage and failures
    are raised.
    """

    def __init__(
        self,
        cluster: Cluster,
        fetching: FetchOptions,
        partition: TopicPartition,
        start: int,
        *,
        topic_id: bytes | None = None,
    ) -> None:
        """Create a reader that begins at offset `start`.

        `fetching.reset_timestamp` has no effect: an offset that does not exist is an error. `topic_id`: the id of the
        topic to read, since another topic may have its name by now. Brokers older than Fetch 13 (KIP-516) use the name.
        """
        self._cluster = cluster
        self._lane = f"slice-{id(self)}"
        self._fetcher = Fetcher(cluster, replace(fetching, reset_timestamp=None), self._lane)
        self._partition = partition
        self._topic_id = topic_id
        self._start = start
        self.position = start
        """The offset at which the next chunk begins."""
        self._patience_s = fetching.request_timeout_ms / 1000

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begin to fetch."""
        self._fetcher.assign([self._partition])
        self._state.topic_id = self._topic_id
        self._state.seek(self._start)
        self._fetcher.start()

    async def stop(self) -> None:
        """Stop fetching, and close this slice's connections, as the cluster outlives them."""
        await self._fetcher.stop()
        self._cluster.close_lane(self._lane)

    def seek(self, offset: int) -> None:
        """Continue reading at `offset`, and drop the buffer and any pending failure."""
        with suppress(KafkaError):
            self._fetcher.raise_failure()
        self.position = offset
        self._state.seek(offset)
        self._fetcher.changed()

    async def next_chunk(self) -> FetchedRecords:
        """Return the next fetched chunk: one whole batch at least.

        Raises KafkaError: OFFSET_OUT_OF_RANGE for offsets that do not exist, or no longer; UNKNOWN_TOPIC_OR_PARTITION
        for a deleted topic; UNKNOWN_TOPIC_ID if another topic has its name; RequestTimedOut if nothing has arrived for
        the request timeout; and other failures that end fetching.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        state = self._state
        while not state.buffer:
            self._raise_failure()
            await self._fetcher.wait(LOOK_S)
            if not state.buffer:
                self._look_for_reason(loop.time() - began_s)
        chunk = state.buffer.pop(0)
        self.position = chunk.end_offset
        self._fetcher.changed()
        return chunk

    async def beginning(self) -> int:
        """Return the partition's current log start offset. Raises KafkaError."""
        found = await self._fetcher.list_offsets({self._partition: EARLIEST})
        offset, _ = found[self._partition]
        return offset

    @property
    def _state(self) -> AssignedPartition:
        return self._fetcher.assigned[self._partition]

    def _raise_failure(self) -> None:
        try:
            self._fetcher.raise_failure()
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            where = f"{self._partition.topic}-{self._partition.partition}"
            raise KafkaError(error.code, f"{where} holds no offset {self._state.fetch_offset}") from error

    def _look_for_reason(self, waited_s: float) -> None:
        topic, index = self._partition
        info = self._cluster.metadata.topics.get(topic)
        unknown = info is not None and (
            info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            or (not info.error and index not in info.partitions)
        )
        is_sure = waited_s >= min(GONE_AFTER_S, self._patience_s)
        if unknown and is_sure:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} is not there any more")
        known_id = ZERO_UUID if info is None or info.error else info.id
        if is_sure and self._topic_id is not None and known_id not in (self._topic_id, ZERO_UUID):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {topic!r} with id {self._topic_id.hex()} was deleted, and another topic has its name",
            )
        if waited_s >= self._patience_s:
            offset = self._state.fetch_offset
            if 0 <= self._state.high_watermark <= offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{topic}-{index} ends at {self._state.high_watermark}; there is nothing at offset {offset}",
                )
            raise RequestTimedOut(
                f"{topic}-{index}: nothing came from offset {offset} on within {self._patience_s:g} s"
            )
